"""Deadlines of the reward queue: what is overdue, and which requests are slow enough to hedge.

Deadlines are equal for all, so a queue by beginning is a queue by deadline, and looking costs
nothing while none is due. Whether something is still under way, the owner knows.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rlhf.reward_queue_latency import LatencyHistogram
from rlhf.reward_queue_types import Limits

_MEASURE_AGAIN = 32


class Pending(NamedTuple):
    """Something with a deadline: a response being made, or an attempt being graded."""

    since: float
    seq: int
    draw: int
    number: int


class Deadlines:
    """Rollouts and attempts by the time of their beginning."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.latencies = LatencyHistogram()
        self.claims = self.hedges = 0
        self._rollouts: deque[Pending] = deque()
        self._attempts: deque[Pending] = deque()
        self._slow: deque[Pending] = deque()
        self._threshold = 0.0
        self._measured = 0

    def rollout(self, pending: Pending) -> None:
        """A response is being made from now on."""
        self._rollouts.append(pending)

    def attempt(self, pending: Pending, hedge: bool) -> None:
        """A sample is being graded from now on."""
        self._attempts.append(pending)
        self.claims += 1
        if hedge:
            self.hedges += 1
        elif self.limits.hedge.budget:
            self._slow.append(pending)

    def answered(self, seconds: float) -> None:
        """An attempt took so long."""
        self.latencies.add(seconds)

    def overdue_rollouts(self, now: float) -> Iterator[Pending]:
        """Those whose deadline has passed, each once; they may be done already."""
        return _due(self._rollouts, now - self.limits.rollout_seconds)

    def overdue_attempts(self, now: float) -> Iterator[Pending]:
        """Those whose deadline has passed, each once; they may be done already."""
        return _due(self._attempts, now - self.limits.grading_seconds)

    def to_hedge(self, now: float, live: Callable[[Pending], bool]) -> Iterator[Pending]:
        """Attempts slower than the percentile and still under way, as far as the budget goes."""
        after = self.hedge_after()
        if after is None:
            return
        started = self.hedges
        while self._slow:
            if not live(self._slow[0]):
                self._slow.popleft()
                continue
            affordable = started + 1 <= self.limits.hedge.budget * self.claims
            if now - self._slow[0].since < after or not affordable:
                return
            started += 1
            yield self._slow.popleft()

    def hedge_after(self) -> float | None:
        """The age at which an attempt is slow, in seconds; None while too few were measured."""
        hedge, count = self.limits.hedge, self.latencies.count
        if not hedge.budget or count < hedge.after_samples:
            return None
        if count >= self._measured + _MEASURE_AGAIN or not self._measured:
            self._threshold = self.latencies.percentile(hedge.percentile)
            self._measured = count
        return self._threshold

    def next_at(self) -> float | None:
        """The earliest time at which something may be due; None: nothing is under way."""
        times = []
        if self._rollouts:
            times.append(self._rollouts[0].since + self.limits.rollout_seconds)
        if self._attempts:
            times.append(self._attempts[0].since + self.limits.grading_seconds)
        after = self.hedge_after()
        if (
            self._slow
            and after is not None
            and self.hedges + 1 <= self.limits.hedge.budget * self.claims
        ):
            times.append(self._slow[0].since + after)
        return min(times, default=None)

    def forget_done(
        self, live_rollout: Callable[[Pending], bool], live: Callable[[Pending], bool]
    ) -> None:
        """Drops from the front what is done, so that deadlines of finished work wake nobody."""
        while self._rollouts and not live_rollout(self._rollouts[0]):
            self._rollouts.popleft()
        for queue in (self._attempts, self._slow):
            while queue and not live(queue[0]):
                queue.popleft()


def _due(queue: deque[Pending], begun_before: float) -> Iterator[Pending]:
    while queue and queue[0].since <= begun_before:
        yield queue.popleft()
