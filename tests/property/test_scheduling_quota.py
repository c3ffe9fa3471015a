"""The quota tree: adding and removing are opposites, and usage adds up in every order."""

from hypothesis import given
from hypothesis import strategies as st
from support.scheduling_world import GPU, queue

from clusterops.scheduling import quota
from clusterops.scheduling.objects import Cohort, FlavorResource, Quota
from clusterops.scheduling.quota import EMPTY, QuotaTree, Usage, cohort_key, queue_key

UNIT = FlavorResource("default", GPU)
limits = st.none() | st.integers(0, 5)
quotas = st.builds(Quota, st.integers(0, 8), limits, limits)
charges = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=8)


@st.composite
def trees(draw: st.DrawFn) -> QuotaTree:
    queues = [
        queue(name, draw(quotas), cohort=draw(st.sampled_from(["left", "right", "root"])))
        for name in "abc"
    ]
    cohorts = [
        Cohort("left", "root", {UNIT: draw(quotas)}),
        Cohort("right", "root", {UNIT: draw(quotas)}),
        Cohort("root", "", {UNIT: Quota(draw(st.integers(0, 4)))}),
    ]
    return quota.build(queues, cohorts)


def charge(tree: QuotaTree, usage: Usage, items: list[tuple[str, int]]) -> Usage:
    for name, amount in items:
        usage = tree.add(usage, queue_key(name), {UNIT: amount})
    return usage


def flat(usage: Usage) -> dict[tuple[str, FlavorResource], int]:
    return {
        (key, unit): amount
        for key, held in usage.held.items()
        for unit, amount in held.items()
        if amount
    }


@given(trees(), charges, st.sampled_from("abc"), st.integers(0, 5))
def test_removing_what_was_added_leaves_what_was(
    tree: QuotaTree, before: list[tuple[str, int]], name: str, amount: int
) -> None:
    usage = charge(tree, EMPTY, before)
    there = tree.add(usage, queue_key(name), {UNIT: amount})
    assert flat(tree.remove(there, queue_key(name), {UNIT: amount})) == flat(usage)


@given(trees(), charges)
def test_the_order_of_charges_makes_no_difference(
    tree: QuotaTree, items: list[tuple[str, int]]
) -> None:
    assert flat(charge(tree, EMPTY, items)) == flat(charge(tree, EMPTY, items[::-1]))


@given(trees(), charges, st.sampled_from("abc"))
def test_available_never_exceeds_potential(
    tree: QuotaTree, items: list[tuple[str, int]], name: str
) -> None:
    usage = charge(tree, EMPTY, items)
    key = queue_key(name)
    assert 0 <= tree.available(usage, key, UNIT) <= max(0, tree.potential(key, UNIT))
    assert tree.available(EMPTY, key, UNIT) == max(0, tree.potential(key, UNIT))


@given(trees(), charges, st.sampled_from("abc"))
def test_taking_all_that_is_available_leaves_nothing(
    tree: QuotaTree, items: list[tuple[str, int]], name: str
) -> None:
    usage = charge(tree, EMPTY, items)
    key = queue_key(name)
    full = tree.add(usage, key, {UNIT: tree.available(usage, key, UNIT)})
    assert tree.available(full, key, UNIT) == 0


@given(trees(), charges)
def test_a_cohort_holds_what_its_members_cannot_keep_local(
    tree: QuotaTree, items: list[tuple[str, int]]
) -> None:
    usage = charge(tree, EMPTY, items)
    for name in ("left", "right", "root"):
        node = tree.nodes[cohort_key(name)]
        spilled = sum(
            max(0, usage.at(child, UNIT) - tree.nodes[child].local.get(UNIT, 0))
            for child in (*node.cohorts, *node.queues)
        )
        assert usage.at(node.key, UNIT) == spilled
