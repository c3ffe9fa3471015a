"""Why a workload waits: one reason from the closed list, the numbers behind it, what would change it.

The command line, the operator's status and the dashboard render this; none decides anything anew.
"""

from collections.abc import Mapping

import msgspec

from clusterops.api.reasons import WaitReason
from clusterops.scheduling import flavors, quantities, quota
from clusterops.scheduling.activity import cluster_queue_activity
from clusterops.scheduling.cycle import lines
from clusterops.scheduling.flavors import Mode, Outlook
from clusterops.scheduling.nomination import Nomination, nominate, obstacle
from clusterops.scheduling.objects import ClusterQueue, FlavorResource, Workload
from clusterops.scheduling.quota import queue_key
from clusterops.scheduling.snapshot import Snapshot


class Holding(msgspec.Struct, frozen=True):
    """Who holds some of what is missing. `leaving`: evicted, its quota comes back soon."""

    namespace: str
    name: str
    queue: str
    priority: int
    amount: int
    leaving: bool


class Shortage(msgspec.Struct, frozen=True):
    """One flavor-resource that is short: `asked` by the workload, `free` now, `most` ever."""

    flavor: str
    resource: str
    asked: int
    free: int
    most: int


class Explanation(msgspec.Struct, frozen=True):
    """Why a workload waits. `position` counts from 0, None when it does not stand in the queue."""

    reason: WaitReason
    sentence: str
    position: int | None = None
    length: int = 0
    shortages: tuple[Shortage, ...] = ()
    holders: tuple[Holding, ...] = ()
    victims: tuple[str, ...] = ()
    would_help: str = ""


class NeverFits(msgspec.Struct, frozen=True):
    """A request above what its queue could ever have. `most` is the limit of `resource`."""

    queue: str
    resource: str
    asked: int
    most: int
    sentence: str


def never_fits(snapshot: Snapshot, queue: ClusterQueue, workload: Workload) -> NeverFits | None:
    """Why a workload could not run in a queue even if nothing else did; None when it could."""
    empty = msgspec.structs.replace(snapshot, usage=quota.EMPTY)
    least = [pods.least for pods in workload.pod_sets]
    alone = flavors.assign(
        empty, queue, workload, lambda *_: (Outlook.NO_CANDIDATES, 0), counts=least
    )
    if alone.mode is not Mode.NO_FIT:
        return None
    for resource, asked in _totals(queue, workload).items():
        most = _most(empty, queue, resource)
        if asked > most:
            show = quantities.show
            return NeverFits(
                queue.name,
                resource,
                asked,
                most,
                f"it asks for {show(resource, asked)} {resource}, but ClusterQueue {queue.name} "
                f"can never have more than {show(resource, most)}",
            )
    reason = alone.message or "it has no pods"
    return NeverFits(
        queue.name, "", 0, 0, f"no flavor of ClusterQueue {queue.name} suits it: {reason}"
    )


def explain(snapshot: Snapshot, workload: Workload, now: float) -> Explanation:
    """Why a workload waits at this moment."""
    if workload.holds_quota or workload.finished:
        return Explanation(WaitReason.NONE, "it does not wait for quota")
    outside = _outside_the_queue(workload, now)
    if outside is not None:
        return outside
    local = snapshot.local_queues.get((workload.namespace, workload.queue))
    if local is None:
        return Explanation(
            WaitReason.QUEUE_NOT_FOUND,
            f"LocalQueue {workload.namespace}/{workload.queue} doesn't exist",
            would_help=f"create the LocalQueue {workload.queue}, or submit to one that exists",
        )
    queue = snapshot.queues.get(local.cluster_queue)
    if queue is None:
        return Explanation(
            WaitReason.QUEUE_NOT_FOUND,
            f"ClusterQueue {local.cluster_queue}, to which LocalQueue {local.name} leads, doesn't exist",
            would_help=f"create the ClusterQueue {local.cluster_queue}",
        )
    activity = cluster_queue_activity(snapshot, queue)
    if local.stop != "None" or not activity.active:
        what = f"LocalQueue {local.name} is stopped" if local.stop != "None" else activity.message
        return Explanation(
            WaitReason.QUEUE_STOPPED, what, would_help="an administrator starts the queue again"
        )
    return _in_the_queue(snapshot, queue, workload, now)


def _outside_the_queue(workload: Workload, now: float) -> Explanation | None:
    """What keeps a workload from being considered at all."""
    if not workload.active:
        return Explanation(
            WaitReason.SUSPENDED, "it is deactivated", would_help="activate it again"
        )
    if workload.gates:
        return Explanation(
            WaitReason.CHECKPOINT_FIRST, f"its admission is gated by {workload.gates}"
        )
    if workload.on_hold:
        held = workload.conditions["QuotaReserved"].message or "its owner keeps it out of the queue"
        return Explanation(WaitReason.BACKING_OFF, held)
    if workload.requeue_at is not None and workload.requeue_at > now:
        left = int(workload.requeue_at - now)
        return Explanation(WaitReason.BACKING_OFF, f"it is put back into the queue in {left} s")
    requeued = workload.conditions.get("Requeued")
    if requeued is not None and not requeued.true:
        return Explanation(WaitReason.BACKING_OFF, requeued.message or requeued.reason)
    return None


