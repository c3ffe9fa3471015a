"""Which node each pod goes to: whole gangs, least fragmentation, and the scheduler's words."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from clusterops.queueing.placement import NodeRoom, PodDemand, place
from clusterops.scheduling.objects import NodeSelection, SelectorTerm, Taint, Toleration

GPU = "nvidia.com/gpu"


def node(name: str, gpus: int = 4, **more: object) -> NodeRoom:
    found = NodeRoom(name, {}, (), {GPU: gpus, "cpu": 8000, "pods": 110})
    return replace(found, **more)


def pod(
    name: str,
    gpus: int = 1,
    *,
    gang: str = "",
    node: str = "",
    created: float = 0.0,
    **more: object,
) -> PodDemand:
    found = PodDemand(
        "ns",
        name,
        f"uid-{name}",
        {GPU: gpus},
        NodeSelection(),
        node=node,
        gang=("ns", gang, "1") if gang else (),
        created=created,
    )
    return replace(found, **more)


def where(nodes: list[NodeRoom], pods: list[PodDemand]) -> dict[str, str]:
    return {binding.pod.name: binding.node for binding in place(nodes, pods)[0]}


def why(nodes: list[NodeRoom], pods: list[PodDemand]) -> dict[str, str]:
    return {each.pod.name: each.message for each in place(nodes, pods)[1]}


def test_a_partly_used_node_is_filled_before_an_empty_one() -> None:
    assert where([node("n1"), node("n2")], [pod("a", 1, node="n2"), pod("b", 2)]) == {"b": "n2"}


def test_the_node_with_the_least_left_over_is_taken() -> None:
    assert where([node("n1", 8), node("n2", 4)], [pod("a", 4)]) == {"a": "n2"}


def test_bound_pods_take_their_place() -> None:
    assert why([node("n1")], [pod("a", 3, node="n1"), pod("b", 2)]) == {
        "b": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    }


def test_a_gang_is_bound_whole_or_not_at_all() -> None:
    gang = [pod(f"g{n}", 4, gang="g") for n in range(3)]
    bound, unplaced = place([node("n1"), node("n2")], gang)
    assert bound == []
    assert {each.message for each in unplaced} == {
        "0/2 nodes are available: the 3 pods of this attempt do not all fit at the same time."
    }


def test_a_gang_that_cannot_be_placed_leaves_room_for_a_later_one() -> None:
    big = [pod(f"g{n}", 4, gang="g", created=1) for n in range(3)]
    assert where([node("n1"), node("n2")], [*big, pod("small", created=2)]) == {"small": "n1"}


def test_the_rest_of_a_gang_half_bound_is_completed() -> None:
    pods = [pod("g0", 4, gang="g", node="n1"), pod("g1", 4, gang="g")]
    assert where([node("n1"), node("n2")], pods) == {"g1": "n2"}


def test_the_oldest_gang_comes_first() -> None:
    pods = [pod("young", 4, created=2), pod("old", 4, created=1)]
    assert where([node("n1")], pods) == {"old": "n1"}


@pytest.mark.parametrize(
    ("room", "words"),
    [
        (node("n", ready=False), "node(s) were not ready"),
        (node("n", unschedulable=True), "node(s) were unschedulable"),
        (
            node("n", taints=(Taint("clusterops.io/health", "bad"),)),
            "node(s) had untolerated taint {clusterops.io/health: bad}",
        ),
        (node("n", 0), "Insufficient nvidia.com/gpu"),
        (node("n", allocatable={"cpu": 8000}), "Insufficient nvidia.com/gpu"),
        (node("n", allocatable={GPU: 4, "pods": 0}), "Insufficient pods"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_node_is_out_for_a_reason(room: NodeRoom, words: str) -> None:
    assert why([room], [pod("a")]) == {"a": f"0/1 nodes are available: 1 {words}."}


def test_reasons_are_counted() -> None:
    nodes = [node("n1", ready=False), node("n2", 0), node("n3", 0)]
    assert why(nodes, [pod("a")]) == {
        "a": "0/3 nodes are available: 1 node(s) were not ready, 2 Insufficient nvidia.com/gpu."
    }


def test_without_nodes_it_says_so() -> None:
    assert why([], [pod("a")]) == {"a": "no nodes available to schedule pods"}


def test_cpu_counts_only_where_a_node_declares_it() -> None:
    asks = pod("a", 0, requests={"cpu": 16_000})
    assert where([node("n1", allocatable={GPU: 4})], [asks]) == {"a": "n1"}
    assert why([node("n1")], [asks])


def test_selector_affinity_and_tolerations_are_honoured() -> None:
    nodes = [
        node("n1", labels={"zone": "a"}, taints=(Taint("spot"),)),
        node("n2", labels={"zone": "b"}),
    ]
    tolerant = NodeSelection({"zone": "a"}, (), (Toleration("spot", "Exists"),))
    not_b = NodeSelection({}, ((SelectorTerm("zone", "NotIn", ("b",)),),), tolerant.tolerations)
    pinned = NodeSelection({}, ((SelectorTerm("kubernetes.io/hostname", "In", ("n2",)),),))
    pods = [
        pod("a", selection=tolerant),
        pod("b", selection=not_b),
        pod("c", selection=pinned),
        pod("d", selection=NodeSelection({"zone": "a"})),
    ]
    assert where(nodes, pods) == {"a": "n1", "b": "n1", "c": "n2"}


def test_an_empty_affinity_term_matches_no_node() -> None:
    assert why([node("n1")], [pod("a", selection=NodeSelection(terms=((),)))])


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from(["", "x", "y"]), st.integers(1, 4)), max_size=7),
    st.randoms(use_true_random=False),
)
def test_no_node_is_overfilled_no_gang_is_split_and_order_does_not_matter(
    capacities: list[int], asks: list[tuple[str, int]], chance: random.Random
) -> None:
    nodes = [node(f"n{index}", gpus) for index, gpus in enumerate(capacities)]
    pods = [pod(f"p{index}", gpus, gang=gang) for index, (gang, gpus) in enumerate(asks)]
    bound, unplaced = place(nodes, pods)
    for room in nodes:
        used = sum(each.pod.requests[GPU] for each in bound if each.node == room.name)
        assert used <= room.allocatable[GPU]
    placed = {each.pod.name for each in bound}
    assert placed.isdisjoint(each.pod.name for each in unplaced)
    assert len(bound) + len(unplaced) == len(pods)
    for gang in ("x", "y"):
        members = {each.name for each in pods if each.gang[1:2] == (gang,)}
        assert members <= placed or members.isdisjoint(placed)
    shuffled = list(pods)
    chance.shuffle(shuffled)
    assert where(nodes[::-1], shuffled) == {each.pod.name: each.node for each in bound}
