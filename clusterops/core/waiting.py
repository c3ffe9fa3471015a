"""Why a job is not running, as one reason of the closed list and one sentence with particulars."""

from datetime import datetime
from typing import NamedTuple

from clusterops.api.reasons import WaitReason
from clusterops.core import exits
from clusterops.core.conditions import seconds_since
from clusterops.core.observed import Observed, TrainingJob, Workload
from clusterops.core.observed_pods import Pod
from clusterops.core.settings import Settings


class Why(NamedTuple):
    """A reason and the message that goes with it."""

    reason: WaitReason
    message: str

    @classmethod
    def of(cls, reason: WaitReason, detail: str = "") -> "Why":
        """The reason's own sentence, and after a colon what is particular to this job."""
        sentence = reason.sentence
        return cls(reason, f"{sentence}: {detail}" if detail and sentence else detail or sentence)


def before_queueing(job: TrainingJob, observed: Observed) -> Why | None:
    """Why the job may not even be put into its queue; None when it may."""
    if job.malformed:
        return Why.of(WaitReason.STUCK, f"its spec cannot be read: {job.malformed}")
    if not observed.queue.found:
        return Why.of(WaitReason.QUEUE_NOT_FOUND, observed.queue.missing)
    if observed.priority is None:
        return Why.of(WaitReason.PRIORITY_CLASS_NOT_FOUND, job.spec.priority_class_name or "")
    if observed.queue.never_fits:
        return Why.of(WaitReason.NEVER_FITS, observed.queue.never_fits)
    return None


def in_queue(job: TrainingJob, observed: Observed, workload: Workload, now: datetime) -> Why:
    """Why a Workload without quota waits."""
    blocked = before_queueing(job, observed)
    if blocked is not None:
        return blocked
    until = job.status.backoff_until
    if until is not None and until > now:
        return Why.of(WaitReason.BACKING_OFF, f"until {until:%H:%M:%S} UTC, {_last_end(job)}")
    if observed.queue.stopped:
        return Why.of(WaitReason.QUEUE_STOPPED, observed.queue.stopped)
    evicted = workload.condition("Evicted")
    if evicted is not None and deactivated_by_queue(workload):
        detail = evicted.message or evicted.reason
        return Why.of(WaitReason.STUCK, f"its Workload was deactivated by the queue ({detail})")
    reserved = workload.condition("QuotaReserved")
    if reserved is None:
        return Why.of(WaitReason.QUEUED)
    if reserved.true:
        return Why.of(WaitReason.WAITING_FOR_QUOTA, _checks(workload))
    if reserved.reason == "AdmissionGated":
        return Why.of(WaitReason.CHECKPOINT_FIRST)
    if "ending the preemption" in reserved.message:
        return Why.of(WaitReason.WAITING_FOR_PREEMPTION, reserved.message)
    return Why.of(WaitReason.WAITING_FOR_QUOTA, reserved.message)


def deactivated_by_queue(workload: Workload) -> bool:
    """Whether the queue has given the Workload up; one that its user put to sleep is woken again."""
    evicted = workload.condition("Evicted")
    return (
        not workload.active
        and evicted is not None
        and evicted.reason.startswith("DeactivatedDueTo")
    )


def while_starting(
    job: TrainingJob, pods: tuple[Pod, ...], expected: int, now: datetime, settings: Settings
) -> Why:
    """Why an admitted attempt does not run yet."""
    unplaced = [pod for pod in pods if _unplaced(pod)]
    ready = sum(pod.ready for pod in pods)
    if unplaced:
        refusal = unplaced[0].condition("PodScheduled")
        why = Why.of(WaitReason.WAITING_FOR_NODES, refusal.message if refusal is not None else "")
    else:
        refused = exits.cannot_start(pods)
        detail = f"; {refused.message}" if refused is not None else ""
        why = Why.of(WaitReason.WAITING_FOR_PODS, f"{ready} of {expected} ready{detail}")
    waited = seconds_since(job.status.attempt_begun_at, now)
    if waited < settings.stuck_seconds:
        return why
    return Why(
        WaitReason.STUCK,
        f"admitted {waited / 60:.0f} minutes ago and not running: {why.message}",
    )


def while_ending(
    why: Why, job: TrainingJob, pods: tuple[Pod, ...], now: datetime, settings: Settings
) -> Why:
    """`why`, unless pods have outlived the deadline by far."""
    late = seconds_since(job.status.grace_deadline, now)
    alive = sorted(pod.name for pod in pods if pod.alive)
    if not alive or late < settings.node_lost_seconds * 2:
        return why
    return Why(
        WaitReason.STUCK,
        f"{', '.join(alive[:5])} should have ended {late:.0f} seconds ago and its node is alive",
    )


def _unplaced(pod: Pod) -> bool:
    found = pod.condition("PodScheduled")
    return not pod.spec.node_name and found is not None and found.status == "False"


def _checks(workload: Workload) -> str:
    waiting = [c.name for c in workload.status.admission_checks or () if c.state != "Ready"]
    return f"admission checks not ready: {', '.join(waiting)}" if waiting else ""


def _last_end(job: TrainingJob) -> str:
    last = job.status.attempts[-1] if job.status.attempts else None
    if last is None or last.cause is None:
        return "after a failure"
    return f"attempt {last.number} ended with {last.cause}"
