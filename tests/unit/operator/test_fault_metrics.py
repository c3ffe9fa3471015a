"""What faults cost jobs, as counted: each end once, each absence from its notice to its return."""

import msgspec
import pytest
from support.operator_builders import ago, job, running

from clusterops.api.reasons import Cause, Phase
from clusterops.core.observed import Attempt, JobStatus
from clusterops.operator.metrics import Metrics


@pytest.fixture
def metrics():
    return Metrics(lambda: ())


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(f"clusterops_{name}", labels)


def with_attempts(*attempts: Attempt, phase=Phase.RUNNING):
    return job(running(attempt=attempts[-1].number, attempts=attempts, phase=phase))


OPEN = Attempt(1, started_at=ago(100))
TOLD = msgspec.structs.replace(OPEN, cause=Cause.NODE_FAULT)
ENDED = msgspec.structs.replace(TOLD, ended_at=ago(10), lost_steps=7, lost_gpu_seconds=3.5)
NEXT = Attempt(2)
BACK = msgspec.structs.replace(NEXT, started_at=ago(1))


def play(metrics, *moments):
    """Each version of the job, at the second that it is seen."""
    before = None
    for second, after in enumerate(moments):
        metrics.job_changed(before, after, float(second))
        before = after


def test_steps_and_seconds_are_counted_once_by_what_ended_the_attempt(metrics):
    ended = with_attempts(ENDED)
    play(metrics, with_attempts(OPEN), with_attempts(TOLD), ended, ended)
    assert value(metrics, "lost_steps_total", cause="NodeFault") == 7
    assert value(metrics, "lost_gpu_seconds_total", cause="NodeFault") == 3.5
    assert value(metrics, "lost_steps_total", cause="Preempted") == 0


def test_a_fault_lasts_from_its_notice_until_all_ranks_run_again(metrics):
    moments = [(OPEN,), (TOLD,), (ENDED,), (ENDED, NEXT), (ENDED, BACK), (ENDED, BACK)]
    play(metrics, *(with_attempts(*attempts) for attempts in moments))
    assert value(metrics, "fault_to_running_seconds_count") == 1
    assert value(metrics, "fault_to_running_seconds_sum") == 3.0


def test_a_preemption_is_no_fault(metrics):
    told, ended = (msgspec.structs.replace(one, cause=Cause.PREEMPTED) for one in (TOLD, ENDED))
    moments = [(OPEN,), (told,), (ended,), (ended, NEXT), (ended, BACK)]
    play(metrics, *(with_attempts(*attempts) for attempts in moments))
    assert value(metrics, "fault_to_running_seconds_count") == 0


@pytest.mark.parametrize("last", [None, job(JobStatus(phase=Phase.CANCELLED))])
def test_a_job_that_never_comes_back_is_forgotten(metrics, last):
    play(metrics, with_attempts(OPEN), with_attempts(TOLD), last)
    assert metrics._faulted == {}


def test_what_an_earlier_process_saw_is_not_guessed(metrics):
    metrics.job_changed(None, with_attempts(ENDED), 0.0)
    metrics.job_changed(with_attempts(ENDED, NEXT), with_attempts(ENDED, BACK), 1.0)
    assert value(metrics, "fault_to_running_seconds_count") == 0
    assert value(metrics, "lost_steps_total", cause="NodeFault") == 0


def test_an_attempt_that_reported_no_steps_counts_as_unknown_and_not_as_none_lost() -> None:
    metrics = Metrics(lambda: ())
    silent = msgspec.structs.replace(ENDED, lost_steps=None, lost_gpu_seconds=540.0)
    metrics.job_changed(with_attempts(TOLD), with_attempts(silent), 0.0)
    assert value(metrics, "attempts_ended_steps_unknown_total", cause="NodeFault") == 1
    assert value(metrics, "lost_steps_total", cause="NodeFault") == 0
    assert value(metrics, "lost_gpu_seconds_total", cause="NodeFault") == 540
