"""Golden scenarios: which flavor a workload gets, and how many pods.

Add a behaviour by adding a row. `+a` admits a, `-v<p:Reason` preempts v for p.
"""

import pytest
from support.scheduling_scenarios import Row, given
from support.scheduling_world import (
    decided,
    job,
    queue,
    running,
    transcript,
)

from clusterops.scheduling.objects import (
    FlavorFungibility,
    NodeSelection,
    ResourceFlavor,
    SelectorTerm,
    Taint,
)

FLAVORS = [
    Row("first flavor first", [queue(gpus={"a": 2, "b": 2})], [job("j", 2)], ["+j@a"]),
    Row("the next when it is full", [queue(gpus={"a": 2, "b": 4})], [job("j", 3)], ["+j@b"]),
    Row(
        "rather the next flavor than preemption",
        [queue(gpus={"a": 2, "b": 2})],
        [running("low", 2, flavor="a"), job("j", 2, priority=1)],
        ["+j@b"],
    ),
    Row(
        "rather preemption where whenCanPreempt stops the search",
        [
            queue(
                gpus={"a": 2, "b": 2},
                fungibility=FlavorFungibility(when_can_preempt="MayStopSearch"),
            )
        ],
        [running("low", 2, flavor="a"), job("j", 2, priority=1)],
        ["-low<j:InClusterQueue"],
    ),
    Row(
        "rather borrow in the first flavor than try the next",
        [queue("x", {"a": 1, "b": 2}, cohort="co"), queue("y", {"a": 1, "b": 0}, cohort="co")],
        [job("j", 2, queue="x")],
        ["+j@a"],
    ),
    Row(
        "rather the next than borrow where whenCanBorrow says so",
        [
            queue(
                "x",
                {"a": 1, "b": 2},
                cohort="co",
                fungibility=FlavorFungibility(when_can_borrow="TryNextFlavor"),
            ),
            queue("y", {"a": 1, "b": 0}, cohort="co"),
        ],
        [job("j", 2, queue="x")],
        ["+j@b"],
    ),
    Row(
        "a flavor whose labels the pods do not want is passed over",
        [queue(gpus={"a": 2, "b": 2})],
        [job("j", selection=NodeSelection(labels={"gpu": "h200", "zone": "any"}))],
        ["+j@b"],
        flavors=(
            ResourceFlavor("a", {"gpu": "h100"}),
            ResourceFlavor("b", {"gpu": "h200"}),
        ),
    ),
    Row(
        "affinity counts like a selector",
        [queue(gpus={"a": 2, "b": 2})],
        [job("j", selection=NodeSelection(terms=((SelectorTerm("gpu", "NotIn", ("h100",)),),)))],
        ["+j@b"],
        flavors=(ResourceFlavor("a", {"gpu": "h100"}), ResourceFlavor("b", {"gpu": "h200"})),
    ),
    Row(
        "an untolerated taint keeps a flavor out",
        [queue(gpus={"a": 2, "b": 2})],
        [job("j")],
        ["+j@b"],
        flavors=(ResourceFlavor("a", node_taints=(Taint("spot", "true"),)), ResourceFlavor("b")),
    ),
]

PARTIAL = [
    Row(
        "fewer pods when all do not fit",
        [queue(gpus=5)],
        [job("j", 1, pods=8, minimum=2)],
        ["+j*5"],
    ),
    Row("never fewer than the minimum", [queue(gpus=5)], [job("j", 1, pods=8, minimum=6)], []),
    Row("all when they fit", [queue(gpus=8)], [job("j", 1, pods=8, minimum=2)], ["+j"]),
    Row(
        "with a lower victim present it preempts for the full count",
        [queue(gpus=8)],
        [running("low", 3), job("j", 1, pods=8, minimum=2, priority=1)],
        ["-low<j:InClusterQueue"],
    ),
]

ALL = [*FLAVORS, *PARTIAL]


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_a_round_decides(row: Row) -> None:
    assert decided(given(row)) == row.expected


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_the_order_of_listing_makes_no_difference(row: Row) -> None:
    assert transcript(given(row)) == transcript(given(row, backwards=True))
