"""Which events a status change tells."""

import msgspec
from support.operator_builders import NOW, ending, running

from clusterops.api.reasons import Cause, Phase, WaitReason
from clusterops.core.observed import JobStatus, Progress
from clusterops.core.transitions import told


def reasons(before: JobStatus, after: JobStatus) -> list[str]:
    return [event.reason for event in told(before, after)]


def test_progress_tells_nothing() -> None:
    before = running()
    after = msgspec.structs.replace(before, progress=Progress(5))
    assert told(before, after) == []


def test_a_new_attempt_a_notice_and_an_end_are_told_once_each() -> None:
    begun = running(started_at=None)
    assert reasons(JobStatus(), msgspec.structs.replace(begun, phase=Phase.ADMITTED)) == [
        "Admitted"
    ]
    noticed = ending(Cause.PREEMPTED)
    assert reasons(running(), noticed) == ["NoticeGiven"]
    assert reasons(noticed, noticed) == []
    ended = msgspec.structs.replace(noticed.attempts[0], ended_at=NOW, lost_steps=0)
    closed = msgspec.structs.replace(noticed, attempts=(ended,), phase=Phase.REQUEUED)
    (event,) = told(noticed, closed)
    assert (event.reason, event.type) == ("Preempted", "Normal")
    assert "nothing was lost" in event.message


def test_a_withdrawn_notice_is_told() -> None:
    assert reasons(ending(Cause.PREEMPTED), running()) == ["NoticeWithdrawn"]


def test_an_end_by_error_warns() -> None:
    noticed = ending(Cause.USER_ERROR)
    ended = msgspec.structs.replace(noticed.attempts[0], ended_at=NOW, lost_steps=7)
    closed = msgspec.structs.replace(noticed, attempts=(ended,), phase=Phase.FAILED)
    assert [event.type for event in told(noticed, closed)] == ["Warning", "Warning"]
    assert "7 steps" in told(noticed, closed)[0].message


def test_waits_that_need_somebody_are_told_and_others_are_not() -> None:
    waiting = JobStatus(reason=WaitReason.WAITING_FOR_QUOTA)
    never = JobStatus(reason=WaitReason.NEVER_FITS, message="at most 2")
    assert reasons(waiting, never) == ["NeverFits"]
    assert reasons(never, waiting) == []


def test_an_end_whose_lost_steps_are_unknown_does_not_claim_that_nothing_was_lost() -> None:
    noticed = ending(Cause.EVICTED)
    ended = msgspec.structs.replace(noticed.attempts[0], ended_at=NOW)
    (event,) = told(noticed, msgspec.structs.replace(noticed, attempts=(ended,)))
    assert "nothing was lost" not in event.message
    assert "it reported none" in event.message
