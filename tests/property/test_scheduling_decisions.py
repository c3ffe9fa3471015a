"""What holds for every decision, over generated cohorts, queues and workloads."""

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.scheduling_world import GPU, NOW, job, queue, running, transcript, world

from clusterops.scheduling import cycle, preemption
from clusterops.scheduling.decisions import Admit, Preempt, Wait
from clusterops.scheduling.objects import (
    Cohort,
    FlavorResource,
    Preemption,
    Quota,
    Workload,
)
from clusterops.scheduling.quota import queue_key
from clusterops.scheduling.snapshot import Snapshot

UNIT = FlavorResource("default", GPU)
QUEUES = ("a", "b", "c")

limits = st.none() | st.integers(0, 4)
quotas = st.builds(Quota, st.integers(0, 6), limits, limits)
policies = st.builds(
    Preemption,
    within_cluster_queue=st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
    reclaim_within_cohort=st.sampled_from(["Never", "LowerPriority", "Any"]),
    borrow_within_cohort=st.sampled_from(["Never", "LowerPriority"]),
    borrow_threshold=st.none() | st.integers(0, 3),
)


@st.composite
def worlds(draw: st.DrawFn, *, holders: int = 5, waiting: int = 4) -> Snapshot:
    """Three queues in a tree of two cohorts, with work that fits its quota running and more waiting."""
    cohorts = [
        Cohort("left", "root"),
        Cohort("root", quotas={UNIT: Quota(draw(st.integers(0, 3)))}),
    ]
    queues = [
        queue(
            name,
            draw(quotas),
            cohort=draw(st.sampled_from(["left", "root", ""])),
            preemption=draw(policies),
            strategy=draw(st.sampled_from(["BestEffortFIFO", "StrictFIFO"])),
        )
        for name in QUEUES
    ]
    where = world(queues, [], cohorts=cohorts)
    held: list[Workload] = []
    for number in range(draw(st.integers(0, holders))):
        name, gpus = draw(st.sampled_from(QUEUES)), draw(st.integers(1, 3))
        if gpus > where.tree.available(where.usage, queue_key(name), UNIT):
            continue
        workload = running(
            f"r{number}",
            gpus,
            queue=name,
            priority=draw(st.integers(0, 3)),
            since=draw(st.integers(1, 3)),
            created=draw(st.integers(0, 3)),
            evicted=draw(st.sampled_from(["", "", "uid-w0"])),
        )
        held.append(workload)
        where = world(queues, held, cohorts=cohorts)
    pending = [
        job(
            f"w{number}",
            draw(st.integers(0, 4)),
            queue=draw(st.sampled_from(QUEUES)),
            priority=draw(st.integers(0, 3)),
            created=draw(st.integers(0, 3)),
            pods=draw(st.integers(1, 2)),
            minimum=draw(st.none() | st.just(1)),
        )
        for number in range(draw(st.integers(1, waiting)))
    ]
    return world(queues, [*held, *pending], cohorts=cohorts)


def within_limits(where: Snapshot) -> bool:
    """True when no queue uses more than its quota, its loans and its borrowing limit allow."""
    tree, usage = where.tree, where.usage
    for key, node in tree.nodes.items():
        held, subtree = usage.at(key, UNIT), node.subtree.get(UNIT, 0)
        if node.parent is None and held > subtree:
            return False
        limit = tree.quota(key, UNIT).borrowing_limit
        if node.parent is not None and limit is not None and held > subtree + limit:
            return False
    return True


@given(worlds())
def test_quota_is_never_exceeded(where: Snapshot) -> None:
    assert within_limits(where)
    after = cycle.apply(where, cycle.decide(where, NOW), NOW)
    assert within_limits(after)


@given(worlds())
def test_nobody_of_higher_or_equal_priority_is_preempted_unless_the_policy_says_so(
    where: Snapshot,
) -> None:
    for decision in cycle.decide(where, NOW):
        if not isinstance(decision, Preempt):
            continue
        victim, preemptor = decision.victim, decision.preemptor
        policy = where.queues[where.queue_of(preemptor)].preemption
        assert victim.admission is not None
        own = victim.admission.cluster_queue == where.queue_of(preemptor)
        rule = policy.within_cluster_queue if own else policy.reclaim_within_cohort
        assert rule != "Never"
        if rule == "LowerPriority":
            assert victim.effective_priority < preemptor.effective_priority
        if rule == "LowerOrNewerEqualPriority":
            assert victim.effective_priority <= preemptor.effective_priority


@given(worlds())
def test_a_workload_gets_at_most_one_decision_of_each_kind(where: Snapshot) -> None:
    decisions = cycle.decide(where, NOW)
    for kind in (Admit, Wait):
        uids = [each.workload.uid for each in decisions if isinstance(each, kind)]
        assert len(uids) == len(set(uids))
    victims = [each.victim.uid for each in decisions if isinstance(each, Preempt)]
    assert len(victims) == len(set(victims))


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_makes_no_difference(where: Snapshot, chance: random.Random) -> None:
    workloads = [
        *where.pending.values(),
        *(w for name in where.holders for w in where.running(name)),
    ]
    queues = list(where.queues.values())
    chance.shuffle(workloads)
    chance.shuffle(queues)
    nodes = where.tree.nodes
    cohorts = [
        Cohort("left", "root"),
        Cohort("root", quotas=nodes["cohort/root"].quotas),
    ]
    assert transcript(world(queues, workloads, cohorts=cohorts)) == transcript(where)


