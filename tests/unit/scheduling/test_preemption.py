"""Golden scenarios: whom a workload preempts, in its queue and in its cohort.

Add a behaviour by adding a row. `+a` admits a, `-v<p:Reason` preempts v for p.
"""

import pytest
from msgspec.structs import replace as changed
from support.scheduling_scenarios import Row, given
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
    Cohort,
    Condition,
    FlavorResource,
    Preemption,
    Quota,
)

BORROW = Preemption(
    within_cluster_queue="LowerPriority",
    reclaim_within_cohort="Any",
    borrow_within_cohort="LowerPriority",
    borrow_threshold=100,
)
NEWER = Preemption(within_cluster_queue="LowerOrNewerEqualPriority")

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

ALL = [*WITHIN_QUEUE, *WINDOW, *COHORT]


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_a_round_decides(row: Row) -> None:
    assert decided(given(row)) == row.expected


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_the_order_of_listing_makes_no_difference(row: Row) -> None:
    assert transcript(given(row)) == transcript(given(row, backwards=True))


def test_a_skipped_head_says_who_was_in_the_way() -> None:
    row = next(row for row in COHORT if row.name.startswith("overlapping"))
    assert waits(world(row.queues, row.workloads))["py"] == (
        "Workload has overlapping preemption targets with another workload"
    )


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
