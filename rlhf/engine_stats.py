"""What the engine says about itself: use of the memory, tax of preemption, time of the stages.

Gauges are read from counts that are kept anyway; a histogram keeps durations in buckets that grow by
a quarter each, so that a percentile is right within 12 % whatever its size, in constant memory.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rlhf.kv.scheduler import Scheduler

_GROWTH = 1.25
_SMALLEST = 1e-6

STAGES = ("schedule", "prepare", "forward", "draw", "commit")


class Summary(NamedTuple):
    """Durations in seconds, and how many there were."""

    times: int
    total: float
    p50: float
    p99: float
    maximum: float


class Histogram:
    """Durations, in buckets of growing width."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._count = 0
        self._total = 0.0
        self._maximum = 0.0

    def add(self, seconds: float) -> None:
        """One more duration."""
        bucket = math.ceil(math.log(max(seconds, _SMALLEST) / _SMALLEST, _GROWTH))
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self._count += 1
        self._total += seconds
        self._maximum = max(self._maximum, seconds)

    def summary(self) -> Summary:
        """What there was."""
        return Summary(
            self._count, self._total, self._quantile(0.5), self._quantile(0.99), self._maximum
        )

    def _quantile(self, share: float) -> float:
        reached = 0
        for bucket in sorted(self._counts):
            reached += self._counts[bucket]
            if reached >= share * self._count:
                middle = _SMALLEST * math.pow(_GROWTH, bucket - 0.5)
                return min(middle, self._maximum)
        return 0.0


class Stopwatch:
    """Times the stages of a step with a clock that is handed in."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._stages = {name: Histogram() for name in STAGES}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times what is done inside."""
        begun = self._clock()
        try:
            yield
        finally:
            self._stages[name].add(self._clock() - begun)

    def summaries(self) -> dict[str, Summary]:
        """By stage, in the order of a step."""
        return {name: self._stages[name].summary() for name in STAGES}


class MemoryUse(NamedTuple):
    """Tokens of keys and values. `reserved` = `live` + `slack` + `copied`.

    `slack` is room in last blocks, `copied` what siblings hold a second time of a partial block.
    `unreferenced` belongs to nobody and can be found again until the room is needed.
    `saved_by_sharing` would be held besides if every sequence had its own blocks.
    """

    live: int
    reserved: int
    slack: int
    copied: int
    unreferenced: int
    saved_by_sharing: int
    capacity: int


class Work(NamedTuple):
    """Counts since the engine was made. The preemption tax is `recomputed` of `computed` tokens.

    `found` tokens were not computed but taken from earlier or sibling sequences. `stale` tokens were
    drawn by one policy version over keys and values of an earlier one. `mean_live`, `mean_reserved`
    and `mean_running` are per iteration.
    """

    iterations: int
    computed: int
    recomputed: int
    found: int
    generated: int
    stale: int
    preemptions: int
    retractions: int
    evictions: int
    mean_live: float
    mean_reserved: float
    mean_running: float


class EngineReport(NamedTuple):
    """Everything: who is here, memory, work, and seconds by stage."""

    waiting: int
    running: int
    finished: dict[str, int]
    memory: MemoryUse
    work: Work
    stages: dict[str, Summary]


class Averages:
    """Sums over iterations."""

    def __init__(self) -> None:
        self.live = 0
        self.reserved = 0
        self.running = 0
        self.iterations = 0

    def add(self, scheduler: Scheduler, computed: int) -> None:
        """One iteration that has `computed` tokens, before it is committed and lets anybody go."""
        self.live += scheduler.holdings.live_tokens + computed
        self.reserved += scheduler.pool.held * scheduler.pool.block_size
        self.running += scheduler.running
        self.iterations += 1


def memory_use(scheduler: Scheduler) -> MemoryUse:
    """The memory as it is now."""
    pool, holdings = scheduler.pool, scheduler.holdings
    size = pool.block_size
    return MemoryUse(
        live=holdings.live_tokens,
        reserved=pool.held * size,
        slack=holdings.slack,
        copied=holdings.copied,
        unreferenced=pool.findable * size,
        saved_by_sharing=(pool.references - pool.held) * size,
        capacity=pool.blocks * size,
    )


def work_done(scheduler: Scheduler, averages: Averages, generated: int, stale: int) -> Work:
    """The work since the beginning."""
    iterations = max(1, averages.iterations)
    return Work(
        iterations=averages.iterations,
        computed=scheduler.computed_tokens,
        recomputed=scheduler.holdings.recomputed_tokens,
        found=scheduler.holdings.found_tokens,
        generated=generated,
        stale=stale,
        preemptions=scheduler.preemptions,
        retractions=scheduler.retractions,
        evictions=scheduler.pool.evictions,
        mean_live=averages.live / iterations,
        mean_reserved=averages.reserved / iterations,
        mean_running=averages.running / iterations,
    )
