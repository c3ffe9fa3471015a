"""Whom a workload preempts: candidates, their order, and the smallest set that makes room.

The search takes candidates away in their order until the workload fits, then puts back, from the
last but one, whom it turns out not to need. Candidates are of three kinds: those over whom the
preemptor has the better claim by its place in the cohort tree, those of other queues it outranks,
and those of its own queue.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum

import msgspec

from clusterops.scheduling.flavors import Oracle, Outlook
from clusterops.scheduling.objects import (
    Amounts,
    ClusterQueue,
    FlavorResource,
    Policy,
    Workload,
)
from clusterops.scheduling.order import queue_timestamp
from clusterops.scheduling.quota import Node, QuotaTree, Usage, queue_key
from clusterops.scheduling.snapshot import Holder, Snapshot


class PreemptionReason(StrEnum):
    """Why a victim was chosen; the value is the reason of its Preempted condition."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"

    @property
    def words(self) -> str:
        """The reason as messages say it."""
        return _WORDS[self]


_WORDS = {
    PreemptionReason.IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    PreemptionReason.IN_COHORT_RECLAMATION: "reclamation within the cohort",
    PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING: (
        "reclamation within the cohort while borrowing"
    ),
}


class Target(msgspec.Struct, frozen=True):
    """A workload that has to go, and by which rule."""

    workload: Workload
    reason: PreemptionReason


class _Candidate(msgspec.Struct, frozen=True):
    """`common` is the lowest cohort above both queues; `needs_no_borrowing`: the preemptor must
    end up within its own quota for this one to go.
    """

    holder: Holder
    queue: str
    reason: PreemptionReason
    common: str = ""
    needs_no_borrowing: bool = False


# Finds the victims that make room for amounts, of which some need preemption.
Victims = Callable[[frozenset[FlavorResource], Amounts], tuple[Target, ...]]


def satisfies(policy: Policy, preemptor: Workload, candidate: Workload) -> bool:
    """True when a policy lets one workload preempt another."""
    lower = candidate.effective_priority < preemptor.effective_priority
    if policy == "LowerPriority":
        return lower
    if policy == "LowerOrNewerEqualPriority":
        newer_equal = (
            candidate.effective_priority == preemptor.effective_priority
            and queue_timestamp(preemptor) < queue_timestamp(candidate)
        )
        return lower or newer_equal
    return policy == "Any"


def message(preemptor: Workload, target: Target, tree: QuotaTree, queue: str) -> str:
    """What the victim's conditions say, in Kueue's words."""
    victim_queue = target.workload.admission.cluster_queue if target.workload.admission else ""
    return (
        f"Preempted to accommodate a workload (UID: {preemptor.uid or 'UNKNOWN'}, "
        f"JobUID: {preemptor.job_uid or 'UNKNOWN'}) due to {target.reason.words}; "
        f"preemptor path: {tree.path(queue)}; preemptee path: {tree.path(victim_queue)}"
    )


def find_targets(
    snapshot: Snapshot,
    queue: ClusterQueue,
    preemptor: Workload,
    scarce: frozenset[FlavorResource],
    wanted: Amounts,
) -> tuple[Target, ...]:
    """The victims that make room for `wanted`, of which `scarce` needs preemption; none if none do."""
    search = _Search(snapshot, queue, preemptor, scarce, wanted)
    for may_borrow in search.attempts():
        targets = search.run(may_borrow)
        if targets:
            return targets
    return ()


def victim_finder(snapshot: Snapshot, queue: ClusterQueue, preemptor: Workload) -> Victims:
    """`find_targets` for one preemptor, which remembers its answers."""
    known: dict[tuple[object, ...], tuple[Target, ...]] = {}

    def find(scarce: frozenset[FlavorResource], wanted: Amounts) -> tuple[Target, ...]:
        question = (scarce, tuple(sorted(wanted.items())))
        if question not in known:
            known[question] = find_targets(snapshot, queue, preemptor, scarce, wanted)
        return known[question]

    return find


