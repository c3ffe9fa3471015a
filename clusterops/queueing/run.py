"""Starts the queue: watches Kueue's kinds, decides, writes, binds pods, and looks after nodes."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from clusterops.api import names
from clusterops.kube import connect
from clusterops.kube.client import Client
from clusterops.kube.controller import Controller
from clusterops.kube.errors import Conflict, NotFound
from clusterops.kube.events import EventRecorder
from clusterops.kube.store import Key
from clusterops.kube.workqueue import WorkQueue
from clusterops.queueing import lifecycle
from clusterops.queueing.admission_loop import AdmissionLoop
from clusterops.queueing.binder import Binder
from clusterops.queueing.lifecycle import KUEUE_DEFAULTS, Timing
from clusterops.queueing.node_liveness import NodeLiveness
from clusterops.queueing.observed import Observed, PriorityClass, Seen
from clusterops.queueing.queue_status import (
    Census,
    cluster_queue_status,
    local_queue_status,
)

log = logging.getLogger(__name__)

_SYNC_SECONDS = 60.0
_STATUS_DELAY_SECONDS = 0.2
_COMPONENT = "clusterops-queueing"


async def serve(kubeconfig: Path, stop: asyncio.Event) -> None:
    """Runs the queue and the binder against the API server of a kubeconfig until `stop` is set."""
    connection = connect.load(kubeconfig)
    client = connection.client()
    events = EventRecorder(client, _COMPONENT)
    queue = Queue(client, events, _wall_clock)
    binder = Binder(client, events, _wall_clock)
    liveness = NodeLiveness(client, _wall_clock)
    try:
        work = asyncio.ensure_future(_together(queue, binder, liveness, events))
        stopping = asyncio.ensure_future(stop.wait())
        done, _ = await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (work, stopping):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if work in done:
            raise RuntimeError("the queue ended by itself")
    finally:
        await connection.close()


async def _together(
    queue: "Queue", binder: Binder, liveness: NodeLiveness, events: EventRecorder
) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.run(), name="queue")
        group.create_task(binder.run(), name="binder")
        group.create_task(liveness.run(), name="node liveness")
        group.create_task(events.run(), name="events")


def _wall_clock() -> float:
    return datetime.now(UTC).timestamp()


class Queue:
    """The stand-in for Kueue: observation, the admission loop, lifecycles, and queue statuses."""

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        clock: Callable[[], float],
        timing: Timing = KUEUE_DEFAULTS,
    ) -> None:
        """`clock` gives wall time in epoch seconds."""
        self._client = client
        self._events = events
        self._clock = clock
        self._timing = timing
        self._workload_queue: WorkQueue[Key] = WorkQueue()
        self._status_queue: WorkQueue[str] = WorkQueue()
        self._priorities: dict[Key, int] = {}
        self.observed = Observed(
            client,
            workload_changed=self._workload_changed,
            configuration_changed=self._configuration_changed,
        )
        self.observed.classes.subscribe(self._class_changed)
        self.loop = AdmissionLoop(client, self.observed, events, clock)
        self._lifecycles = Controller("workloads", self._workload_queue, self._reconcile, workers=4)
        self._statuses = Controller(
            "queue-statuses", self._status_queue, self._write_statuses, workers=1
        )

    async def run(self) -> None:
        """Works until cancelled. Nothing is decided before everything has been listed once."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.observed.run(), name="observe")
            await self.observed.wait_synced(_SYNC_SECONDS)
            log.info("the queue is synced: %d workloads", len(self.observed.workloads))
            self.loop.wake()
            self._status_queue.add("all")
            group.create_task(self.loop.run(), name="admission loop")
            group.create_task(self._lifecycles.run(), name="workload lifecycles")
            group.create_task(self._statuses.run(), name="queue statuses")

    def _workload_changed(self, key: Key) -> None:
        self._workload_queue.add(key)
        self.loop.wake()
        self._status_queue.add_after("all", _STATUS_DELAY_SECONDS)

    def _configuration_changed(self) -> None:
        for key in self.observed.workloads:
            self._workload_queue.add(key)
        self.loop.wake()
        self._status_queue.add_after("all", _STATUS_DELAY_SECONDS)

    def _class_changed(
        self, _: Key, before: PriorityClass | None, after: PriorityClass | None
    ) -> None:
        """A class got another value: all its Workloads get it, running ones too.

        Only a change does this, as in Kueue: a priority edited by hand stays until then.
        """
        if before is None or after is None or before.value == after.value:
            return
        for seen in self.observed.all_workloads():
            if seen.workload.priority_class == after.name and not seen.workload.finished:
                self._priorities[seen.workload.key] = after.value
                self._workload_queue.add(seen.workload.key)

    async def _reconcile(self, key: Key) -> float | None:
        """One step of one Workload's lifecycle."""
        seen = self.observed.workload(key)
        if seen is None:
            self._priorities.pop(key, None)
            return None
        if key in self._priorities:
            await self._rewrite_priority(seen)
            return None
        step = lifecycle.next_step(
            self.observed.configuration(),
            seen.workload,
            seen.status,
            self._timing,
            self._clock(),
        )
        try:
            if step.spec is not None:
                await self._patch_spec(seen, dict(step.spec))
            if step.status is not None and step.status != seen.status:
                raw = await self._client.write_status(names.WORKLOADS, seen.raw, dict(step.status))
                self.observed.written(raw)
                # The next step does not wait for the watch.
                self._workload_queue.add(key)
                self.loop.wake()
        except (Conflict, NotFound):
            return None  # the watch brings what has changed, and this key with it
        for event in step.events:
            self._events.record(seen.raw, event.kind, event.reason, event.message)
        return step.again_in

    async def _rewrite_priority(self, seen: Seen) -> None:
        key = seen.workload.key
        value = self._priorities[key]
        if seen.workload.priority != value:
            await self._patch_spec(seen, {"priority": value})
        if self._priorities.get(key) == value:
            del self._priorities[key]
        self._workload_queue.add(key)

    async def _patch_spec(self, seen: Seen, spec: dict[str, object]) -> None:
        namespace, name = seen.workload.key
        metadata = {"resourceVersion": seen.raw["metadata"]["resourceVersion"]}
        raw = await self._client.patch(
            names.WORKLOADS, namespace, name, {"metadata": metadata, "spec": spec}
        )
        self.observed.written(raw)

    async def _write_statuses(self, _: str) -> float | None:
        """Brings the statuses of all queues up to date; returns when one has to be tried again."""
        census = Census(self.observed.snapshot())
        again: float | None = None
        for seen in self.observed.cluster_queues.values():
            status = cluster_queue_status(
                census,
                seen.parsed,
                seen.raw.get("status") or {},
                generation=int(seen.raw["metadata"].get("generation") or 0),
                now=self._clock(),
            )
            try:
                await self._client.write_status(names.CLUSTER_QUEUES, seen.raw, status)
            except (Conflict, NotFound):
                again = _STATUS_DELAY_SECONDS
        for seen in self.observed.local_queues.values():
            status = local_queue_status(
                census,
                seen.parsed,
                seen.raw.get("status") or {},
                generation=int(seen.raw["metadata"].get("generation") or 0),
                now=self._clock(),
            )
            try:
                await self._client.write_status(names.LOCAL_QUEUES, seen.raw, status)
            except (Conflict, NotFound):
                again = _STATUS_DELAY_SECONDS
        return again
