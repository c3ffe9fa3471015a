"""Golden scenarios: whose turn it is, who may be considered, and what those that wait are told.

Add a behaviour by adding a row. `+a` admits a, `-v<p:Reason` preempts v for p.
"""

import pytest
from msgspec.structs import replace as changed
from support.scheduling_scenarios import Row, given
from support.scheduling_world import (
    GPU,
    decided,
    job,
    queue,
    running,
    transcript,
    waits,
    world,
)

from clusterops.scheduling.objects import (
    Cohort,
    Condition,
    FlavorResource,
    LocalQueue,
    PodSet,
    Quota,
    ResourceGroup,
    SelectorTerm,
)

EVICTED = {"Evicted": Condition(True, "PodsReadyTimeout", "", 5000.0)}

ORDER = [
    Row("fits", [queue()], [job("a", 8)], ["+a"]),
    Row("empty queue", [queue()], [], []),
    Row(
        "priority, then age, then uid",
        [queue(gpus=3)],
        [
            job("d", priority=1, created=5),
            job("c", uid="2"),
            job("b", uid="1"),
            job("a", created=1),
        ],
        ["+d", "+b", "+c"],
    ),
    Row(
        "a boost counts as priority",
        [queue(gpus=1)],
        [job("a", priority=5), job("b", priority=1, boost=9)],
        ["+b"],
    ),
    Row(
        "evicted for pods not ready goes to the back",
        [queue(gpus=1)],
        [job("late", created=1, conditions=EVICTED), job("next", created=2)],
        ["+next"],
    ),
    Row(
        "preempted keeps its place at the front of its priority",
        [queue(gpus=1)],
        [
            job("victim", created=1, conditions={"Evicted": Condition(True, "Preempted", "", 9e3)}),
            job("later", created=2),
        ],
        ["+victim"],
    ),
    Row(
        "best effort: a head that does not fit is parked",
        [queue(gpus=4)],
        [job("big", 5, priority=9), job("small", 4)],
        ["+small"],
    ),
    Row(
        "strict: a head that does not fit blocks all behind it",
        [queue(gpus=4, strategy="StrictFIFO")],
        [running("r", 2, priority=9), job("big", 4, priority=9), job("small", 1)],
        [],
    ),
    Row(
        "less borrowing goes first, whatever the priority",
        [queue("x", 2, cohort="co"), queue("y", 2, cohort="co")],
        [job("borrower", 3, priority=9, queue="x"), job("owner", 2, queue="y")],
        ["+owner"],
    ),
    Row(
        "in one cycle the higher priority of two queues goes first",
        [queue("x", 0, cohort="co"), queue("y", 0, cohort="co")],
        [job("low", 2, priority=1, queue="x"), job("high", 2, priority=2, queue="y")],
        ["+high"],
        cohorts=(Cohort("co", quotas={FlavorResource("default", GPU): Quota(2)}),),
    ),
]

ELIGIBILITY = [
    Row("gated", [queue()], [job("a", gates="clusterops.io/checkpoint-first")], []),
    Row("inactive", [queue()], [job("a", active=False)], []),
    Row(
        "on hold",
        [queue()],
        [job("a", conditions={"QuotaReserved": Condition(False, "OnHold")})],
        [],
    ),
    Row("back-off", [queue()], [job("a", requeue_at=10_001.0)], []),
    Row("back-off over", [queue()], [job("a", requeue_at=10_000.0)], ["+a"]),
    Row(
        "Requeued=False",
        [queue()],
        [job("a", conditions={"Requeued": Condition(False, "PodsReadyTimeout")})],
        [],
    ),
    Row(
        "released without Admitted=False is never queued again",
        [queue()],
        [job("a", conditions={"Admitted": Condition(True)})],
        [],
    ),
    Row("being deleted", [queue()], [job("a", terminating=True)], []),
    Row("stopped queue", [queue(stop="Hold")], [job("a")], []),
    Row("queue being deleted", [queue(terminating=True)], [job("a")], []),
    Row("missing flavor", [queue()], [job("a")], [], flavors=()),
    Row("missing admission check", [queue(admission_checks=("c",))], [job("a")], []),
    Row("no such queue", [queue()], [job("a", queue="nowhere")], []),
    Row("resource without quota", [queue(gpus={})], [job("a")], []),
    Row(
        "a resource without quota that is asked for zero times",
        [queue()],
        [changed(job("a"), pod_sets=(PodSet("main", 1, {GPU: 1, "other": 0}),))],
        ["+a"],
    ),
    Row(
        "requests that cannot be counted block nobody",
        [queue()],
        [job("odd", priority=9, defect="resources validation failed"), job("a")],
        ["+a"],
    ),
    Row(
        "finished and deactivated holders hold nothing",
        [queue(gpus=2)],
        [
            changed(
                running("done", 1, priority=9),
                conditions={
                    "QuotaReserved": Condition(True),
                    "Finished": Condition(True, "Succeeded"),
                },
            ),
            running("off", 1, priority=9, active=False),
            job("a", 2),
        ],
        ["+a"],
    ),
    Row(
        "a reservation being deleted holds its quota until it is gone",
        [queue(gpus=2)],
        [running("going", 2, priority=9, terminating=True), job("a", 1)],
        [],
    ),
]

ALL = [*ORDER, *ELIGIBILITY]


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_a_round_decides(row: Row) -> None:
    assert decided(given(row)) == row.expected


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_the_order_of_listing_makes_no_difference(row: Row) -> None:
    assert transcript(given(row)) == transcript(given(row, backwards=True))


def test_waiting_names_the_shortage_in_kueues_words() -> None:
    where = world([queue(gpus=8)], [running("r", 8, priority=9), job("a", 4)])
    assert waits(where)["a"] == (
        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu "
        "in flavor default, 4 more needed"
    )


def test_waiting_for_victims_says_how_many() -> None:
    where = world([queue(gpus=8)], [running("r", 8), job("a", 4, priority=1)])
    assert waits(where)["a"].endswith("4 more needed. Pending the preemption of 1 workload(s)")


def test_what_is_above_the_maximum_is_told_the_maximum() -> None:
    where = world([queue(gpus=8)], [job("a", 9)])
    assert waits(where)["a"] == (
        "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor "
        "default, previously considered podsets requests (0) + current podset request (9) > "
        "maximum capacity (8)"
    )


def test_a_namespace_the_queue_does_not_select_is_told_so_and_blocks_nobody() -> None:
    strict = queue(strategy="StrictFIFO", namespace_selector=(SelectorTerm("team", "In", ("ml",)),))
    where = world(
        [strict],
        [job("a", priority=1)],
        namespaces={"ns": {"team": "web"}},
    )
    assert decided(where) == []
    assert waits(where) == {"a": "workload namespace doesn't match ClusterQueue selector"}


def test_stopped_local_queue_admits_nothing() -> None:
    where = world([queue()], [job("a")], local_queues=[LocalQueue("ns", "cq", "cq", "Hold")])
    assert decided(where) == []


def test_pods_are_counted_where_the_queue_has_quota_of_pods() -> None:
    both = queue(gpus=8)
    limited = changed(
        both,
        groups=(ResourceGroup((GPU, "pods"), ("default",)),),
        quotas={**both.quotas, FlavorResource("default", "pods"): Quota(2)},
    )
    where = world([limited], [job("three", 1, pods=3, priority=1), job("two", 1, pods=2)])
    assert decided(where) == ["+two"]
