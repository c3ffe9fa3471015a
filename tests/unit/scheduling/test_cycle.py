"""Golden scenarios: queues and workloads in, admissions and preemptions out.

Add a behaviour by adding a row. `+a` admits a, `-v<p:Reason` preempts v for p.
"""

from typing import NamedTuple

import pytest
from msgspec.structs import replace as changed
from support.scheduling_world import (
    ANY,
    GPU,
    LOWER,
    decided,
    job,
    queue,
    running,
    transcript,
    waits,
    world,
)

from clusterops.scheduling.cycle import decide
from clusterops.scheduling.decisions import Preempt
from clusterops.scheduling.objects import (
    ClusterQueue,
    Cohort,
    Condition,
    FlavorFungibility,
    FlavorResource,
    LocalQueue,
    NodeSelection,
    PodSet,
    Preemption,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    SelectorTerm,
    Taint,
    Workload,
)

BORROW = Preemption(
    within_cluster_queue="LowerPriority",
    reclaim_within_cohort="Any",
    borrow_within_cohort="LowerPriority",
    borrow_threshold=100,
)
NEWER = Preemption(within_cluster_queue="LowerOrNewerEqualPriority")
EVICTED = {"Evicted": Condition(True, "PodsReadyTimeout", "", 5000.0)}


class Row(NamedTuple):
    name: str
    queues: list[ClusterQueue]
    workloads: list[Workload]
    expected: list[str]
    cohorts: tuple[Cohort, ...] = ()
    flavors: tuple[ResourceFlavor, ...] | None = None


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

WITHIN_QUEUE = [
    Row(
        "lower priority, newest first",
        [queue(gpus=4)],
        [running("old", 2, since=1), running("new", 2, since=2), job("p", 2, priority=1)],
        ["-new<p:InClusterQueue"],
    ),
    Row(
        "lowest priority before newest",
        [queue(gpus=4)],
        [
            running("low", 2, priority=1, since=1),
            running("new", 2, priority=2, since=2),
            job("p", 2, priority=3),
        ],
        ["-low<p:InClusterQueue"],
    ),
    Row(
        "equal priority is never preempted under LowerPriority",
        [queue(gpus=2)],
        [running("r", 2, priority=3), job("p", 2, priority=3)],
        [],
    ),
    Row(
        "a boost on a running job protects it",
        [queue(gpus=4)],
        [
            running("old", 2, since=1),
            running("new", 2, since=2, boost=500),
            job("p", 2, priority=1000),
        ],
        ["-old<p:InClusterQueue"],
    ),
    Row(
        "a negative boost lets a peer of the same class preempt it",
        [queue(gpus=2)],
        [running("r", 2, priority=10, boost=-1), job("p", 2, priority=10)],
        ["-r<p:InClusterQueue"],
    ),
    Row(
        "newer of equal priority where the policy says so",
        [queue(gpus=2, preemption=NEWER)],
        [running("r", 2, created=10), job("p", 2, created=5)],
        ["-r<p:InClusterQueue"],
    ),
    Row(
        "older of equal priority stays",
        [queue(gpus=2, preemption=NEWER)],
        [running("r", 2, created=5), job("p", 2, created=10)],
        [],
    ),
    Row(
        "Never",
        [queue(gpus=2, preemption=Preemption())],
        [running("r", 2), job("p", 2, priority=9)],
        [],
    ),
    Row(
        "fill-back: whom it does not need stays",
        [queue(gpus=8)],
        [
            running("a", 1, since=4),
            running("b", 1, since=3),
            running("c", 6, since=2),
            job("p", 6, priority=1),
        ],
        ["-c<p:InClusterQueue"],
    ),
    Row(
        "quota cut: the next high job pays for all of it",
        [queue(gpus=4)],
        [*(running(f"r{n}", 2, since=n) for n in range(4)), job("p", 2, priority=1)],
        [f"-r{n}<p:InClusterQueue" for n in (3, 2, 1)],
    ),
    Row("quota cut alone evicts nobody", [queue(gpus=1)], [running("r", 4)], []),
    Row(
        "victims being evicted already are taken first and not evicted twice",
        [queue(gpus=4)],
        [
            running("going", 2, since=1, evicted="uid-p"),
            running("new", 2, since=2),
            job("p", 2, priority=1),
        ],
        [],
    ),
    Row(
        "shrunk in the window: the rest is free at once",
        [queue(gpus=8)],
        [
            changed(
                running("r", 1, pods=8, evicted="uid-p"),
                pod_sets=running("r", 1, pods=4).pod_sets,
            ),
            job("p", 4, priority=1),
        ],
        ["+p"],
    ),
    Row(
        "pods given back by the owner are free",
        [queue(gpus=8)],
        [running("r", 1, pods=8, priority=9, reclaimable={"main": 3}), job("p", 3)],
        ["+p"],
    ),
    Row(
        "one head preempts, a fitting peer behind it waits for its turn",
        [queue(gpus=4)],
        [running("r", 3), job("p", 4, priority=2), job("q", 1, priority=1)],
        ["-r<p:InClusterQueue"],
    ),
]

