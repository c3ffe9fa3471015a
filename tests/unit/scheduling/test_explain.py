"""Why a job waits: one reason from the closed list, with numbers."""

import pytest
from support.scheduling_world import NOW, job, queue, running, world

from clusterops.api.reasons import WaitReason
from clusterops.scheduling.explain import explain, never_fits
from clusterops.scheduling.objects import (
    Condition,
    LocalQueue,
    NodeSelection,
    Preemption,
    Quota,
    ResourceFlavor,
    Workload,
)
from clusterops.scheduling.prediction import forecast, would_preempt

HELD = {"QuotaReserved": Condition(False, "OnHold", "waits 60 s before attempt 2")}


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [
        (job("a", active=False), WaitReason.SUSPENDED),
        (job("a", gates="clusterops.io/checkpoint-first"), WaitReason.CHECKPOINT_FIRST),
        (job("a", conditions=HELD), WaitReason.BACKING_OFF),
        (job("a", requeue_at=NOW + 30), WaitReason.BACKING_OFF),
        (job("a", queue="nowhere"), WaitReason.QUEUE_NOT_FOUND),
        (job("a", queue="lost"), WaitReason.QUEUE_NOT_FOUND),
        (job("a", queue="stopped"), WaitReason.QUEUE_STOPPED),
        (job("a", 9), WaitReason.NEVER_FITS),
        (job("a", 8, priority=1), WaitReason.WAITING_FOR_PREEMPTION),
        (job("a", 3), WaitReason.WAITING_FOR_QUOTA),
        (running("a", 1), WaitReason.NONE),
    ],
    ids=lambda value: value if isinstance(value, WaitReason) else value.name,
)
def test_the_reason(waiting: Workload, reason: WaitReason) -> None:
    where = world(
        [queue(), queue("stopped", stop="Hold")],
        [running("r", 6), waiting],
        local_queues=[
            LocalQueue("ns", "cq", "cq"),
            LocalQueue("ns", "stopped", "stopped"),
            LocalQueue("ns", "lost", "gone"),
        ],
    )
    found = explain(where, waiting, NOW)
    assert found.reason is reason
    assert found.sentence


def test_place_holders_shortage_and_what_would_help() -> None:
    late = job("late", 3, created=9)
    where = world(
        [queue(gpus=8, cohort="co"), queue("other", 0, cohort="co")],
        [
            running("big", 5, queue="other"),
            running("small", 2, evicted="x"),
            job("first", 3),
            late,
        ],
    )
    found = explain(where, late, NOW)
    assert (found.position, found.length) == (1, 2)
    assert [(each.name, each.amount, each.leaving) for each in found.holders] == [
        ("big", 5, False),
        ("small", 2, True),
    ]
    (short,) = found.shortages
    assert (short.asked, short.free, short.most) == (3, 1, 8)
    assert "2 more nvidia.com/gpu of flavor default" in found.would_help


def test_what_never_fits_is_told_the_limit_borrowing_included() -> None:
    where = world(
        [queue(gpus=Quota(2, borrowing_limit=1), cohort="co"), queue("y", 8, cohort="co")], []
    )
    found = never_fits(where, where.queues["cq"], job("a", 4))
    assert found is not None
    assert (found.resource, found.asked, found.most) == ("nvidia.com/gpu", 4, 3)
    assert "asks for 4 nvidia.com/gpu, but ClusterQueue cq can never have more than 3" in (
        found.sentence
    )


def test_fewer_pods_may_fit_where_all_never_do() -> None:
    where = world([queue(gpus=5)], [])
    assert never_fits(where, where.queues["cq"], job("a", 1, pods=8, minimum=4)) is None


def test_what_no_flavor_suits_never_fits_either() -> None:
    picky = job("a", selection=NodeSelection(labels={"gpu": "h200"}))
    where = world([queue()], [], flavors=[ResourceFlavor("default", {"gpu": "h100"})])
    found = never_fits(where, where.queues["cq"], picky)
    assert found is not None
    assert "doesn't match node affinity" in found.sentence


def test_prediction_names_the_victims_of_a_gated_job() -> None:
    gated = job("p", 2, priority=1, gates="clusterops.io/checkpoint-first")
    where = world([queue(gpus=4)], [running("old", 2, since=1), running("new", 2, since=2), gated])
    assert [target.workload.name for target in would_preempt(where, gated)] == ["new"]


def test_prediction_is_empty_when_it_fits_or_nobody_may_go() -> None:
    where = world([queue(gpus=4, preemption=Preemption())], [running("r", 3)])
    assert would_preempt(where, job("fits", 1)) == ()
    assert would_preempt(where, job("blocked", 2, priority=9)) == ()
    assert would_preempt(where, job("lost", 2, queue="nowhere")) == ()


def test_a_forecast_says_admitted_victims_or_why_not() -> None:
    where = world([queue(gpus=4)], [running("r", 3)])
    assert forecast(where, job("fits", 1, gates="g"), NOW).admitted
    (victim,) = forecast(where, job("p", 4, priority=1), NOW).victims
    assert victim.victim.name == "r"
    assert "1 more needed" in forecast(where, job("low", 2), NOW).waiting
