"""Who comes first: in one queue, and among the heads of all queues.

Every order is total: the uid decides between equals.
"""

from collections.abc import Iterable

from clusterops.scheduling.objects import Workload
from clusterops.scheduling.snapshot import Snapshot

_PREEMPTOR = "workload (UID: "


def queue_timestamp(workload: Workload) -> float:
    """Since when a workload waits, for the order: its creation, unless it was put back for cause.

    A preempted workload keeps its creation time and returns to the front of its priority; one that
    was evicted because its pods never became ready, or by an admission check, goes to the back.
    """
    evicted = workload.conditions.get("Evicted")
    if evicted is not None and evicted.true and evicted.reason in _BACK_OF_QUEUE:
        return evicted.since
    return workload.created


_BACK_OF_QUEUE = ("PodsReadyTimeout", "AdmissionCheck")


def pending_order(workloads: Iterable[Workload]) -> list[Workload]:
    """The waiting workloads of one queue: higher priority, then longer waiting."""
    return sorted(
        workloads,
        key=lambda each: (-each.effective_priority, queue_timestamp(each), each.uid),
    )


def admissible(workload: Workload, now: float) -> bool:
    """True when a pending workload may be considered at all: not gated, held, inactive or backed off."""
    if workload.finished or workload.reserved or workload.terminating or not workload.active:
        return False
    if workload.admitted:
        # Its owner gave quota back but left Admitted standing: Kueue never queues it again.
        return False
    if workload.gates or workload.on_hold or workload.is_true("WaitingForReplacementPods"):
        return False
    requeued = workload.conditions.get("Requeued")
    if requeued is not None and not requeued.true:
        return False
    return workload.requeue_at is None or workload.requeue_at <= now


def preemptor_uid(victim: Workload) -> str:
    """The uid of the workload a victim was preempted for, from its Preempted condition."""
    preempted = victim.conditions.get("Preempted")
    if preempted is None or not preempted.true:
        return ""
    _, found, rest = preempted.message.partition(_PREEMPTOR)
    return rest.partition(",")[0] if found else ""


def sticky_preemptors(snapshot: Snapshot) -> dict[str, str]:
    """By queue, the uid of the waiting workload for which others were preempted.

    It stays at the head of a BestEffortFIFO queue until it is admitted, whatever arrives meanwhile;
    StrictFIFO queues have no such exception. Read from the victims' conditions, so a restart in the
    middle of a preemption changes nothing.
    """
    since: dict[str, float] = {}
    for victim in _victims(snapshot):
        uid = preemptor_uid(victim)
        if uid:
            at = victim.conditions["Preempted"].since
            since[uid] = max(at, since.get(uid, at))
    chosen: dict[str, tuple[float, str]] = {}
    for workload in snapshot.pending.values():
        if workload.uid not in since:
            continue
        queue = snapshot.queues.get(snapshot.queue_of(workload))
        if queue is None or queue.strategy != "BestEffortFIFO":
            continue
        # A victim taken before this workload was last admitted or evicted itself belongs to an
        # earlier attempt; both change its Evicted condition.
        own = workload.conditions.get("Evicted")
        if own is not None and own.since > since[workload.uid]:
            continue
        candidate = (since[workload.uid], workload.uid)
        chosen[queue.name] = max(chosen.get(queue.name, candidate), candidate)
    return {name: uid for name, (_, uid) in chosen.items()}


def _victims(snapshot: Snapshot) -> Iterable[Workload]:
    for queue in sorted(snapshot.holders):
        yield from snapshot.running(queue)
    yield from snapshot.pending.values()


def cycle_order(workload: Workload, borrowing: int) -> tuple[int, int, float, str]:
    """The place of a head in one cycle: less borrowing, higher priority, longer waiting."""
    return (borrowing, -workload.effective_priority, queue_timestamp(workload), workload.uid)
