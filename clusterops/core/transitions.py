"""What to tell people when a job's status changes: events, told from the two statuses."""

from typing import Literal, NamedTuple

from clusterops.api.reasons import Cause, Phase, WaitReason
from clusterops.core.observed import Attempt, JobStatus

_GOOD = (Cause.COMPLETED, Cause.PREEMPTED, Cause.EVICTED, Cause.SUSPENDED, Cause.CANCELLED)
# Waits that somebody has to do something about.
_WARNED = (
    WaitReason.QUEUE_NOT_FOUND,
    WaitReason.PRIORITY_CLASS_NOT_FOUND,
    WaitReason.NEVER_FITS,
    WaitReason.STUCK,
)


class Told(NamedTuple):
    """One event: its type, the word for programs, the sentence for people."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def told(before: JobStatus, after: JobStatus) -> list[Told]:
    """The events of one status write, in order; progress alone tells nothing."""
    events: list[Told] = []
    if after.attempt > before.attempt:
        events.append(Told("Normal", "Admitted", f"attempt {after.attempt} begins"))
    events.extend(_attempt_events(before, after))
    if after.phase is not before.phase:
        events.extend(_phase_events(before, after))
    elif after.reason != before.reason and after.reason in _WARNED:
        events.append(Told("Warning", str(after.reason), after.message))
    return events


def _attempt_events(before: JobStatus, after: JobStatus) -> list[Told]:
    new = after.attempts[-1] if after.attempts else None
    if new is None:
        return []
    old = next((attempt for attempt in before.attempts if attempt.number == new.number), None)
    events = []
    if new.cause is not None and (old is None or old.cause is None) and new.ended_at is None:
        events.append(Told("Normal", "NoticeGiven", _notice(new, after)))
    if old is not None and old.cause is not None and new.cause is None:
        events.append(Told("Normal", "NoticeWithdrawn", after.message))
    if new.ended_at is not None and (old is None or old.ended_at is None):
        events.append(_ended(new))
    return events


def _notice(attempt: Attempt, after: JobStatus) -> str:
    until = f", until {after.grace_deadline:%H:%M:%S} UTC" if after.grace_deadline else ""
    return f"attempt {attempt.number} ends ({attempt.cause}){until}: {attempt.message}"


def _ended(attempt: Attempt) -> Told:
    assert attempt.cause is not None, "an ended attempt has a cause"
    lost, words = attempt.lost_steps, "how many of its steps are lost is unknown: it reported none"
    if lost is not None:
        words = "nothing was lost" if not lost else f"{lost} steps are to be done again"
    return Told(
        "Normal" if attempt.cause in _GOOD else "Warning",
        str(attempt.cause),
        f"attempt {attempt.number} ended, {words}: {attempt.message}",
    )


def _phase_events(before: JobStatus, after: JobStatus) -> list[Told]:
    if after.phase is Phase.RUNNING and before.phase is not Phase.CHECKPOINTING:
        return [Told("Normal", "Running", f"attempt {after.attempt} runs")]
    if after.phase is Phase.SUCCEEDED:
        return [Told("Normal", "Succeeded", after.message)]
    if after.phase is Phase.FAILED:
        return [Told("Warning", "Failed", after.message)]
    if after.phase is Phase.CANCELLED:
        return [Told("Normal", "Cancelled", after.message)]
    if after.phase is Phase.SUSPENDED:
        return [Told("Normal", "Suspended", after.message)]
    if after.phase in (Phase.PENDING, Phase.REQUEUED) and after.reason in _WARNED:
        return [Told("Warning", str(after.reason), after.message)]
    return []
