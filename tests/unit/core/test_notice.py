"""The window between notice and release: whom to ask, when to TERM, when to release together."""

from datetime import timedelta

import pytest
from support.operator_builders import NOW, condition, ending, job, pod, report, running, workload

from clusterops.api.reasons import Cause, WaitReason
from clusterops.core import notice
from clusterops.core.observed import Checkpoint, FellowVictim, Observed, Preemptor, TrainingJob
from clusterops.core.settings import Settings

SETTINGS = Settings(leave_seconds=5, barrier_slack_seconds=15, longest_grace_seconds=600)
GANG = (pod(0), pod(1))
EVICTED = condition("Evicted", True, "Preempted")


def planned(of: TrainingJob, **observed: object) -> notice.Plan:
    attempt = of.status.open_attempt
    assert attempt is not None
    view = Observed(**{"workload": workload(of, EVICTED), "pods": GANG, **observed})
    return notice.plan(of, attempt, view, NOW, SETTINGS)


def test_a_reporting_job_is_left_alone_while_it_saves() -> None:
    plan = planned(job(ending(Cause.PREEMPTED, 100)), reports=(report(0, 9, 5), report(1, 9)))
    assert plan.reason is WaitReason.SAVING_BEFORE_RELEASE
    assert plan.terminate_grace is None
    assert plan.recheck_seconds == 100 - 15


def test_a_job_that_never_reported_gets_term_at_once_with_the_window_as_grace() -> None:
    plan = planned(job(ending(Cause.PREEMPTED, 100, first_step=None)))
    assert plan.terminate_grace == 100


def test_a_restarted_operator_remembers_that_the_job_reports() -> None:
    plan = planned(job(ending(Cause.PREEMPTED, 100, first_step=0)))
    assert plan.terminate_grace is None


def test_a_durable_save_ends_the_window_after_a_moment_to_leave() -> None:
    of = job(ending(Cause.PREEMPTED, 100))
    fresh = (report(0, 9, 9, durable_age_seconds=1.0), report(1, 9, durable_age_seconds=9.0))
    waiting = planned(of, reports=fresh)
    assert waiting.terminate_grace is None
    assert waiting.recheck_seconds == 4
    old = (report(0, 9, 9, durable_age_seconds=6.0),)
    assert planned(of, reports=old).terminate_grace == 100


@pytest.mark.parametrize(("window", "margin"), [(120, 15), (60, 15), (20, 5), (4, 1)])
def test_term_comes_a_margin_before_the_deadline(window: int, margin: int) -> None:
    checkpoint = Checkpoint("/c", window)
    reports = (report(0, 9, 5),)
    late = job(ending(Cause.PREEMPTED, margin), checkpoint=checkpoint)
    assert planned(late, reports=reports).terminate_grace == margin
    early = job(ending(Cause.PREEMPTED, margin + 1), checkpoint=checkpoint)
    assert planned(early, reports=reports).terminate_grace is None


def test_a_broken_gang_cannot_save_together() -> None:
    of, reports = job(ending(Cause.PREEMPTED)), (report(0, 9), report(1, 9))
    failed = (pod(0), pod(1, "Failed", exit_code=1))
    assert planned(of, reports=reports, pods=failed).terminate_grace == 60
    assert planned(of, reports=reports, pods=(pod(0),)).terminate_grace == 60
    assert planned(job(ending(Cause.USER_ERROR)), reports=reports).terminate_grace == 60
    assert planned(job(ending(Cause.CANCELLED), stop="Now"), reports=reports).terminate_grace == 60


def test_a_rank_that_left_as_asked_does_not_break_the_gang() -> None:
    reports = (report(0, 9, 9), report(1, 9))
    left = (pod(0), pod(1, "Failed", exit_code=143))
    assert planned(job(ending(Cause.PREEMPTED)), reports=reports, pods=left).terminate_grace is None


