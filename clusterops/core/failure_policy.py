"""What follows the end of an attempt: another one, after which wait, or the end of the job.

Only the user's own errors use up `backoffLimit`; starts that fail have a budget of their own.
Preemption and suspension are tried again at once: their place in the queue is the wait. Everything
that could repeat by itself (a fault, a node, a start, an eviction by the node: a program that fills
its disk is put out each time) backs off by how often it happened in a row without new durable work.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from clusterops.api.reasons import Cause, Phase
from clusterops.core.observed import Attempt, TrainingJob
from clusterops.core.settings import Settings

# One retry of these is free: another node is likely to do, and the queue place is a wait as well.
_FIRST_IS_FREE = (Cause.NODE_FAULT, Cause.NODE_LOST, Cause.EVICTED)
_BACKS_OFF = (Cause.USER_ERROR, Cause.START_FAILED, *_FIRST_IS_FREE)
# A job that ran so long before it was put out loads nobody by beginning again at once.
_LONG_RUN = timedelta(minutes=5)


class Sequel(NamedTuple):
    """What the job does next. `phase` is final, Requeued or Suspended."""

    phase: Phase
    message: str
    backoff_until: datetime | None = None


def sequel(
    job: TrainingJob, ended: Attempt, user_errors: int, now: datetime, settings: Settings
) -> Sequel:
    """The job's future after `ended`, its last attempt; `user_errors` includes this one."""
    cause = ended.cause
    assert cause is not None, "an ended attempt has a cause"
    sentence = ended.message or cause.sentence
    if cause is Cause.COMPLETED:
        return Sequel(Phase.SUCCEEDED, cause.sentence)
    if cause is Cause.CANCELLED or job.metadata.deleting or job.spec.stop is not None:
        return Sequel(Phase.CANCELLED, Cause.CANCELLED.sentence)
    if cause is Cause.DEADLINE_EXCEEDED:
        return Sequel(Phase.FAILED, sentence)
    limit = job.spec.backoff_limit
    if cause is Cause.USER_ERROR and user_errors > limit:
        tries = f"{user_errors} time{'s' if user_errors != 1 else ''}"
        return Sequel(Phase.FAILED, f"{sentence}; failed {tries}, backoffLimit is {limit}")
    if cause is Cause.START_FAILED:
        starts = starts_failed((*job.status.attempts[:-1], ended))
        if starts >= settings.start_failures:
            return Sequel(Phase.FAILED, f"{sentence}; it could not start {starts} times in a row")
    if job.spec.suspend:
        return Sequel(Phase.SUSPENDED, Cause.SUSPENDED.sentence)
    delay = backoff_seconds((*job.status.attempts[:-1], ended), settings)
    until = now + timedelta(seconds=delay) if delay > 0 else None
    return Sequel(Phase.REQUEUED, sentence, until)


def backoff_seconds(attempts: tuple[Attempt, ...], settings: Settings) -> float:
    """How long to wait after the last of `attempts`: doubled for each in a row, bounded."""
    last = attempts[-1]
    if last.cause not in _BACKS_OFF:
        return 0.0
    in_a_row = failures_in_a_row(attempts)
    if last.cause in _FIRST_IS_FREE:
        in_a_row -= 1
    if in_a_row <= 0:
        return 0.0
    delay = settings.backoff_base_seconds * 2.0 ** min(in_a_row - 1, 30)
    return min(delay, settings.backoff_most_seconds)


def starts_failed(attempts: tuple[Attempt, ...]) -> int:
    """How many of the newest attempts ended before they ran."""
    count = 0
    for attempt in reversed(attempts):
        if attempt.cause is not Cause.START_FAILED:
            break
        count += 1
    return count


def failures_in_a_row(attempts: tuple[Attempt, ...]) -> int:
    """How many of the newest attempts failed; one that saved something new begins a new row."""
    count = 0
    for attempt in reversed(attempts):
        if attempt.cause not in _BACKS_OFF or _ran_long_enough(attempt):
            break
        count += 1
        if _made_progress(attempt):
            break
    return count


def _ran_long_enough(attempt: Attempt) -> bool:
    if attempt.cause is not Cause.EVICTED or attempt.started_at is None:
        return False
    return attempt.ended_at is not None and attempt.ended_at - attempt.started_at >= _LONG_RUN


def _made_progress(attempt: Attempt) -> bool:
    durable = attempt.durable_step
    return durable is not None and durable > (attempt.first_step or 0)
