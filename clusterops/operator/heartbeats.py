"""What the ranks of running jobs reported last, in memory.

A restarted operator starts empty and hears everything again within one interval: each heartbeat
tells the whole state of its rank. Times are monotonic seconds, handed in.
"""

from typing import NamedTuple

from clusterops.api.heartbeat import Heartbeat
from clusterops.core.observed import RankReport

# How much of the newest rate goes into the average: about the last ten reports count.
_RATE_WEIGHT = 0.2


class _Rank:
    """One rank's newest report."""

    __slots__ = ("at", "durable_at", "heartbeat")

    def __init__(self, heartbeat: Heartbeat, at: float, durable_at: float) -> None:
        self.heartbeat = heartbeat
        self.at = at
        self.durable_at = durable_at


class _Attempt:
    """All ranks of the newest attempt of one job that was heard of."""

    __slots__ = ("number", "ranks", "rate", "rate_at", "rate_step", "rises")

    def __init__(self, number: int) -> None:
        self.number = number
        self.ranks: dict[int, _Rank] = {}
        self.rate: float | None = None
        self.rate_step = 0
        self.rate_at: float | None = None
        self.rises = 0


class News(NamedTuple):
    """What a heartbeat told that was not known: `first` of its rank, a newer durable step, the end."""

    first: bool
    durable: bool
    finished: bool
    step: bool


class HeartbeatTable:
    """The newest report per job and rank; of each job only its newest attempt is kept."""

    def __init__(self) -> None:
        self._attempts: dict[str, _Attempt] = {}

    def __len__(self) -> int:
        return len(self._attempts)

    def ranks(self) -> int:
        """How many ranks are known in all."""
        return sum(len(attempt.ranks) for attempt in self._attempts.values())

    def record(self, job_uid: str, heartbeat: Heartbeat, now: float) -> News:
        """Takes one report. One of an older attempt than is known tells nothing."""
        attempt = self._attempts.get(job_uid)
        if attempt is None or attempt.number < heartbeat.attempt:
            attempt = self._attempts[job_uid] = _Attempt(heartbeat.attempt)
        elif attempt.number > heartbeat.attempt:
            return News(first=False, durable=False, finished=False, step=False)
        before = attempt.ranks.get(heartbeat.rank)
        known = before.heartbeat if before is not None else None
        heartbeat = _newest(known, heartbeat)
        durable = heartbeat.durable is not None and (
            known is None or known.durable is None or known.durable.step < heartbeat.durable.step
        )
        durable_at = now if durable or before is None else before.durable_at
        attempt.ranks[heartbeat.rank] = _Rank(heartbeat, now, durable_at)
        if heartbeat.rank == min(attempt.ranks):
            _measure(attempt, heartbeat.step, now)
        return News(
            first=known is None,
            durable=durable,
            finished=heartbeat.finished and (known is None or not known.finished),
            step=known is None or known.step != heartbeat.step,
        )

    def reports(self, job_uid: str, attempt: int, now: float) -> tuple[RankReport, ...]:
        """The reports of one attempt by rank; empty when another is known."""
        known = self._attempts.get(job_uid)
        if known is None or known.number != attempt:
            return ()
        return tuple(
            RankReport(
                rank=rank,
                step=state.heartbeat.step,
                age_seconds=now - state.at,
                total_steps=state.heartbeat.total_steps,
                durable_step=state.heartbeat.durable.step if state.heartbeat.durable else None,
                durable_age_seconds=now - state.durable_at,
                finished=state.heartbeat.finished,
                problem=state.heartbeat.problem,
            )
            for rank, state in sorted(known.ranks.items())
        )

    def steps_per_second(self, job_uid: str, attempt: int) -> float | None:
        """The recent rate of one attempt, None until it has done a step."""
        known = self._attempts.get(job_uid)
        return known.rate if known is not None and known.number == attempt else None

    def forget(self, job_uid: str) -> None:
        """Drops a job that no longer exists or runs."""
        self._attempts.pop(job_uid, None)


def _newest(known: Heartbeat | None, arrived: Heartbeat) -> Heartbeat:
    """Two reports on two connections may overtake one another: nothing goes back."""
    if known is None or (arrived.step, arrived.finished) >= (known.step, known.finished):
        return arrived
    return known


def _measure(attempt: _Attempt, step: int, now: float) -> None:
    if attempt.rate_at is not None and step <= attempt.rate_step:
        return
    # The first rise may be a resume, not steps done: the measuring begins after it.
    seconds = now - attempt.rate_at if attempt.rate_at is not None and attempt.rises else 0.0
    if seconds > 0:
        rate = (step - attempt.rate_step) / seconds
        before = attempt.rate if attempt.rate is not None else rate
        attempt.rate = before + _RATE_WEIGHT * (rate - before)
    attempt.rises += attempt.rate_at is not None
    attempt.rate_step, attempt.rate_at = step, now