WINDOW = [
    Row(
        "a newcomer below the preemptor does not steal what the first victim gave back",
        [queue(gpus=4)],
        [
            running("victim2", 2, evicted="uid-p"),
            job(
                "victim1",
                2,
                conditions=dict(running("x", evicted="uid-p").conditions)
                | {
                    "QuotaReserved": Condition(False, "Preempted", "", 200),
                    "Admitted": Condition(False),
                },
            ),
            job("p", 4, priority=10, created=50),
            job("newcomer", 2, priority=5, created=60),
        ],
        [],
    ),
    Row(
        "nor does a borrower of another queue",
        [queue("x", 4, cohort="co"), queue("y", 0, cohort="co")],
        [
            running("victim2", 2, queue="x", evicted="uid-p"),
            job("p", 4, priority=10, queue="x"),
            job("borrower", 2, priority=3000, queue="y"),
        ],
        [],
    ),
    Row(
        "best effort: the preemptor is sticky, admitted, and then preempted at once by 3000",
        [queue(gpus=4)],
        [
            job(
                "victim",
                4,
                conditions={
                    "Evicted": Condition(True, "Preempted", "", 150),
                    "Preempted": Condition(
                        True,
                        "InClusterQueue",
                        "(UID: uid-p, x)".replace("(UID", "workload (UID"),
                        150,
                    ),
                },
            ),
            job("p", 4, priority=2000),
            job("vip", 4, priority=3000),
        ],
        ["+p", "-p<vip:InClusterQueue"],
    ),
    Row(
        "strict: a higher newcomer overtakes the waiting preemptor",
        [queue(gpus=4, strategy="StrictFIFO")],
        [
            running("victim", 4, evicted="uid-p"),
            job("p", 4, priority=2000),
            job("vip", 4, priority=3000),
        ],
        [],
    ),
    Row(
        "a preemptor that was itself evicted since is not sticky any more",
        [queue(gpus=4)],
        [
            job(
                "victim",
                4,
                conditions=running("x", evicted="uid-p").conditions
                | {"QuotaReserved": Condition(False), "Admitted": Condition(False)},
            ),
            job(
                "p", 4, priority=2000, conditions={"Evicted": Condition(True, "Preempted", "", 999)}
            ),
            job("vip", 4, priority=3000),
        ],
        ["+vip"],
    ),
    Row(
        "a victim returns to the queue and is admitted when there is room again",
        [queue(gpus=4)],
        [
            job(
                "victim",
                4,
                conditions=running("x", evicted="uid-p").conditions
                | {"QuotaReserved": Condition(False), "Admitted": Condition(False)},
            )
        ],
        ["+victim"],
    ),
]

