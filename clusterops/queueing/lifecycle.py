"""What a Workload needs apart from the choice who runs: one step at a time, pure.

Orphans are finished, deactivated ones evicted, back-off ends, gates and stopped queues are named,
pods that never get ready are timed out. Each call returns the first step that is due; the write
brings a new state and the next call. Not enforced here, as Kueue's webhooks do: that the pod sets
of a reserved Workload stay as they are.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from clusterops.queueing import transitions
from clusterops.scheduling.activity import cluster_queue_activity
from clusterops.scheduling.objects import LocalQueue, Workload
from clusterops.scheduling.snapshot import Snapshot


class Timing(msgspec.Struct, frozen=True):
    """Waiting for pods to get ready, with Kueue's defaults. All in seconds; None = for ever."""

    start_timeout: float | None = 1800.0
    recovery_timeout: float | None = 1800.0
    backoff_base: float = 60.0
    backoff_most: float = 3600.0
    # Failed starts after which a workload is deactivated; None = never.
    backoff_limit: int | None = None


KUEUE_DEFAULTS = Timing()


class Event(msgspec.Struct, frozen=True):
    """An event to record with the write."""

    kind: str
    reason: str
    message: str


class Step(msgspec.Struct, frozen=True):
    """One write (or none), its events, and when to look again without one."""

    status: Mapping[str, Any] | None = None
    spec: Mapping[str, Any] | None = None
    events: tuple[Event, ...] = ()
    again_in: float | None = None


def next_step(
    snapshot: Snapshot, workload: Workload, status: Mapping[str, Any], timing: Timing, now: float
) -> Step:
    """The first thing due on a Workload whose raw status is `status`."""
    due = _Due(snapshot, workload, status, timing, now)
    if (
        not workload.owned
        and workload.job_uid
        and not workload.terminating
        and not workload.finished
    ):
        return Step(
            transitions.finished(
                status, "OwnerNotFound", "The workload's owner no longer exists", **due.at
            )
        )
    if workload.finished:
        return Step()
    steps = (
        (due.reactivation, due.queue_restart, due.gate)
        if workload.active
        else (due.deactivation, due.queue_restart, due.gate)
    )
    for rule in (*steps, due.reservation, due.stop, due.time_limits):
        step = rule()
        if step is not None:
            return step
    return Step()


