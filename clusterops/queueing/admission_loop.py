"""The scheduling loop: on any change, decide on the whole world as known, and write what was decided.

Nothing is remembered between rounds: what a preemption in progress needs is in the objects, so a
restart in the middle decides the same. Changes that arrive while a round is under way lead to one
more round, however many they are. Every write names the resourceVersion it was decided on; a
conflict means the world has moved on, and the next round sees it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from clusterops.api import names
from clusterops.kube.client import Client
from clusterops.kube.errors import Conflict, KubeError, NotFound, printable
from clusterops.kube.events import EventRecorder
from clusterops.kube.store import Key
from clusterops.queueing import transitions
from clusterops.queueing.observed import Observed, Seen
from clusterops.scheduling import cycle
from clusterops.scheduling.decisions import Admit, Decision, Preempt, Wait, line
from clusterops.scheduling.objects import Workload

log = logging.getLogger(__name__)

_CONCURRENT_WRITES = 16
_RETRY_SECONDS = 1.0
_EVENT_LENGTH = 1024


class AdmissionLoop:
    """Admits and preempts. `wake` asks for a round; `run` makes them, one at a time."""

    def __init__(
        self,
        client: Client,
        observed: Observed,
        events: EventRecorder,
        clock: Callable[[], float],
    ) -> None:
        """`clock` gives wall time in epoch seconds, for conditions and back-off."""
        self._client = client
        self._observed = observed
        self._events = events
        self._clock = clock
        self._wanted = asyncio.Event()
        self._slots = asyncio.Semaphore(_CONCURRENT_WRITES)
        self.rounds = 0

    def wake(self) -> None:
        """Asks for a round after the one under way."""
        self._wanted.set()

    async def run(self) -> None:
        """Rounds until cancelled."""
        while True:
            await self._wanted.wait()
            # Events that arrived together make one round: all tasks that are ready go first.
            await asyncio.sleep(0)
            self._wanted.clear()
            await self.round()

    async def round(self) -> list[Decision]:
        """Decides once and writes; returns what was decided."""
        self.rounds += 1
        decisions = cycle.decide(self._observed.snapshot(), self._clock())
        by_workload: dict[Key, list[Decision]] = {}
        for decision in decisions:
            by_workload.setdefault(_subject(decision).key, []).append(decision)
            if isinstance(decision, Wait):
                for key in decision.alike:
                    by_workload.setdefault(key, []).append(decision)
        await asyncio.gather(*(self._apply(key, about) for key, about in by_workload.items()))
        return decisions

    async def _apply(self, key: Key, decisions: Sequence[Decision]) -> None:
        """Writes the decisions about one workload, in their order."""
        async with self._slots:
            for decision in decisions:
                seen = self._observed.workload(key)
                if seen is None:
                    return
                try:
                    await self._write(seen, decision)
                except (Conflict, NotFound) as moved_on:
                    log.debug("%s: %s", line(decision), moved_on)
                    return
                except KubeError as error:
                    log.warning("%s: %s; trying again", printable(line(decision)), error)
                    asyncio.get_running_loop().call_later(_RETRY_SECONDS, self.wake)
                    return

    async def _write(self, seen: Seen, decision: Decision) -> None:
        match decision:
            case Admit():
                await self._admit(seen, decision)
            case Preempt():
                await self._preempt(seen, decision)
            case Wait():
                await self._wait(seen, decision)

    async def _admit(self, seen: Seen, decision: Admit) -> None:
        if seen.workload.uid != decision.workload.uid or seen.workload.reserved:
            return
        now = self._clock()
        name = decision.admission.cluster_queue
        queue = self._observed.cluster_queues.get(("", name))
        checks: tuple[str, ...] = queue.parsed.admission_checks if queue is not None else ()
        status = transitions.reserved(
            seen.status,
            decision.admission,
            checks,
            generation=decision.workload.generation,
            now=now,
        )
        await self._store(seen, decision.workload, status)
        waited = now - _queued_since(seen.workload)
        text = f"Quota reserved in ClusterQueue {name}, wait time since queued was {waited:.0f}s"
        if decision.considered:
            text += f"; Flavors considered: {decision.considered}"
        self._record(seen, "Normal", "QuotaReserved", text)
        if not checks:
            text = f"Admitted by ClusterQueue {name}, wait time since reservation was 0s"
            self._record(seen, "Normal", "Admitted", text)

    async def _preempt(self, seen: Seen, decision: Preempt) -> None:
        victim, preemptor = seen.workload, decision.preemptor
        if victim.uid != decision.victim.uid or victim.evicted or not victim.holds_quota:
            return
        status = transitions.preempted(
            seen.status,
            decision.reason.value,
            decision.message,
            generation=victim.generation,
            now=self._clock(),
        )
        await self._store(seen, decision.victim, status)
        priorities = (
            f"; preemptor effective priority: {_priorities(preemptor)}; "
            f"preemptee effective priority: {_priorities(victim)}"
        )
        self._record(seen, "Normal", "EvictedDueToPreempted", decision.message)
        self._record(seen, "Normal", "Preempted", decision.message + priorities)
        by = self._observed.workload(preemptor.key)
        if by is not None and victim.admission is not None:
            text = (
                f"Preempted workload {victim.namespace}/{victim.name} (UID: {victim.uid}) "
                f"in ClusterQueue {victim.admission.cluster_queue}{priorities}"
            )
            self._record(by, "Normal", "PreemptedWorkload", text)

    async def _wait(self, seen: Seen, decision: Wait) -> None:
        workload = seen.workload
        alike = workload.uid != decision.workload.uid
        before = transitions.condition(seen.status, "QuotaReserved")
        if workload.reserved or workload.on_hold or workload.gates:
            return
        if alike and (before is not None or workload.key not in decision.alike):
            # Thousands may wait for the same reason: they are told once, the first one always.
            return
        if before is not None and (before.get("reason"), before.get("message")) == (
            "Pending",
            decision.message,
        ):
            return
        status = transitions.waiting(
            seen.status,
            "Pending",
            decision.message,
            generation=workload.generation,
            now=self._clock(),
        )
        await self._store(seen, workload, status)
        self._record(seen, "Warning", "Pending", decision.message)

    async def _store(self, seen: Seen, decided_on: Workload, status: dict[str, Any]) -> None:
        """Writes a status. What was decided on an older spec or priority is not written at all."""
        if seen.workload.generation != decided_on.generation:
            self.wake()
            raise Conflict(409, "Conflict", "the workload's spec has changed since the decision")
        raw = await self._client.write_status(names.WORKLOADS, seen.raw, status)
        self._observed.written(raw)

    def _record(self, seen: Seen, kind: str, reason: str, message: str) -> None:
        self._events.record(seen.raw, kind, reason, message[:_EVENT_LENGTH])


def _subject(decision: Decision) -> Workload:
    return decision.victim if isinstance(decision, Preempt) else decision.workload


def _queued_since(workload: Workload) -> float:
    """Since when a workload waits this time."""
    requeued = workload.conditions.get("Requeued")
    return requeued.since if requeued is not None else workload.created


def _priorities(workload: Workload) -> str:
    return f"{workload.effective_priority} (base: {workload.priority}, boost: {workload.boost})"