COHORT = [
    Row(
        "borrows what the cohort has left",
        [queue("x", 2, cohort="co"), queue("y", 2, cohort="co")],
        [job("a", 4, queue="x")],
        ["+a"],
    ),
    Row(
        "the borrowing limit holds",
        [queue("x", Quota(2, borrowing_limit=1), cohort="co"), queue("y", 2, cohort="co")],
        [job("a", 4, queue="x"), job("b", 3, queue="x")],
        ["+b"],
    ),
    Row(
        "the lending limit holds",
        [queue("x", 2, cohort="co"), queue("y", Quota(2, lending_limit=1), cohort="co")],
        [job("a", 4, queue="x"), job("b", 3, queue="x")],
        ["+b"],
    ),
    Row(
        "quota taken back from a borrower of higher priority where the policy is Any",
        [queue("x", 2, cohort="co", preemption=ANY), queue("y", 2, cohort="co")],
        [running("borrower", 4, queue="y", priority=9), job("p", 2, queue="x")],
        ["-borrower<p:InCohortReclamation"],
    ),
    Row(
        "not from one of higher priority where it is LowerPriority",
        [queue("x", 2, cohort="co"), queue("y", 2, cohort="co")],
        [running("borrower", 4, queue="y", priority=9), job("p", 2, queue="x")],
        [],
    ),
    Row(
        "only down to the other queue's own quota",
        [queue("x", 4, cohort="co", preemption=ANY), queue("y", 4, cohort="co")],
        [
            running("y1", 2, queue="y", since=1),
            running("y2", 2, queue="y", since=2),
            running("y3", 4, queue="y", since=3),
            job("p", 4, queue="x"),
        ],
        ["-y3<p:InCohortReclamation"],
    ),
    Row(
        "a borrower may not preempt others while borrowing, unless the policy says so",
        [queue("x", 2, cohort="co", preemption=ANY), queue("y", 2, cohort="co")],
        [running("a", 3, queue="y"), job("p", 3, queue="x", priority=9)],
        [],
    ),
    Row(
        "borrowWithinCohort: lower priority below the threshold goes while borrowing",
        [
            queue("x", 2, cohort="co", preemption=BORROW),
            queue("y", 1, cohort="co"),
            queue("z", 1, cohort="co"),
        ],
        [running("a", 3, queue="y", priority=100), job("p", 3, queue="x", priority=200)],
        ["-a<p:InCohortReclaimWhileBorrowing"],
    ),
    Row(
        "borrowWithinCohort: above the threshold it stays",
        [
            queue("x", 2, cohort="co", preemption=BORROW),
            queue("y", 1, cohort="co"),
            queue("z", 1, cohort="co"),
        ],
        [running("a", 3, queue="y", priority=101), job("p", 3, queue="x", priority=200)],
        [],
    ),
    Row(
        "no eviction for a job that could not run afterwards: it is parked and a smaller one runs",
        [queue("x", 3, cohort="co", preemption=ANY), queue("y", 1, cohort="co")],
        [
            running("y-own", 1, queue="y", priority=5),
            job("head4", 4, queue="x", priority=9),
            job("fits3", 3, queue="x"),
        ],
        ["+fits3"],
    ),
    Row(
        "no preempt-admit loop with borrowWithinCohort: the evicted one does not come back",
        [queue("x", 1, cohort="co", preemption=BORROW), queue("y", 1, cohort="co")],
        [
            running("p", 2, queue="x", priority=50),
            job(
                "evicted",
                2,
                queue="y",
                priority=10,
                conditions={"Evicted": Condition(True, "Preempted", "", 900)},
            ),
        ],
        [],
    ),
    Row(
        "overlapping victims: the second preemptor is skipped",
        [
            queue("x", 2, cohort="co", preemption=ANY),
            queue("y", 2, cohort="co", preemption=ANY),
            queue("z", 0, cohort="co"),
        ],
        [
            running("borrower", 4, queue="z"),
            job("px", 2, queue="x", priority=2),
            job("py", 2, queue="y", priority=1),
        ],
        ["-borrower<px:InCohortReclamation"],
    ),
    Row(
        "a cohort's own quota is shared by its queues",
        [queue("x", 0, cohort="co"), queue("y", 0, cohort="co")],
        [job("a", 2, queue="x"), job("b", 2, queue="y")],
        ["+a", "+b"],
        cohorts=(Cohort("co", quotas={FlavorResource("default", GPU): Quota(4)}),),
    ),
    Row(
        "hierarchical: quota of the own subtree is taken back from a stranger whatever its priority",
        [
            queue("x", 0, cohort="left", preemption=ANY),
            queue("y", 0, cohort="right", preemption=ANY),
        ],
        [running("stranger", 4, queue="y", priority=99), job("p", 4, queue="x")],
        ["-stranger<p:InCohortReclamation"],
        cohorts=(
            Cohort("left", "root", {FlavorResource("default", GPU): Quota(4)}),
            Cohort("right", "root"),
            Cohort("root"),
        ),
    ),
    Row(
        "a cycle of cohorts stops its queues and nobody else",
        [queue("x", 2, cohort="a"), queue("free", 2)],
        [job("stuck", 1, queue="x"), job("runs", 1, queue="free")],
        ["+runs"],
        cohorts=(Cohort("a", "b"), Cohort("b", "a")),
    ),
]

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

ALL = [*ORDER, *ELIGIBILITY, *WITHIN_QUEUE, *WINDOW, *COHORT, *FLAVORS, *PARTIAL]


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_a_round_decides(row: Row) -> None:
    where = world(row.queues, row.workloads, cohorts=row.cohorts, flavors=row.flavors)
    assert decided(where) == row.expected


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_the_order_of_listing_makes_no_difference(row: Row) -> None:
    there = world(row.queues, row.workloads, cohorts=row.cohorts, flavors=row.flavors)
    back = world(
        row.queues[::-1], row.workloads[::-1], cohorts=row.cohorts[::-1], flavors=row.flavors
    )
    assert transcript(there) == transcript(back)


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


def test_a_skipped_head_says_who_was_in_the_way() -> None:
    row = next(row for row in COHORT if row.name.startswith("overlapping"))
    assert waits(world(row.queues, row.workloads))["py"] == (
        "Workload has overlapping preemption targets with another workload"
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


def test_the_preempted_message_names_both_sides() -> None:
    where = world(
        [queue(gpus=2, cohort="co", preemption=LOWER)],
        [running("r", 2), job("p", 2, priority=1, job_uid="J")],
    )
    assert "preempt ns/r for ns/p: InClusterQueue" in transcript(where)
    (preempt,) = [each for each in decide(where, 0.0) if isinstance(each, Preempt)]
    assert preempt.message == (
        "Preempted to accommodate a workload (UID: uid-p, JobUID: J) due to prioritization in the "
        "ClusterQueue; preemptor path: /co/cq; preemptee path: /co/cq"
    )
