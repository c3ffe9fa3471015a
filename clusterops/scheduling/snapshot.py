"""Everything a decision reads, consistent and immutable: queues, quota, usage, workloads.

`Snapshot.without(workload)` and friends answer "what if" with another snapshot.
"""

from collections.abc import Iterable, Mapping

import msgspec

from clusterops.scheduling import quota
from clusterops.scheduling.objects import (
    Admission,
    Amounts,
    ClusterQueue,
    Cohort,
    Condition,
    FlavorResource,
    LocalQueue,
    ResourceFlavor,
    SelectorTerm,
    Workload,
)
from clusterops.scheduling.quota import QuotaTree, Usage, queue_key


class Holder(msgspec.Struct, frozen=True):
    """A workload that holds quota: what it holds, and its place among those to be preempted.

    `rank` orders by: evicted already, lower priority, newest reservation, uid.
    """

    workload: Workload
    amounts: Amounts
    rank: tuple[bool, int, float, str]


def holder(workload: Workload) -> Holder:
    """What decisions need of a workload that holds quota."""
    since = workload.conditions["QuotaReserved"].since
    rank = (not workload.evicted, workload.effective_priority, -since, workload.uid)
    return Holder(workload, workload.usage(), rank)


_NOBODY: Mapping[str, Holder] = {}


class Snapshot(msgspec.Struct, frozen=True):
    """The cluster's queues at one moment.

    `holders`: by ClusterQueue, the workloads whose reservation counts, by uid. `pending`: all others
    that are not finished, by uid. `checks`: AdmissionChecks by name, True when active. `namespaces`: labels by name, None when the caller does not know them
    (then every namespace matches).
    """

    queues: Mapping[str, ClusterQueue]
    tree: QuotaTree
    usage: Usage
    flavors: Mapping[str, ResourceFlavor]
    local_queues: Mapping[tuple[str, str], LocalQueue]
    holders: Mapping[str, Mapping[str, Holder]]
    pending: Mapping[str, Workload]
    checks: Mapping[str, bool] = {}
    namespaces: Mapping[str, Mapping[str, str]] | None = None

    def holding(self, queue: str) -> Mapping[str, Holder]:
        """Who holds quota of a ClusterQueue, by uid."""
        return self.holders.get(queue, _NOBODY)

    def running(self, queue: str) -> list[Workload]:
        """The workloads that hold quota of a ClusterQueue, by uid."""
        return [held.workload for held in self.holding(queue).values()]

    def without(self, workload: Workload) -> "Snapshot":
        """The snapshot as if this holder had given its quota back (and were gone)."""
        assert workload.admission is not None
        queue = workload.admission.cluster_queue
        rest = {uid: held for uid, held in self.holding(queue).items() if uid != workload.uid}
        return msgspec.structs.replace(
            self,
            holders={**self.holders, queue: rest},
            usage=self._less(queue, self.holding(queue)[workload.uid].amounts),
        )

    def admitting(self, workload: Workload, admission: Admission, now: float) -> "Snapshot":
        """The snapshot as if a workload held this reservation since `now`.

        It is not taken out of `pending`: see `without_pending`, for many at a time.
        """
        queue = admission.cluster_queue
        admitted = msgspec.structs.replace(
            workload,
            admission=admission,
            conditions={
                **workload.conditions,
                "QuotaReserved": Condition(True, "QuotaReserved", "", now),
                "Evicted": Condition(False, "QuotaReserved", "", now),
            },
        )
        held = holder(admitted)
        return msgspec.structs.replace(
            self,
            holders={**self.holders, queue: {**self.holding(queue), workload.uid: held}},
            usage=self.tree.add(self.usage, queue_key(queue), held.amounts),
        )

    def without_pending(self, uids: Iterable[str]) -> "Snapshot":
        """The snapshot in which these wait no longer."""
        gone = frozenset(uids)
        rest = {uid: each for uid, each in self.pending.items() if uid not in gone}
        return msgspec.structs.replace(self, pending=rest)

    def evicting(self, workload: Workload, now: float) -> "Snapshot":
        """The snapshot as if a holder were marked evicted; it still holds its quota."""
        assert workload.admission is not None
        queue = workload.admission.cluster_queue
        marked = msgspec.structs.replace(
            workload,
            conditions={**workload.conditions, "Evicted": Condition(True, "Preempted", "", now)},
        )
        held = {**self.holding(queue), workload.uid: holder(marked)}
        return msgspec.structs.replace(self, holders={**self.holders, queue: held})

    def using(self, queue: str, amounts: Amounts) -> "Snapshot":
        """The snapshot with more quota of a queue in use, by nobody in particular."""
        usage = self.tree.add(self.usage, queue_key(queue), amounts)
        return msgspec.structs.replace(self, usage=usage)

    def queue_of(self, workload: Workload) -> str:
        """The ClusterQueue a workload waits in, empty when its LocalQueue does not exist."""
        local = self.local_queues.get((workload.namespace, workload.queue))
        return local.cluster_queue if local is not None else ""

    def _less(self, queue: str, amounts: Amounts) -> Usage:
        key = queue_key(queue)
        return self.tree.remove(self.usage, key, amounts) if key in self.tree.nodes else self.usage


