"""Whether a ClusterQueue or LocalQueue admits anything, and if not, why: Kueue's Active condition."""

import msgspec

from clusterops.scheduling.objects import ClusterQueue, LocalQueue
from clusterops.scheduling.snapshot import Snapshot


class Activity(msgspec.Struct, frozen=True):
    """An Active condition in the making."""

    active: bool
    reason: str
    message: str


def cluster_queue_activity(snapshot: Snapshot, queue: ClusterQueue) -> Activity:
    """Active unless stopped, terminating, in a cycle of cohorts, or pointing at what is not there."""
    if queue.terminating:
        return Activity(
            False, "Terminating", "Can't admit new workloads; clusterQueue is terminating"
        )
    reasons: list[tuple[str, str]] = []
    if queue.stop != "None":
        reasons.append(("Stopped", "is stopped"))
    missing = [
        flavor
        for group in queue.groups
        for flavor in group.flavors
        if flavor not in snapshot.flavors
    ]
    if missing:
        names = ",".join(missing)
        reasons.append(("FlavorNotFound", f"references missing ResourceFlavor(s): {names}"))
    unknown = [check for check in queue.admission_checks if check not in snapshot.checks]
    if unknown:
        names = ",".join(unknown)
        reasons.append(("AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {names}"))
    idle = [check for check in queue.admission_checks if snapshot.checks.get(check) is False]
    if idle:
        names = ",".join(idle)
        reasons.append(
            ("AdmissionCheckInactive", f"references inactive AdmissionCheck(s): {names}")
        )
    if queue.name in snapshot.tree.broken:
        reasons.append(("CohortCycle", f"is in a cycle of cohorts: {queue.cohort}"))
    if not reasons:
        return Activity(True, "Ready", "Can admit new workloads")
    message = ", ".join(text for _, text in reasons)
    return Activity(False, reasons[0][0], f"Can't admit new workloads: {message}.")


def local_queue_activity(snapshot: Snapshot, local: LocalQueue) -> Activity:
    """Active unless it or its ClusterQueue is stopped, missing or inactive."""
    if local.stop != "None":
        return Activity(False, "Stopped", "LocalQueue is stopped")
    queue = snapshot.queues.get(local.cluster_queue)
    if queue is None:
        return Activity(
            False, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue"
        )
    if not cluster_queue_activity(snapshot, queue).active:
        return Activity(
            False, "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue"
        )
    return Activity(True, "Ready", "Can submit new workloads to localQueue")
