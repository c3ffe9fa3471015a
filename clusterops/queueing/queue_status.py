"""What the statuses of ClusterQueues and LocalQueues say: who waits, who holds what, whether active.

Computed from the same snapshot that decisions are made on, pure; written only where it differs.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from clusterops.queueing import transitions
from clusterops.scheduling import quantities
from clusterops.scheduling.activity import (
    Activity,
    cluster_queue_activity,
    local_queue_activity,
)
from clusterops.scheduling.objects import (
    Amounts,
    ClusterQueue,
    FlavorResource,
    LocalQueue,
    Workload,
)
from clusterops.scheduling.quota import queue_key
from clusterops.scheduling.snapshot import Snapshot

Status = Mapping[str, Any]


class Census:
    """The workloads of a snapshot counted once, for all queues."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._waiting: dict[tuple[str, str], int] = {}
        for workload in snapshot.pending.values():
            # Gated, held and deactivated ones are in no queue; those in back-off are.
            if workload.active and not (workload.gates or workload.on_hold or workload.reserved):
                door = (workload.namespace, workload.queue)
                self._waiting[door] = self._waiting.get(door, 0) + 1

    def waiting_in(self, local: LocalQueue) -> int:
        """How many wait in a LocalQueue; a stopped one has nobody waiting in it."""
        if local.stop != "None":
            return 0
        return self._waiting.get((local.namespace, local.name), 0)

    def waiting_for(self, queue: ClusterQueue) -> int:
        """How many wait for a ClusterQueue through all its LocalQueues."""
        return sum(
            self.waiting_in(local)
            for local in self.snapshot.local_queues.values()
            if local.cluster_queue == queue.name
        )


def cluster_queue_status(
    census: Census, queue: ClusterQueue, before: Status, *, generation: int, now: float
) -> dict[str, Any]:
    """The status of a ClusterQueue."""
    snapshot = census.snapshot
    holders = snapshot.running(queue.name)
    admitted = [workload for workload in holders if workload.admitted]
    borrowed = {
        unit: max(0, snapshot.usage.at(queue_key(queue.name), unit) - quota.nominal)
        for unit, quota in queue.quotas.items()
    }
    status = {
        **before,
        "pendingWorkloads": census.waiting_for(queue),
        "reservingWorkloads": len(holders),
        "admittedWorkloads": len(admitted),
        "flavorsReservation": _usage(queue, _total(holders), borrowed),
        "flavorsUsage": _usage(queue, _total(admitted), borrowed),
    }
    return _with_active(status, cluster_queue_activity(snapshot, queue), generation, now)


def local_queue_status(
    census: Census, local: LocalQueue, before: Status, *, generation: int, now: float
) -> dict[str, Any]:
    """The status of a LocalQueue."""
    snapshot = census.snapshot
    holders = [
        workload
        for workload in snapshot.running(local.cluster_queue)
        if (workload.namespace, workload.queue) == (local.namespace, local.name)
    ]
    admitted = [workload for workload in holders if workload.admitted]
    status = {
        **before,
        "pendingWorkloads": census.waiting_in(local),
        "reservingWorkloads": len(holders),
        "admittedWorkloads": len(admitted),
    }
    queue = snapshot.queues.get(local.cluster_queue)
    if queue is not None:
        status["flavorsReservation"] = _usage(queue, _total(holders), None)
        status["flavorsUsage"] = _usage(queue, _total(admitted), None)
    return _with_active(status, local_queue_activity(snapshot, local), generation, now)


def _total(workloads: Iterable[Workload]) -> dict[FlavorResource, int]:
    total: dict[FlavorResource, int] = {}
    for workload in workloads:
        for unit, amount in workload.usage().items():
            total[unit] = total.get(unit, 0) + amount
    return total


def _usage(queue: ClusterQueue, total: Amounts, borrowed: Amounts | None) -> list[dict[str, Any]]:
    """Amounts by flavor in the queue's own order; `borrowed` only for ClusterQueues."""
    usage = []
    for group in queue.groups:
        for flavor in group.flavors:
            resources = []
            for resource in group.covered:
                unit = FlavorResource(flavor, resource)
                entry = {"name": resource, "total": quantities.show(resource, total.get(unit, 0))}
                if borrowed is not None:
                    entry["borrowed"] = quantities.show(resource, borrowed.get(unit, 0))
                resources.append(entry)
            usage.append({"name": flavor, "resources": resources})
    return usage


def _with_active(status: Status, activity: Activity, generation: int, now: float) -> dict[str, Any]:
    before = transitions.condition(status, "Active")
    same = before is not None and (
        before["status"] == ("True" if activity.active else "False")
        and before.get("reason") == activity.reason
        and before.get("message") == activity.message
        and before.get("observedGeneration") == generation
    )
    if same:
        return dict(status)
    return transitions.with_condition(
        status,
        "Active",
        activity.active,
        activity.reason,
        activity.message,
        generation=generation,
        now=now,
    )
