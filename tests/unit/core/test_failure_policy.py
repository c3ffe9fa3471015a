"""Budgets by cause, and back-off."""

from datetime import timedelta

import msgspec
import pytest
from support.operator_builders import NOW, job, running

from clusterops.api.reasons import Cause, Phase
from clusterops.core.failure_policy import backoff_seconds, failures_in_a_row, sequel
from clusterops.core.observed import Attempt
from clusterops.core.settings import Settings

SETTINGS = Settings(backoff_base_seconds=10, backoff_most_seconds=300)


def ended(cause: Cause, number: int = 1, **fields: int | str) -> Attempt:
    return Attempt(number, ended_at=NOW, cause=cause, **fields)


@pytest.mark.parametrize("cause", [c for c in Cause if c is not Cause.USER_ERROR])
def test_only_the_users_own_error_can_exceed_the_limit(cause: Cause) -> None:
    after = sequel(job(running(), backoff_limit=0), ended(cause), 99, NOW, SETTINGS)
    final = {
        Cause.COMPLETED: Phase.SUCCEEDED,
        Cause.CANCELLED: Phase.CANCELLED,
        Cause.DEADLINE_EXCEEDED: Phase.FAILED,
    }
    assert after.phase is final.get(cause, Phase.REQUEUED)


def test_the_limit_is_the_number_of_retries() -> None:
    of = job(running(), backoff_limit=2)
    assert sequel(of, ended(Cause.USER_ERROR), 2, NOW, SETTINGS).phase is Phase.REQUEUED
    last = sequel(of, ended(Cause.USER_ERROR), 3, NOW, SETTINGS)
    assert last.phase is Phase.FAILED
    assert "backoffLimit is 2" in last.message


@pytest.mark.parametrize(
    ("before", "phase"),
    [
        ([Cause.START_FAILED] * 1, Phase.REQUEUED),
        ([Cause.START_FAILED] * 2, Phase.FAILED),
        ([Cause.START_FAILED, Cause.PREEMPTED, Cause.START_FAILED], Phase.REQUEUED),
        ([Cause.NODE_LOST] * 9, Phase.REQUEUED),
    ],
)
def test_starts_that_fail_again_and_again_end_the_job(before: list[Cause], phase: Phase) -> None:
    attempts = [ended(cause, number) for number, cause in enumerate(before, 1)]
    last = ended(Cause.START_FAILED, len(before) + 1, message="rank 0 could not start: no image")
    of = job(msgspec.structs.replace(running(), attempts=(*attempts, last)))
    after = sequel(of, last, 0, NOW, Settings(start_failures=3))
    assert after.phase is phase
    if phase is Phase.FAILED:
        assert after.message == (
            "rank 0 could not start: no image; it could not start 3 times in a row"
        )


def test_preemption_and_suspension_wait_for_nothing() -> None:
    for cause in (Cause.PREEMPTED, Cause.SUSPENDED):
        assert backoff_seconds((ended(cause),) * 5, SETTINGS) == 0


def test_backoff_doubles_and_is_bounded() -> None:
    rows = [backoff_seconds((ended(Cause.START_FAILED),) * n, SETTINGS) for n in range(1, 9)]
    assert rows == [10, 20, 40, 80, 160, 300, 300, 300]


def test_the_first_lost_node_is_retried_at_once() -> None:
    assert backoff_seconds((ended(Cause.NODE_LOST),), SETTINGS) == 0
    assert backoff_seconds((ended(Cause.NODE_LOST),) * 2, SETTINGS) == 10


def test_a_job_that_is_put_out_again_and_again_waits_longer_each_time() -> None:
    evicted = ended(Cause.EVICTED)
    rows = [backoff_seconds((evicted,) * n, SETTINGS) for n in range(1, 5)]
    assert rows == [0, 10, 20, 40]
    useful = ended(Cause.EVICTED, first_step=10, durable_step=20)
    assert backoff_seconds((evicted, evicted, useful), SETTINGS) == 0, "it gets on"
    long = Attempt(3, started_at=NOW - timedelta(hours=1), ended_at=NOW, cause=Cause.EVICTED)
    assert backoff_seconds((evicted, evicted, long), SETTINGS) == 0, "no storm"


def test_new_durable_work_begins_a_new_row() -> None:
    failed = ended(Cause.USER_ERROR)
    useful = ended(Cause.USER_ERROR, first_step=10, durable_step=20)
    idle = ended(Cause.USER_ERROR, first_step=20, durable_step=20)
    assert failures_in_a_row((failed, failed, useful)) == 1
    assert failures_in_a_row((failed, useful, idle)) == 2
    assert failures_in_a_row((failed, ended(Cause.PREEMPTED), failed)) == 1


def test_a_job_being_deleted_or_stopped_has_no_next_attempt() -> None:
    failed = ended(Cause.USER_ERROR)
    assert sequel(job(running(), deleting=True), failed, 1, NOW, SETTINGS).phase is Phase.CANCELLED
    assert sequel(job(running(), stop="Now"), failed, 1, NOW, SETTINGS).phase is Phase.CANCELLED
    completed = sequel(job(running(), stop="Now"), ended(Cause.COMPLETED), 0, NOW, SETTINGS)
    assert completed.phase is Phase.SUCCEEDED
