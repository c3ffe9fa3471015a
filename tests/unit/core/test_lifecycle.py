"""The life of a job as a table: what is seen, what is decided."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.operator_builders import (
    NOW,
    ago,
    condition,
    ending,
    job,
    node,
    pod,
    report,
    running,
    workload,
)

from clusterops.api.reasons import Cause, Phase, WaitReason
from clusterops.core import actions
from clusterops.core.lifecycle import decide
from clusterops.core.observed import Attempt, JobStatus, Observed, Preemptor, QueueView, TrainingJob
from clusterops.core.observed_object import Condition
from clusterops.core.settings import Settings

SETTINGS = Settings(runtime="processes", agent_url="https://127.0.0.1:1", node_lost_seconds=60)
GANG = (pod(0), pod(1))
NODES = {"n0": node()}
EVICTED = condition("Evicted", True, "Preempted", "Preempted to accommodate")


def decided(
    of: TrainingJob, settings: Settings = SETTINGS, **observed: Any
) -> list[actions.Action]:
    defaults: dict[str, Any] = {"nodes": NODES, "priority": 1000, "offered_port": 29_400}
    return decide(of, Observed(**{**defaults, **observed}), NOW, settings)


def kinds(found: list[actions.Action]) -> list[str]:
    return [type(action).__name__ for action in found if not isinstance(action, actions.Wake)]


def written(found: list[actions.Action]) -> JobStatus:
    (write,) = [action for action in found if isinstance(action, actions.WriteStatus)]
    return write.status


def pending(of: TrainingJob, *conditions: Condition, **fields: Any) -> Any:
    return workload(of, *conditions, admitted=False, **fields)


# Into the queue


def test_the_finalizer_comes_before_everything() -> None:
    assert kinds(decided(job(finalizer=False))) == ["AddJobFinalizer"]
    assert decided(job(finalizer=False, deleting=True)) == []


def test_a_new_job_gets_its_workload() -> None:
    found = decided(job())
    assert kinds(found) == ["CreateWorkload", "WriteStatus"]
    assert written(found).phase is Phase.PENDING
    assert written(found).gpus == 4


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        ({"queue": QueueView(found=False, missing="no such queue")}, WaitReason.QUEUE_NOT_FOUND),
        ({"priority": None}, WaitReason.PRIORITY_CLASS_NOT_FOUND),
        ({"queue": QueueView(never_fits="at most 2")}, WaitReason.NEVER_FITS),
    ],
)
def test_what_cannot_be_queued_waits_with_the_reason(
    observed: dict[str, Any], reason: WaitReason
) -> None:
    found = decided(job(), **observed)
    assert kinds(found) == ["WriteStatus"]
    assert written(found).reason == reason
    again = job(written(found))
    assert decided(again, **observed) == [], "and is not written again and again"


@pytest.mark.parametrize(
    ("conditions", "queue", "reason"),
    [
        ((), QueueView(), WaitReason.QUEUED),
        (
            (
                condition(
                    "QuotaReserved", False, "Pending", "Pending the preemption of 2 workload(s)"
                ),
            ),
            QueueView(),
            WaitReason.WAITING_FOR_PREEMPTION,
        ),
        (
            (condition("QuotaReserved", False, "AdmissionGated"),),
            QueueView(),
            WaitReason.CHECKPOINT_FIRST,
        ),
        ((), QueueView(stopped="stopPolicy Hold"), WaitReason.QUEUE_STOPPED),
    ],
)
def test_a_waiting_job_says_what_for(
    conditions: tuple[Condition, ...], queue: QueueView, reason: WaitReason
) -> None:
    of = job()
    found = decided(of, workload=pending(of, *conditions), queue=queue)
    assert written(found).reason == reason


def test_an_admitted_job_writes_its_attempt_before_any_pod() -> None:
    of = job()
    found = decided(of, workload=workload(of))
    assert kinds(found) == ["WriteStatus"]
    assert actions.needs_certainty(found)
    status = written(found)
    assert (status.phase, status.attempt, status.master_port) == (Phase.ADMITTED, 1, 29_400)
    assert status.counts.attempts == 1


def test_without_a_free_port_nothing_begins() -> None:
    of = job()
    found = decided(of, workload=workload(of), offered_port=None)
    assert written(found).attempt == 0


def test_pods_of_an_earlier_attempt_end_before_another_begins() -> None:
    of = job(JobStatus(attempt=1, attempts=(Attempt(1, ended_at=ago(9), cause=Cause.EVICTED),)))
    found = decided(of, workload=workload(of), pods=(pod(0),))
    assert kinds(found) == ["WriteStatus", "DeletePod"]
    assert written(found).attempt == 1


# An attempt


def test_the_secret_comes_before_the_pods_and_the_service_only_in_containers() -> None:
    of = job(
        msgspec.structs.replace(running(started_at=None, first_step=None), phase=Phase.ADMITTED)
    )
    assert kinds(decided(of, workload=workload(of))) == [
        "CreateSecret",
        "CreatePod",
        "CreatePod",
        "WriteStatus",
    ]
    assert kinds(decided(of, workload=workload(of), pods=(pod(0),))) == [
        "CreateSecret",
        "CreatePod",
        "WriteStatus",
    ]
    containers = decide(
        of, Observed(workload=workload(of), priority=1000), NOW, Settings(agent_url="https://x")
    )
    assert kinds(containers)[:2] == ["CreateSecret", "CreateService"]


def test_a_pod_that_is_being_refused_says_why_from_the_first_moment() -> None:
    status = msgspec.structs.replace(
        running(started_at=None, first_step=None),
        phase=Phase.STARTING,
        attempt_begun_at=ago(1),
    )
    of = job(status)
    refused = pod(1, "Pending", waiting="CreateContainerConfigError")
    after = written(decided(of, workload=workload(of), pods=(pod(0), refused)))
    assert after.reason is WaitReason.WAITING_FOR_PODS
    assert "1 of 2 ready" in after.message
    assert "rank 1 could not start: CreateContainerConfigError: not found" in after.message


def test_a_gang_that_runs_is_told_to_the_queue_once() -> None:
    status = msgspec.structs.replace(
        running(started_at=None, first_step=None), phase=Phase.STARTING
    )
    of = job(status)
    found = decided(of, workload=workload(of), pods=GANG)
    assert kinds(found) == ["WriteStatus", "SetPodsReady"]
    assert written(found).phase is Phase.RUNNING
    assert written(found).attempts[-1].nodes == ("n0", "n0")
    told = decided(job(written(found)), workload=workload(of, condition("PodsReady")), pods=GANG)
    assert kinds(told) == []


def test_the_first_step_and_the_first_save_of_an_attempt_are_written_at_once() -> None:
    of = job(running())
    view = {"workload": workload(of, condition("PodsReady")), "pods": GANG}
    heard = written(decided(of, **view, reports=(report(0, 0), report(1, 0))))
    moved = written(decided(job(heard), **view, reports=(report(0, 1), report(1, 1))))
    assert moved.progress is not None
    assert moved.progress.step == 1
    saved = written(decided(job(moved), **view, reports=(report(0, 5, 5), report(1, 5))))
    assert saved.progress is not None
    assert saved.progress.durable_step == 5
    assert kinds(decided(job(saved), **view, reports=(report(0, 9, 9), report(1, 9)))) == []


def test_steps_alone_are_written_once_a_minute() -> None:
    of = job(running())
    view = {"workload": workload(of, condition("PodsReady")), "pods": GANG}
    first = written(decided(of, **view, reports=(report(0, 5), report(1, 5))))
    assert first.progress is not None
    assert first.progress.step == 5
    found = decided(job(first), **view, reports=(report(0, 6), report(1, 6)))
    assert kinds(found) == []
    later = decide(
        job(first),
        Observed(nodes=NODES, priority=1000, **view, reports=(report(0, 6), report(1, 6))),
        NOW + timedelta(seconds=80),
        SETTINGS,
    )
    assert written(later).progress.step == 6  # type: ignore[union-attr]


def test_what_a_running_rank_complains_of_is_in_the_status_until_it_is_over() -> None:
    of = job(running())
    view = {"workload": workload(of, condition("PodsReady")), "pods": GANG}
    told = written(
        decided(of, **view, reports=(report(0, 5, problem="disk\x1b full"), report(1, 5)))
    )
    assert told.phase is Phase.RUNNING
    assert told.message == "it trains on with a problem: disk\\x1b full"
    over = written(decided(job(told), **view, reports=(report(0, 5), report(1, 5))))
    assert over.message == ""


@pytest.mark.parametrize(
    ("spec", "observed", "cause"),
    [
        ({}, {"pods": (pod(0, "Failed", exit_code=1), pod(1))}, Cause.USER_ERROR),
        ({}, {"evicted": EVICTED}, Cause.PREEMPTED),
        ({}, {"evicted": condition("Evicted", True, "ClusterQueueStopped")}, Cause.EVICTED),
        ({}, {"evicted": condition("Evicted", True, "NodeFailures")}, Cause.NODE_FAULT),
        ({"suspend": True}, {}, Cause.SUSPENDED),
        ({"stop": "Checkpoint"}, {}, Cause.CANCELLED),
        ({"active_deadline_seconds": 50}, {}, Cause.DEADLINE_EXCEEDED),
        ({}, {"pods": (pod(0),)}, Cause.EVICTED),
        ({}, {"pods": (pod(0), pod(1, deleting=True))}, Cause.EVICTED),
        ({}, {"nodes": {"n0": node(unready_for=61)}}, Cause.NODE_LOST),
        ({}, {"nodes": {}}, Cause.NODE_LOST),
        ({}, {"nodes": {"n0": node(faulty=True)}}, Cause.NODE_FAULT),
        ({}, {"workload": None}, Cause.EVICTED),
    ],
)
def test_every_end_begins_with_cause_and_deadline_in_status(
    spec: dict[str, Any], observed: dict[str, Any], cause: Cause
) -> None:
    of = job(running(), **spec)
    conditions = [condition("PodsReady"), *filter(None, [observed.pop("evicted", None)])]
    found = decided(of, **{"workload": workload(of, *conditions), "pods": GANG, **observed})
    assert kinds(found) == ["WriteStatus"]
    status = written(found)
    assert status.attempts[-1].cause is cause
    assert status.attempts[-1].ended_at is None
    assert status.phase is Phase.CHECKPOINTING
    assert status.grace_deadline is not None
    assert status.grace_deadline > NOW


@pytest.mark.parametrize(
    "observed",
    [
        {"nodes": {"n0": node(unready_for=59)}},
        {"nodes": {"n0": node(unready_for=500)}, "reports": (report(0, 5), report(1, 5))},
        {"nodes": {}, "reports": (report(0, 5), report(1, 5))},
    ],
)
def test_unreachable_is_not_lost_while_the_ranks_report(observed: dict[str, Any]) -> None:
    of = job(running())
    found = decided(
        of, **{"workload": workload(of, condition("PodsReady")), "pods": GANG, **observed}
    )
    assert written(found).attempts[-1].cause is None if "WriteStatus" in kinds(found) else True


def test_all_ranks_at_zero_complete_the_job() -> None:
    of = job(running())
    done = (pod(0, "Succeeded", exit_code=0), pod(1, "Succeeded", exit_code=0))
    status = written(decided(of, workload=workload(of), pods=done))
    assert status.phase is Phase.SUCCEEDED
    assert status.attempts[-1].lost_steps == 0


def test_exit_zero_after_a_withdrawn_notice_is_no_completion_unless_finished() -> None:
    of = job(running(reprieved_attempt=1))
    done = (pod(0, "Succeeded", exit_code=0), pod(1, "Succeeded", exit_code=0))
    view = {"workload": workload(of), "pods": done}
    assert written(decided(of, **view)).attempts[-1].cause is Cause.EVICTED
    reports = (report(0, 9, 9, finished=True), report(1, 9, finished=True))
    assert written(decided(of, **view, reports=reports)).phase is Phase.SUCCEEDED


# Ending


def test_the_queue_is_told_before_pods_are_ended() -> None:
    of = job(ending(Cause.SUSPENDED), suspend=True)
    found = decided(of, workload=workload(of), pods=GANG)
    assert kinds(found)[0] == "EvictWorkload"


def test_pods_of_a_dead_node_are_forgotten() -> None:
    of = job(ending(Cause.NODE_LOST))
    found = decided(
        of,
        workload=workload(of, EVICTED),
        pods=(pod(0), pod(1, node="n1")),
        nodes={"n0": node(), "n1": node("n1", unready_for=100)},
    )
    assert [(type(a), a.name, a.grace_seconds) for a in pod_ends(found)] == [
        (actions.DeletePod, "a-1-1", 0),
        (actions.EndPod, "a-1-0", 60),
    ]


def pod_ends(found: list[actions.Action]) -> list[Any]:
    return [a for a in found if isinstance(a, actions.EndPod | actions.DeletePod)]


def silent(seconds_left: float = 60.0) -> dict[str, Any]:
    """A job that never reported and has its notice: TERM is all that it understands."""
    of = job(ending(Cause.PREEMPTED, seconds_left, first_step=None))
    return {"of": of, "workload": workload(of, EVICTED)}


def test_pods_are_ended_in_place_so_that_they_stay_for_their_logs() -> None:
    ends = pod_ends(decided(**silent(), pods=GANG))
    assert [(type(a), a.name, a.uid, a.grace_seconds) for a in ends] == [
        (actions.EndPod, "a-1-0", "uid-1-0", 60),
        (actions.EndPod, "a-1-1", "uid-1-1", 60),
    ]
    told = (pod(0, ends_within=60), pod(1, ends_within=60))
    assert pod_ends(decided(**silent(), pods=told)) == [], "once is enough"


def test_a_pod_that_outlives_its_deadline_is_deleted_after_a_moment() -> None:
    told = (pod(0, "Failed", exit_code=143, ends_within=60), pod(1, ends_within=60))
    assert pod_ends(decided(**silent(-4), pods=told)) == []
    (end,) = pod_ends(decided(**silent(-6), pods=told))
    assert (type(end), end.name, end.grace_seconds) == (actions.DeletePod, "a-1-1", 1)


def test_a_pod_is_deleted_when_its_node_could_not_end_it_in_its_window() -> None:
    unplaced = decided(**silent(), pods=(pod(0, node=""), pod(1)))
    assert [type(a) for a in pod_ends(unplaced)] == [actions.DeletePod, actions.EndPod]
    hasty = (pod(0, grace=30), pod(1))
    containers = Settings(runtime="containers")
    found = decided(**silent(), pods=hasty, settings=containers)
    assert [type(a) for a in pod_ends(found)] == [actions.DeletePod, actions.EndPod]
    found = decided(**silent(), pods=hasty, settings=Settings(runtime="processes"))
    assert [type(a) for a in pod_ends(found)] == [actions.EndPod, actions.EndPod]


def test_a_notice_is_not_taken_back_once_a_rank_got_term() -> None:
    of = job(ending(Cause.PREEMPTED))
    gone = Preemptor("p", "ns/p", waiting=False)
    told = (pod(0, ends_within=60), pod(1))
    found = decided(of, workload=workload(of, EVICTED), pods=told, preemptor=gone)
    assert "CancelEviction" not in kinds(found)


def test_ranks_that_finish_after_term_have_completed_whatever_their_nodes_call_it() -> None:
    of = job(ending(Cause.PREEMPTED))
    done = tuple(
        pod(rank, "Failed", exit_code=0, reason="DeadlineExceeded", ends_within=60)
        for rank in (0, 1)
    )
    finished = (report(0, 9, 9, finished=True), report(1, 9, finished=True))
    view = {"workload": workload(of, EVICTED), "pods": done}
    assert written(decided(of, **view, reports=finished)).phase is Phase.SUCCEEDED
    assert written(decided(of, **view)).attempts[-1].cause is Cause.PREEMPTED


def test_an_error_that_turns_out_to_be_a_dead_node_is_blamed_on_it() -> None:
    of = job(ending(Cause.USER_ERROR))
    found = decided(
        of,
        workload=workload(of, EVICTED),
        pods=(pod(0, "Failed", exit_code=1), pod(1, node="n1")),
        nodes={"n0": node(), "n1": node("n1", unready_for=100)},
    )
    assert written(found).attempts[-1].cause is Cause.NODE_LOST


def test_an_attempt_is_closed_only_when_its_workload_is_evicted() -> None:
    of = job(ending(Cause.USER_ERROR))
    gone = (pod(0, "Failed", exit_code=1), pod(1, "Failed", exit_code=1))
    assert kinds(decided(of, workload=workload(of), pods=gone)) == ["EvictWorkload"]
    found = decided(of, workload=workload(of, EVICTED), pods=gone)
    status = written(found)
    assert status.phase is Phase.REQUEUED
    assert status.reason == WaitReason.BACKING_OFF
    assert status.counts.user_errors == 1
    assert actions.needs_certainty(found)


@pytest.mark.parametrize(
    ("preemptor", "words"),
    [
        (Preemptor("p", "ns/urgent"), "ns/urgent needs its GPUs and goes first"),
        (Preemptor("p"), "Preempted to accommodate"),
        (None, "Preempted to accommodate"),
    ],
)
def test_the_notice_of_a_preemption_names_who_is_known_to_need_the_gpus(
    preemptor: Preemptor | None, words: str
) -> None:
    of = job(running())
    told = decided(of, workload=workload(of, EVICTED), pods=GANG, preemptor=preemptor)
    assert words in written(told).message


def test_a_withdrawn_preemption_is_first_cancelled_then_forgotten() -> None:
    of = job(ending(Cause.PREEMPTED))
    gone = {"pods": GANG, "preemptor": Preemptor("p", "ns/p", waiting=False)}
    first = decided(of, workload=workload(of, EVICTED), **gone)
    assert kinds(first) == ["CancelEviction"]
    status = written(decided(of, workload=workload(of), pods=GANG))
    assert status.attempts[-1].cause is None
    assert status.grace_deadline is None
    assert status.reprieved_attempt == 1


# Release and after


def closed(cause: Cause = Cause.PREEMPTED, **fields: Any) -> JobStatus:
    last = Attempt(1, ago(100), ago(1), cause)
    defaults: dict[str, Any] = {"phase": Phase.REQUEUED, "attempt": 1, "attempts": (last,)}
    return JobStatus(**{**defaults, "ran_seconds": 99.0, **fields})


def test_quota_is_released_once_no_pod_is_alive() -> None:
    of = job(closed())
    (release,) = [
        a
        for a in decided(of, workload=workload(of, EVICTED))
        if isinstance(a, actions.ReleaseQuota)
    ]
    assert (release.hold, release.ran_seconds) == (False, 99)
    stray = decided(of, workload=workload(of, EVICTED), pods=(pod(0),))
    assert "ReleaseQuota" not in kinds(stray)


def test_a_boost_is_cleared_before_the_release() -> None:
    of = job(closed())
    held = workload(of, EVICTED)
    annotations = {**(held.metadata.annotations or {}), "kueue.x-k8s.io/priority-boost": "500"}
    metadata = msgspec.structs.replace(held.metadata, annotations=annotations)
    boosted = msgspec.structs.replace(held, metadata=metadata)
    assert kinds(decided(of, workload=boosted)) == ["UpdateWorkload", "ReleaseQuota"]


def test_a_job_that_backs_off_or_sleeps_is_released_on_hold() -> None:
    until = NOW + timedelta(seconds=10)
    for of in (job(closed(backoff_until=until)), job(closed(), suspend=True)):
        found = decided(of, workload=workload(of, EVICTED))
        assert [a.hold for a in found if isinstance(a, actions.ReleaseQuota)] == [True]


def test_a_suspended_job_is_deactivated_only_after_the_release() -> None:
    of = job(closed(), suspend=True)
    assert "UpdateWorkload" not in kinds(decided(of, workload=workload(of, EVICTED)))
    found = decided(of, workload=pending(of, condition("QuotaReserved", False, "OnHold")))
    (update,) = [a for a in found if isinstance(a, actions.UpdateWorkload)]
    assert update.patch == {"spec": {"active": False}}
    assert written(found).phase is Phase.SUSPENDED


def test_a_resumed_job_is_activated_and_woken() -> None:
    of = job(closed())
    asleep = pending(of, condition("QuotaReserved", False, "OnHold"), active=False)
    assert {"UpdateWorkload", "WakeWorkload"} <= set(kinds(decided(of, workload=asleep)))


def test_a_resumed_job_is_queued_and_not_called_stuck() -> None:
    of = job(closed())
    slept = condition("Evicted", True, "Suspended", "it was suspended by its user")
    found = decided(of, workload=pending(of, slept, active=False))
    assert written(found).reason == WaitReason.QUEUED


def test_a_workload_that_the_queue_gave_up_is_left_alone_and_told() -> None:
    of = job(closed())
    given_up = condition("Evicted", True, "DeactivatedDueToRequeuingLimitExceeded", "limit")
    found = decided(of, workload=pending(of, given_up, active=False))
    assert written(found).reason == WaitReason.STUCK
    assert "UpdateWorkload" not in kinds(found)


def test_a_hold_that_was_overwritten_is_written_again_until_the_time_is_up() -> None:
    until = NOW + timedelta(seconds=10)
    of = job(closed(Cause.START_FAILED, backoff_until=until))
    overwritten = pending(of, condition("QuotaReserved", False, "Pending"))
    found = decided(of, workload=overwritten)
    assert "HoldWorkload" in kinds(found)
    assert any(isinstance(a, actions.Wake) and a.after_seconds == 10 for a in found)
    over = job(closed(Cause.START_FAILED, backoff_until=ago(1)))
    assert "WakeWorkload" in kinds(
        decided(over, workload=pending(over, condition("QuotaReserved", False, "OnHold")))
    )


def test_a_workload_deleted_by_hand_is_let_go_and_made_anew() -> None:
    of = job(closed())
    assert "RemoveWorkloadFinalizer" in kinds(decided(of, workload=workload(of, deleting=True)))
    assert "CreateWorkload" in kinds(decided(of))
    orphaned = workload(of, condition("Finished", True, "OwnerNotFound"))
    assert kinds(decided(of, workload=orphaned)) == ["RemoveWorkloadFinalizer", "DeleteWorkload"]


def test_a_final_job_frees_its_quota_and_lets_its_objects_go() -> None:
    of = job(JobStatus(phase=Phase.SUCCEEDED, message="done"))
    found = decided(of, workload=workload(of))
    assert kinds(found) == ["FinishWorkload", "RemoveWorkloadFinalizer"]
    assert kinds(decided(of, workload=workload(of), pods=GANG)) == ["DeletePod", "DeletePod"]
    deleting = job(JobStatus(phase=Phase.SUCCEEDED), deleting=True)
    assert kinds(decided(deleting)) == ["RemoveJobFinalizer"]


def test_a_finished_job_is_deleted_after_its_ttl() -> None:
    ended = Condition("Failed", "True", "", "", ago(30), 1)
    status = JobStatus(phase=Phase.FAILED, conditions=(ended,))
    assert kinds(decided(job(status, ttl_seconds_after_finished=29))) == ["DeleteJob"]
    (wake,) = decided(job(status, ttl_seconds_after_finished=60))
    assert isinstance(wake, actions.Wake)
    assert 30 <= wake.after_seconds < 31


def test_a_job_deleted_while_it_waits_is_cancelled_first() -> None:
    of = job(deleting=True)
    assert written(decided(of, workload=pending(of))).phase is Phase.CANCELLED


def test_decisions_are_the_same_each_time_and_can_be_printed() -> None:
    of = job(running())
    view = {"workload": workload(of, EVICTED), "pods": GANG}
    assert decided(of, **view) == decided(of, **view)
    assert "Preempted" in repr(decided(of, **view))
