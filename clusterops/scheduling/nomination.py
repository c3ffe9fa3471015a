"""What one head of a queue could be given at this moment: flavors, victims, perhaps fewer pods."""

from collections.abc import Sequence

import msgspec

from clusterops.scheduling import flavors, preemption
from clusterops.scheduling.flavors import Assignment, Mode, Progress
from clusterops.scheduling.objects import ClusterQueue, Workload
from clusterops.scheduling.preemption import Target
from clusterops.scheduling.snapshot import Snapshot, matches


class Nomination(msgspec.Struct, frozen=True):
    """A head with its assignment and the victims it would need."""

    workload: Workload
    queue: ClusterQueue
    assignment: Assignment
    targets: tuple[Target, ...] = ()


def obstacle(snapshot: Snapshot, queue: ClusterQueue, workload: Workload) -> tuple[str, bool]:
    """Why a head may not be considered at all, and whether its namespace is the reason."""
    if workload.defect:
        return workload.defect, False
    if snapshot.namespaces is not None:
        labels = snapshot.namespaces.get(workload.namespace)
        if labels is None:
            return f'workload namespace "{workload.namespace}" does not exist', False
        selector = queue.namespace_selector
        if selector is None or not matches(selector, labels):
            return "workload namespace doesn't match ClusterQueue selector", True
    return "", False


def nominate(
    snapshot: Snapshot, queue: ClusterQueue, workload: Workload, progress: Progress = ()
) -> Nomination:
    """The best that can be had: all pods, else all pods after preemption, else as many as fit."""
    full = _attempt(snapshot, queue, workload, None, progress)
    if full.assignment.mode is Mode.FIT or full.targets:
        return full
    fewer = _fewer_pods(snapshot, queue, workload, progress)
    return fewer or full


def _attempt(
    snapshot: Snapshot,
    queue: ClusterQueue,
    workload: Workload,
    counts: Sequence[int] | None,
    progress: Progress,
) -> Nomination:
    victims = preemption.victim_finder(snapshot, queue, workload)
    oracle = preemption.oracle(snapshot, queue, victims)
    assignment = flavors.assign(snapshot, queue, workload, oracle, counts=counts, progress=progress)
    targets: tuple[Target, ...] = ()
    if assignment.mode is Mode.PREEMPT:
        targets = victims(assignment.needing_preemption, assignment.usage)
    return Nomination(workload, queue, assignment, targets)


def _fewer_pods(
    snapshot: Snapshot, queue: ClusterQueue, workload: Workload, progress: Progress
) -> Nomination | None:
    """The largest counts between minCount and count that can be had, all pod sets shrunk in step.

    Searched by halving, as if whatever fits also fit with fewer pods.
    """
    spare = [pods.count - pods.least for pods in workload.pod_sets]
    total = sum(spare)
    if total <= 0:
        return None

    def attempt(step: int) -> Nomination | None:
        counts = [
            pods.count - room * step // total
            for pods, room in zip(workload.pod_sets, spare, strict=True)
        ]
        tried = _attempt(snapshot, queue, workload, counts, progress)
        return tried if tried.assignment.mode is Mode.FIT or tried.targets else None

    low, high = 0, total + 1
    best: Nomination | None = None
    best_step = -1
    while low < high:
        middle = (low + high) // 2
        found = attempt(middle)
        if found is None:
            low = middle + 1
        else:
            best, best_step, high = found, middle, middle
    return best if best_step == low else None