def oracle(snapshot: Snapshot, queue: ClusterQueue, victims: Victims) -> Oracle:
    """What preemption could do for one flavor-resource alone, for the choice between flavors."""

    def ask(unit: FlavorResource, amount: int) -> tuple[Outlook, int]:
        targets = victims(frozenset({unit}), {unit: amount})
        after = snapshot
        for target in targets:
            after = after.without(target.workload)
        borrowing, _ = after.tree.reach(after.usage, queue_key(queue.name), unit, amount)
        if not targets:
            return Outlook.NO_CANDIDATES, borrowing
        own = snapshot.holding(queue.name)
        if any(target.workload.uid in own for target in targets):
            return Outlook.PREEMPT, borrowing
        return Outlook.RECLAIM, borrowing

    return ask


class _Search:
    """One search for victims of one preemptor. Usage is a value: trying changes nothing."""

    def __init__(
        self,
        snapshot: Snapshot,
        queue: ClusterQueue,
        preemptor: Workload,
        scarce: frozenset[FlavorResource],
        wanted: Amounts,
    ) -> None:
        self.snapshot = snapshot
        self.tree = snapshot.tree
        self.queue = queue
        self.key = queue_key(queue.name)
        self.preemptor = preemptor
        self.scarce = scarce
        self.wanted = wanted
        self.own = list(self._from_own_queue())
        self.better_claim, self.outranked = self._from_cohort()
        self.walk: list[_Candidate] | None = None

    def attempts(self) -> tuple[bool, ...]:
        """Whether the preemptor may end up borrowing, in the order to try."""
        forbidden = self.queue.preemption.borrow_within_cohort == "Never"
        others = bool(self.better_claim or self.outranked)
        if not others or (forbidden and not self._under_nominal()):
            return (True,)
        if forbidden and not self.better_claim:
            return (False, True)
        return (True, False)

    def run(self, may_borrow: bool) -> tuple[Target, ...]:
        """Takes candidates away until the workload fits; the empty tuple when it never does."""
        usage = self.snapshot.usage
        if not self._fits(self._without_all(usage, may_borrow), may_borrow):
            return ()
        if self.walk is None:
            self.walk = self._ordered()
        taken: list[_Candidate] = []
        for candidate in self.walk:
            if may_borrow and candidate.needs_no_borrowing:
                continue
            if not self._still_valid(candidate, usage):
                continue
            usage = self._less(usage, candidate)
            taken.append(candidate)
            if self._fits(usage, may_borrow):
                kept = self._fill_back(taken, usage, may_borrow)
                return tuple(Target(each.holder.workload, each.reason) for each in kept)
        return ()

    def _fill_back(
        self, taken: list[_Candidate], usage: Usage, may_borrow: bool
    ) -> list[_Candidate]:
        """Whom of those taken it really needs; the last one taken always."""
        kept = [taken[-1]]
        for candidate in reversed(taken[:-1]):
            back = self.tree.add(usage, queue_key(candidate.queue), candidate.holder.amounts)
            if self._fits(back, may_borrow):
                usage = back
            else:
                kept.append(candidate)
        kept.reverse()
        return kept

    def _ordered(self) -> list[_Candidate]:
        """All candidates: those evicted already first, then by claim; in each group by rank."""
        groups = [
            sorted(group, key=lambda each: each.holder.rank)
            for group in (self.better_claim, self.outranked, self.own)
        ]
        evicted = [each for group in groups for each in group if each.holder.workload.evicted]
        others = [each for group in groups for each in group if not each.holder.workload.evicted]
        return evicted + others

    def _from_own_queue(self) -> Iterable[_Candidate]:
        policy = self.queue.preemption.within_cluster_queue
        if policy == "Never":
            return
        for holder in self._users(self.queue.name):
            if satisfies(policy, self.preemptor, holder.workload):
                yield _Candidate(holder, self.queue.name, PreemptionReason.IN_CLUSTER_QUEUE)

    def _from_cohort(self) -> tuple[list[_Candidate], list[_Candidate]]:
        """Candidates of other queues: those it has the better claim over, those it only outranks.

        Going up, the first subtree whose unused quota covers the request gives the better claim to
        everything found from there on: that quota is the preemptor's before it is theirs.
        """
        better: list[_Candidate] = []
        outranked: list[_Candidate] = []
        if self.queue.preemption.reclaim_within_cohort == "Never":
            return better, outranked
        fits, remaining = self._covers(self.tree.nodes[self.key], self.wanted)
        done = ""
        for cohort in self.tree.ancestors(self.key):
            into = better if fits else outranked
            into.extend(self._below(cohort, cohort.key, done, better_claim=fits))
            covered, remaining = self._covers(cohort, remaining)
            fits = fits or covered
            done = cohort.key
        return better, outranked

    def _covers(self, node: Node, wanted: Amounts) -> tuple[bool, dict[FlavorResource, int]]:
        """Whether a subtree's unused quota covers amounts, and what is left to ask of its parent."""
        usage = self.snapshot.usage
        fits = not any(
            self.tree.exceeds(usage, node.key, unit, amount) for unit, amount in wanted.items()
        )
        left = {
            unit: max(0, amount - self.tree.local_available(usage, node.key, unit))
            for unit, amount in wanted.items()
        }
        return fits, left

    def _below(
        self, cohort: Node, common: str, done: str, *, better_claim: bool
    ) -> Iterable[_Candidate]:
        """Candidates under a cohort; subtrees within their quota owe nobody anything."""
        usage = self.snapshot.usage
        for key in cohort.cohorts:
            if key != done and not self.tree.within(usage, key, self.scarce):
                child = self.tree.nodes[key]
                yield from self._below(child, common, done, better_claim=better_claim)
        for key in cohort.queues:
            if key == self.key or self.tree.within(usage, key, self.scarce):
                continue
            name = self.tree.nodes[key].name
            for holder in self._users(name):
                policy = self.queue.preemption.reclaim_within_cohort
                if satisfies(policy, self.preemptor, holder.workload):
                    yield self._reclaimable(holder, name, common, better_claim)

    def _reclaimable(
        self, holder: Holder, queue: str, common: str, better_claim: bool
    ) -> _Candidate:
        if better_claim:
            reason = PreemptionReason.IN_COHORT_RECLAMATION
            return _Candidate(holder, queue, reason, common)
        policy = self.queue.preemption
        threshold = policy.borrow_threshold
        may_go_while_borrowing = (
            policy.borrow_within_cohort != "Never"
            and holder.workload.effective_priority < self.preemptor.effective_priority
            and (threshold is None or holder.workload.effective_priority <= threshold)
        )
        if may_go_while_borrowing:
            reason = PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
            return _Candidate(holder, queue, reason, common)
        reason = PreemptionReason.IN_COHORT_RECLAMATION
        return _Candidate(holder, queue, reason, common, needs_no_borrowing=True)

    def _users(self, queue: str) -> Iterable[Holder]:
        """Holders of a queue that use something scarce."""
        for holder in self.snapshot.holding(queue).values():
            if not self.scarce.isdisjoint(holder.amounts):
                yield holder

    def _under_nominal(self) -> bool:
        usage = self.snapshot.usage
        return all(
            usage.at(self.key, unit) < self.tree.quota(self.key, unit).nominal
            for unit in self.scarce
        )

    def _still_valid(self, candidate: _Candidate, usage: Usage) -> bool:
        """False once the candidate's queue, or a cohort below the common one, owes nothing more."""
        if candidate.queue == self.queue.name:
            return True
        key = queue_key(candidate.queue)
        if self.tree.within(usage, key, self.scarce):
            return False
        for ancestor in self.tree.ancestors(key):
            if ancestor.key == candidate.common:
                break
            if self.tree.within(usage, ancestor.key, self.scarce):
                return False
        return True

    def _fits(self, usage: Usage, may_borrow: bool) -> bool:
        for unit, amount in self.wanted.items():
            if not may_borrow and self.tree.exceeds(usage, self.key, unit, amount):
                return False
            if amount > self.tree.available(usage, self.key, unit):
                return False
        return True

    def _less(self, usage: Usage, candidate: _Candidate) -> Usage:
        return self.tree.remove(usage, queue_key(candidate.queue), candidate.holder.amounts)

    def _without_all(self, usage: Usage, may_borrow: bool) -> Usage:
        """Usage if every candidate went: if that is not enough, no choice among them is."""
        totals: dict[str, dict[FlavorResource, int]] = {}
        for candidate in (*self.better_claim, *self.outranked, *self.own):
            if may_borrow and candidate.needs_no_borrowing:
                continue
            total = totals.setdefault(candidate.queue, {})
            for unit, amount in candidate.holder.amounts.items():
                total[unit] = total.get(unit, 0) + amount
        for queue in sorted(totals):
            usage = self.tree.remove(usage, queue_key(queue), totals[queue])
        return usage