def test_windows_are_bounded_by_the_cluster_and_nothing_without_pods() -> None:
    of = job(running(), checkpoint=Checkpoint("/c", 3600))
    alive, ended = Observed(pods=GANG), Observed()
    assert notice.window_seconds(of, Cause.PREEMPTED, alive, SETTINGS) == 600
    assert notice.window_seconds(of, Cause.USER_ERROR, alive, SETTINGS) == 30
    assert notice.window_seconds(of, Cause.PREEMPTED, ended, SETTINGS) == 0


def test_the_request_to_save_is_the_same_for_every_operator() -> None:
    of = job(ending(Cause.PREEMPTED, 60))
    first = notice.save_request(of, NOW)
    second = notice.save_request(of, NOW + timedelta(seconds=20))
    assert first is not None
    assert second is not None
    assert first.id == second.id
    assert (first.remaining_seconds, second.remaining_seconds) == (60, 40)
    assert first.then_exit


@pytest.mark.parametrize(
    "of", [job(running()), job(ending(Cause.USER_ERROR)), job(ending(Cause.CANCELLED), stop="Now")]
)
def test_nobody_is_asked_to_save_without_a_notice_that_leaves_time(of: TrainingJob) -> None:
    assert notice.save_request(of, NOW) is None


def withdrawn(of: TrainingJob, **observed: object) -> str:
    attempt = of.status.open_attempt
    assert attempt is not None
    return notice.withdrawn(of, attempt, Observed(**{"pods": GANG, **observed}))


def test_a_preemption_is_withdrawn_once_nobody_waits_for_the_quota() -> None:
    of = job(ending(Cause.PREEMPTED))
    held = {"workload": workload(of, EVICTED)}
    assert not withdrawn(of, **held, preemptor=Preemptor("p"))
    assert withdrawn(of, **held, preemptor=Preemptor("p", waiting=False))
    assert withdrawn(of, workload=workload(of))


def test_nothing_is_withdrawn_once_a_rank_has_left_or_got_term() -> None:
    of = job(ending(Cause.PREEMPTED))
    gone = {"workload": workload(of, EVICTED), "preemptor": Preemptor("p", waiting=False)}
    assert not withdrawn(of, **gone, pods=(pod(0), pod(1, "Failed", exit_code=143)))
    assert not withdrawn(of, **gone, pods=(pod(0), pod(1, deleting=True)))
    assert not withdrawn(of, **gone, pods=(pod(0),))


def test_a_user_who_suspends_in_the_window_keeps_the_notice_alive() -> None:
    of = job(ending(Cause.PREEMPTED), suspend=True)
    gone = {"workload": workload(of, EVICTED), "preemptor": Preemptor("p", waiting=False)}
    assert not withdrawn(of, **gone)
    assert withdrawn(job(ending(Cause.SUSPENDED)), workload=workload(of, EVICTED))


def test_victims_of_one_preemptor_wait_for_each_other_but_not_for_ever() -> None:
    def fellow(ready: bool, left: float) -> FellowVictim:
        return FellowVictim("research/b", ready, NOW + timedelta(seconds=left))

    waiting = Preemptor("p")
    slow = Observed(preemptor=waiting, fellow_victims=(fellow(False, 10),))
    words, seconds = notice.barrier(slow, NOW, SETTINGS)
    assert "research/b" in words
    assert seconds == 25
    ready = Observed(preemptor=waiting, fellow_victims=(fellow(True, 10),))
    assert notice.barrier(ready, NOW, SETTINGS) == ("", 0.0)
    dead = Observed(preemptor=waiting, fellow_victims=(fellow(False, -15),))
    assert notice.barrier(dead, NOW, SETTINGS) == ("", 0.0)
    gone = Observed(preemptor=Preemptor("p", waiting=False), fellow_victims=(fellow(False, 10),))
    assert notice.barrier(gone, NOW, SETTINGS) == ("", 0.0)