class _Due:
    """The rules, in the order of `next_step`; each says None when it has nothing to do."""

    def __init__(
        self,
        snapshot: Snapshot,
        workload: Workload,
        status: Mapping[str, Any],
        timing: Timing,
        now: float,
    ) -> None:
        self.snapshot = snapshot
        self.workload = workload
        self.status = status
        self.timing = timing
        self.now = now
        self.at: dict[str, Any] = {"generation": workload.generation, "now": now}
        self.local = snapshot.local_queues.get((workload.namespace, workload.queue))

    def deactivation(self) -> Step | None:
        """`spec.active` is false: evicted, and its quota is free from that moment."""
        workload, status = self.workload, self.status
        target = transitions.condition(status, "DeactivationTarget")
        cleared = transitions.without_condition(status, "DeactivationTarget") if target else status
        has_backoff = bool(status.get("requeueState"))
        if has_backoff:
            cleared = {key: value for key, value in cleared.items() if key != "requeueState"}
        if workload.evicted:
            return Step(cleared) if has_backoff else None
        message, cause = "The workload is deactivated", ""
        if target is not None:
            cause = str(target.get("reason") or "")
            message = f"{message} due to {target.get('message') or ''}"
        after = transitions.evicted(cleared, "Deactivated", message, cause=cause, **self.at)
        suffix = f"DueTo{cause}" if cause else ""
        return Step(after, events=self._evicted_event(f"Deactivated{suffix}", message))

    def reactivation(self) -> Step | None:
        """Marked for deactivation, or on the way back from back-off or deactivation."""
        workload, status = self.workload, self.status
        if workload.is_true("DeactivationTarget"):
            return Step(spec={"active": False})
        if workload.requeue_at is not None:
            if workload.requeue_at > self.now:
                if not workload.reserved:
                    return Step(again_in=workload.requeue_at - self.now)
            elif not workload.reserved:
                return Step(self._back_in_queue(transitions.without_requeue_time(status)))
        after = self._back_in_queue(status)
        return Step(after) if after is not status else None

    def _back_in_queue(self, status: Mapping[str, Any]) -> Mapping[str, Any]:
        """Requeued turned True when what made it False is over."""
        requeued = self.workload.conditions.get("Requeued")
        if requeued is None or requeued.true:
            return status
        if requeued.reason == "Deactivated":
            return transitions.requeued(
                status, True, "Reactivated", "The workload was reactivated", **self.at
            )
        backing_off = self.workload.requeue_at is not None and (self.workload.requeue_at > self.now)
        if requeued.reason in ("PodsReadyTimeout", "AdmissionCheck") and not backing_off:
            return transitions.requeued(
                status, True, "BackoffFinished", "The workload backoff was finished", **self.at
            )
        return status

    def queue_restart(self) -> Step | None:
        """Its queue was stopped and drained, and runs again."""
        requeued = self.workload.conditions.get("Requeued")
        if requeued is None or requeued.true:
            return None
        if requeued.reason == "LocalQueueStopped" and _open(self.local):
            message = "The LocalQueue was restarted after being stopped"
            return self._restarted("LocalQueueRestarted", message)
        if requeued.reason == "ClusterQueueStopped" and self.local is not None:
            queue = self.snapshot.queues.get(self.local.cluster_queue)
            if queue is not None and queue.stop == "None":
                message = "The ClusterQueue was restarted after being stopped"
                return self._restarted("ClusterQueueRestarted", message)
        return None

    def _restarted(self, reason: str, message: str) -> Step:
        return Step(transitions.requeued(self.status, True, reason, message, **self.at))

    def gate(self) -> Step | None:
        """Gated: says so and nothing else. Ungated: says that too, once."""
        reservation = self.workload.conditions.get("QuotaReserved")
        gated_before = reservation is not None and reservation.reason == "AdmissionGated"
        gates = self.workload.gates
        if gates and self.workload.reserved:
            return None
        if gates and not gated_before:
            after = transitions.waiting(
                self.status, "AdmissionGated", f"Admission is gated by: {gates}", **self.at
            )
            text = f"Workload admission is gated by: {gates}"
            return Step(after, events=(Event("Normal", "AdmissionGated", text),))
        if gates:
            return Step()
        if gated_before:
            text = "AdmissionGatedBy cleared, waiting for quota reservation"
            after = transitions.waiting(self.status, "Pending", text, **self.at)
            cleared = "Admission gate cleared, workload is now admissible"
            return Step(after, events=(Event("Normal", "AdmissionGateCleared", cleared),))
        return None

    def reservation(self) -> Step | None:
        """Keeps QuotaReserved and Admitted true to the facts."""
        if self.workload.admitted:
            # Only an eviction takes admission away, and only the owner gives it back.
            return None
        if not self.workload.reserved:
            blocker = self._queue_blocker()
            return self._waiting("Inadmissible", blocker) if blocker else None
        blocker = self._reservation_blocker()
        if blocker:
            return self._waiting("Inadmissible", blocker)
        return self._checks()

    def _checks(self) -> Step | None:
        """A reservation becomes an admission when the last check is ready."""
        assert self.workload.admission is not None or self.workload.reserved
        if self.workload.admission is None:
            return None
        queue = self.snapshot.queues.get(self.workload.admission.cluster_queue)
        checks = queue.admission_checks if queue is not None else ()
        after = transitions.with_checks(self.status, checks, self.now)
        after = transitions.synced_admitted(after, **self.at)
        if after == self.status:
            return None
        events: tuple[Event, ...] = ()
        if transitions.is_true(after, "Admitted"):
            since = self.workload.conditions["QuotaReserved"].since
            name = self.workload.admission.cluster_queue
            text = (
                f"Admitted by ClusterQueue {name}, "
                f"wait time since reservation was {self.now - since:.0f}s"
            )
            events = (Event("Normal", "Admitted", text),)
        return Step(after, events=events)

    def _waiting(self, reason: str, message: str) -> Step | None:
        before = transitions.condition(self.status, "QuotaReserved")
        if (
            before is not None
            and before["status"] == "False"
            and (before.get("reason"), before.get("message")) == (reason, message)
        ):
            return None
        return Step(transitions.waiting(self.status, reason, message, **self.at))

    def _queue_blocker(self) -> str:
        """Why its queue admits nothing, for a workload without quota."""
        if self.local is None:
            return f"LocalQueue {self.workload.queue} doesn't exist"
        if self.local.stop != "None":
            return f"LocalQueue {self.workload.queue} is inactive"
        queue = self.snapshot.queues.get(self.local.cluster_queue)
        if queue is None:
            return f"ClusterQueue {self.local.cluster_queue} doesn't exist"
        if not cluster_queue_activity(self.snapshot, queue).active:
            return f"ClusterQueue {queue.name} is inactive"
        return ""

    def _reservation_blocker(self) -> str:
        """Why a reservation that is no admission yet must go."""
        if self.local is None or self.local.terminating:
            return f"LocalQueue {self.workload.queue} is terminating or missing"
        if self.local.stop != "None":
            return f"LocalQueue {self.workload.queue} is stopped"
        queue = self.snapshot.queues.get(self.local.cluster_queue)
        if queue is None or queue.terminating:
            return f"ClusterQueue {self.local.cluster_queue} is terminating or missing"
        if queue.stop != "None":
            return f"ClusterQueue {queue.name} is stopped"
        return ""

    def stop(self) -> Step | None:
        """HoldAndDrain sends running workloads away; Hold leaves them alone."""
        if not (self.workload.reserved and self.workload.admitted) or self.workload.evicted:
            return None
        if self.local is not None and self.local.stop == "HoldAndDrain":
            return self._evict("LocalQueueStopped", "The LocalQueue is stopped")
        admission = self.workload.admission
        queue = self.snapshot.queues.get(admission.cluster_queue) if admission else None
        if queue is not None and queue.stop == "HoldAndDrain":
            return self._evict("ClusterQueueStopped", "The ClusterQueue is stopped")
        return None

    def time_limits(self) -> Step | None:
        """Pods that never got ready, and the longest time a workload may run."""
        if not (self.workload.reserved and self.workload.admitted):
            return None
        if self.workload.active and not self.workload.evicted:
            left, cause = self._readiness_left()
            if left is not None and left <= 0:
                return self._not_ready(cause)
        else:
            left = None
        execution = self._execution_left()
        if execution is not None and execution <= 0:
            return self._ran_too_long()
        waits = [each for each in (left, execution) if each is not None]
        return Step(again_in=min(waits)) if waits else None

    def _readiness_left(self) -> tuple[float | None, str]:
        """Seconds left for the pods to get ready (None = not timed), and which wait it is."""
        ready = self.workload.conditions.get("PodsReady")
        if ready is not None and ready.true:
            return None, ""
        if ready is None or ready.reason in ("WaitForStart", "PodsReady"):
            if self.timing.start_timeout is None:
                return None, ""
            since = self.workload.conditions["Admitted"].since
            return self.timing.start_timeout - (self.now - since), "WaitForStart"
        if ready.reason == "WaitForRecovery" and self.timing.recovery_timeout is not None:
            return self.timing.recovery_timeout - (self.now - ready.since), "WaitForRecovery"
        return None, ""

    def _not_ready(self, cause: str) -> Step:
        limit = self.timing.backoff_limit
        if limit is not None and self.workload.requeue_count + 1 > limit:
            return Step(
                self._marked(
                    "RequeuingLimitExceeded", "exceeding the maximum number of re-queuing retries"
                )
            )
        status = transitions.backed_off(
            self.status, self.timing.backoff_base, self.timing.backoff_most, self.now
        )
        name = f"{self.workload.namespace}/{self.workload.name}"
        message = f"Exceeded the PodsReady timeout {name}"
        after = transitions.evicted(status, "PodsReadyTimeout", message, cause=cause, **self.at)
        return Step(after, events=self._evicted_event("PodsReadyTimeout", message))

    def _execution_left(self) -> float | None:
        limit = self.workload.max_execution_seconds
        if limit is None or self.workload.is_true("DeactivationTarget") or not self.workload.active:
            return None
        ran = self.now - self.workload.conditions["Admitted"].since
        return limit - self.workload.past_execution_seconds - ran

    def _ran_too_long(self) -> Step:
        status = self._marked(
            "MaximumExecutionTimeExceeded", "exceeding the maximum execution time"
        )
        status.pop("accumulatedPastExecutionTimeSeconds", None)
        limit = self.workload.max_execution_seconds
        text = f"The maximum execution time ({limit}s) exceeded"
        return Step(status, events=(Event("Warning", "MaximumExecutionTimeExceeded", text),))

    def _marked(self, reason: str, message: str) -> dict[str, Any]:
        """Marked for deactivation; the next step sets `spec.active` to false."""
        return transitions.with_condition(
            self.status, "DeactivationTarget", True, reason, message, **self.at
        )

    def _evict(self, reason: str, message: str) -> Step:
        after = transitions.evicted(self.status, reason, message, **self.at)
        return Step(after, events=self._evicted_event(reason, message))

    def _evicted_event(self, reason: str, message: str) -> tuple[Event, ...]:
        """Only who held quota is sent away; for the others the condition says enough."""
        if self.workload.admission is None:
            return ()
        return (Event("Normal", f"EvictedDueTo{reason}", message),)


def _open(local: LocalQueue | None) -> bool:
    return local is not None and local.stop == "None"