def build(
    *,
    cluster_queues: Iterable[ClusterQueue],
    cohorts: Iterable[Cohort] = (),
    flavors: Iterable[ResourceFlavor] = (),
    local_queues: Iterable[LocalQueue] = (),
    workloads: Iterable[Workload] = (),
    checks: Mapping[str, bool] | None = None,
    namespaces: Mapping[str, Mapping[str, str]] | None = None,
) -> Snapshot:
    """A snapshot of these objects. The order they come in makes no difference."""
    queues = {queue.name: queue for queue in sorted(cluster_queues, key=lambda q: q.name)}
    tree = quota.build(queues.values(), cohorts)
    holders: dict[str, dict[str, Holder]] = {}
    pending: dict[str, Workload] = {}
    held: dict[str, dict[FlavorResource, int]] = {}
    for workload in sorted(workloads, key=lambda each: (each.uid, each.key)):
        if not workload.holds_quota:
            if not workload.finished:
                pending[workload.uid] = workload
            continue
        assert workload.admission is not None
        queue = workload.admission.cluster_queue
        holds = holder(workload)
        holders.setdefault(queue, {})[workload.uid] = holds
        total = held.setdefault(queue, {})
        for unit, amount in holds.amounts.items():
            total[unit] = total.get(unit, 0) + amount
    usage = quota.EMPTY
    for queue in sorted(held):
        if queue in queues:
            usage = tree.add(usage, queue_key(queue), held[queue])
    return Snapshot(
        queues=queues,
        tree=tree,
        usage=usage,
        flavors={flavor.name: flavor for flavor in flavors},
        local_queues={(local.namespace, local.name): local for local in local_queues},
        holders=holders,
        pending=pending,
        checks=dict(checks or {}),
        namespaces=namespaces,
    )


def matches(terms: Iterable[SelectorTerm], labels: Mapping[str, str]) -> bool:
    """True when labels satisfy all terms of a selector."""
    return all(_holds(term, labels) for term in terms)


def _holds(term: SelectorTerm, labels: Mapping[str, str]) -> bool:
    value = labels.get(term.key)
    match term.operator:
        case "In":
            return value is not None and value in term.values
        case "NotIn":
            return value is None or value not in term.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(term, value)
        case _:
            return False


def _compares(term: SelectorTerm, value: str | None) -> bool:
    """Gt and Lt compare integers; what is none never matches."""
    try:
        have, bound = int(value or ""), int(term.values[0])
    except (ValueError, IndexError):
        return False
    return have > bound if term.operator == "Gt" else have < bound