def _in_the_queue(
    snapshot: Snapshot, queue: ClusterQueue, workload: Workload, now: float
) -> Explanation:
    blocked, _ = obstacle(snapshot, queue, workload)
    if blocked:
        return Explanation(WaitReason.NEVER_FITS, blocked)
    impossible = never_fits(snapshot, queue, workload)
    if impossible is not None:
        return Explanation(
            WaitReason.NEVER_FITS,
            impossible.sentence,
            would_help="ask for less, or raise the queue's quota or borrowing limit",
        )
    line = [each.uid for each in lines(snapshot, now).get(queue.name, [])]
    position = line.index(workload.uid) if workload.uid in line else None
    nomination = nominate(snapshot, queue, workload)
    shortages = _shortages(snapshot, queue, nomination)
    place = "" if position is None else f", place {position + 1} of {len(line)} in {queue.name}"
    if nomination.targets:
        names = ", ".join(
            f"{target.workload.namespace}/{target.workload.name}" for target in nomination.targets
        )
        reason, sentence = (
            WaitReason.WAITING_FOR_PREEMPTION,
            f"it waits for {names} to save and leave{place}",
        )
        help_text = "it starts when they have given their quota back"
    elif nomination.assignment.mode is Mode.FIT:
        reason = WaitReason.WAITING_FOR_QUOTA
        sentence = f"it would fit, but others are before it{place}"
        help_text = "it starts when those before it have started or left the queue"
        if position == 0:
            sentence, help_text = f"it fits, and its turn is next{place}", ""
    else:
        reason = WaitReason.WAITING_FOR_QUOTA
        sentence = f"{nomination.assignment.message}{place}"
        help_text = _what_would_help(shortages)
    return Explanation(
        reason,
        sentence,
        position,
        len(line),
        shortages,
        _holders(snapshot, queue, shortages),
        tuple(sorted(target.workload.uid for target in nomination.targets)),
        help_text,
    )


def _totals(queue: ClusterQueue, workload: Workload) -> dict[str, int]:
    """All that the smallest admissible form of a workload asks for."""
    totals: dict[str, int] = {}
    for pods in workload.pod_sets:
        for resource, amount in flavors.requests_of(queue, pods, pods.least).items():
            totals[resource] = totals.get(resource, 0) + amount
    return totals


def _most(snapshot: Snapshot, queue: ClusterQueue, resource: str) -> int:
    """The most of a resource that one flavor could ever give a queue."""
    group = queue.group_of(resource)
    if group is None:
        return 0
    key = queue_key(queue.name)
    return max(
        snapshot.tree.potential(key, FlavorResource(flavor, resource)) for flavor in group.flavors
    )


def _shortages(
    snapshot: Snapshot, queue: ClusterQueue, nomination: Nomination
) -> tuple[Shortage, ...]:
    """The flavor-resources of which less is free than asked, over all flavors that could do."""
    key, found = queue_key(queue.name), []
    for resource, asked in sorted(_totals(queue, nomination.workload).items()):
        group = queue.group_of(resource)
        for flavor in group.flavors if group is not None else ():
            unit = FlavorResource(flavor, resource)
            free = snapshot.tree.available(snapshot.usage, key, unit)
            most = snapshot.tree.potential(key, unit)
            if free < asked <= most:
                found.append(Shortage(flavor, resource, asked, free, most))
    return tuple(found)


def _holders(
    snapshot: Snapshot, queue: ClusterQueue, shortages: tuple[Shortage, ...]
) -> tuple[Holding, ...]:
    """Who holds what is short, in all queues of the tree, the largest first."""
    units = {FlavorResource(short.flavor, short.resource) for short in shortages}
    root = snapshot.tree.root(queue_key(queue.name))
    found = [
        Holding(
            holder.workload.namespace,
            holder.workload.name,
            name,
            holder.workload.effective_priority,
            held,
            holder.workload.evicted,
        )
        for name, holders in snapshot.holders.items()
        if name in snapshot.queues and snapshot.tree.root(queue_key(name)) == root
        for holder in holders.values()
        if (held := _held(holder.amounts, units))
    ]
    return tuple(sorted(found, key=lambda each: (-each.amount, each.namespace, each.name)))


def _held(amounts: Mapping[FlavorResource, int], units: set[FlavorResource]) -> int:
    return sum(amount for unit, amount in amounts.items() if unit in units)


def _what_would_help(shortages: tuple[Shortage, ...]) -> str:
    if not shortages:
        return "quota that becomes free, or a higher priority"
    least = min(shortages, key=lambda short: (short.asked - short.free, short.flavor))
    missing = quantities.show(least.resource, least.asked - least.free)
    return (
        f"it starts when {missing} more {least.resource} of flavor {least.flavor} becomes free; "
        "a higher priority could preempt others where the queue allows it"
    )