@given(worlds())
def test_a_second_round_after_the_decisions_came_true_has_nothing_to_do(where: Snapshot) -> None:
    after = cycle.apply(where, cycle.decide(where, NOW), NOW)
    again = [each for each in cycle.decide(after, NOW) if not isinstance(each, Wait)]
    assert again == []


def release(where: Snapshot, workload: Workload) -> Snapshot:
    """What an owner does: gives the quota back and stays in the queue."""
    back = replace(
        workload,
        admission=None,
        conditions={
            name: condition
            for name, condition in workload.conditions.items()
            if name not in ("QuotaReserved", "Admitted")
        },
    )
    gone = where.without(workload)
    return replace(gone, pending={**gone.pending, back.uid: back})


@given(worlds())
@settings(max_examples=60)
def test_preempting_and_admitting_comes_to_an_end(where: Snapshot) -> None:
    """Victims release and queue again, as long as anything happens: this must not go on for ever."""
    for _ in range(60):
        decisions = cycle.decide(where, NOW)
        where = cycle.apply(where, decisions, NOW)
        evicted = [w for name in where.holders for w in where.running(name) if w.evicted]
        if not evicted and not any(isinstance(each, Admit) for each in decisions):
            return
        for workload in evicted:
            where = release(where, workload)
    raise AssertionError("still preempting after 60 rounds")


@st.composite
def searches(draw: st.DrawFn) -> tuple[Snapshot, Workload]:
    where = draw(worlds(holders=6, waiting=1))
    (workload,) = where.pending.values()
    return where, workload


def wanted(workload: Workload) -> dict[FlavorResource, int]:
    pods = workload.pod_sets[0]
    return {UNIT: pods.count * pods.requests[GPU]}


def fits_without(where: Snapshot, workload: Workload, gone: tuple[Workload, ...]) -> bool:
    for victim in gone:
        where = where.without(victim)
    key = queue_key(where.queue_of(workload))
    return where.tree.fits(where.usage, key, wanted(workload))


@given(searches())
def test_the_victims_make_room_and_none_of_them_could_stay(
    search: tuple[Snapshot, Workload],
) -> None:
    """Fill-back is minimal: with any one victim put back, the workload does not fit (within rules)."""
    where, workload = search
    own = where.queues[where.queue_of(workload)]
    targets = preemption.find_targets(where, own, workload, frozenset({UNIT}), wanted(workload))
    victims = tuple(target.workload for target in targets)
    if not victims:
        return
    assert fits_without(where, workload, victims)
    may_borrow = _borrows_after(where, workload, victims)
    for kept in victims[:-1]:
        rest = tuple(victim for victim in victims if victim is not kept)
        still_fits = fits_without(where, workload, rest)
        borrows = _borrows_after(where, workload, rest)
        # Putting one back may still leave room, but then only by borrowing where that is forbidden.
        assert not still_fits or (borrows and not may_borrow)


def _borrows_after(where: Snapshot, workload: Workload, gone: tuple[Workload, ...]) -> bool:
    for victim in gone:
        where = where.without(victim)
    key = queue_key(where.queue_of(workload))
    return where.tree.exceeds(where.usage, key, UNIT, wanted(workload)[UNIT])


@st.composite
def one_queue(draw: st.DrawFn) -> tuple[Snapshot, Workload]:
    """One queue without a cohort, full of lower and higher work: small enough to try every choice."""
    held = [
        running(
            f"r{number}",
            draw(st.integers(1, 4)),
            priority=draw(st.integers(0, 4)),
            since=draw(st.integers(1, 3)),
        )
        for number in range(draw(st.integers(0, 6)))
    ]
    used = sum(workload.pod_sets[0].requests[GPU] for workload in held)
    workload = job("p", draw(st.integers(1, 8)), priority=draw(st.integers(0, 4)))
    return world([queue(gpus=used + draw(st.integers(0, 2)))], [*held, workload]), workload


@given(one_queue())
def test_victims_are_those_of_the_exhaustive_search(search: tuple[Snapshot, Workload]) -> None:
    """Oracle: try every set of lower workloads. Victims exist exactly when some set makes room, and
    the search finds the greedy one: shortest sufficient prefix of the order, minus whom it can spare.
    """
    where, workload = search
    own = where.queues["cq"]
    found = {
        target.workload.uid
        for target in preemption.find_targets(
            where, own, workload, frozenset({UNIT}), wanted(workload)
        )
    }
    lower = sorted(
        (
            each
            for each in where.running("cq")
            if each.effective_priority < workload.effective_priority
        ),
        key=lambda each: (
            each.effective_priority,
            -each.conditions["QuotaReserved"].since,
            each.uid,
        ),
    )
    possible = any(
        fits_without(where, workload, choice)
        for size in range(1, len(lower) + 1)
        for choice in itertools.combinations(lower, size)
    )
    assert bool(found) == possible
    if possible:
        length = next(
            n for n in range(1, len(lower) + 1) if fits_without(where, workload, tuple(lower[:n]))
        )
        kept = list(lower[:length])
        for candidate in reversed(lower[: length - 1]):
            without = tuple(each for each in kept if each is not candidate)
            if fits_without(where, workload, without):
                kept = list(without)
        assert found == {each.uid for each in kept}
