"""What the ordered reward queue costs, and what order and hedging cost and gain.

    python tests/bench/bench_reward_queue.py [--samples N] [--replay N] [--memory N]

Five parts. The state machine: samples a second from dispatch to delivery, with digests of 64 + 128
tokens and the journal on; the baseline is the least that any queue does, a deque of tuples by
position. The same in an event loop; the baseline is a pair of asyncio queues. Memory over a long
stream (--memory 10000000 for the full claim). A virtual clock: how near the ideal a pipeline of lag
1 to 4 comes, with and without hedging, against synchronous. And replay of a journal.
"""

import argparse
import asyncio
import heapq
import math
import random
import resource
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from rlhf.identity import Score, Shape, digests  # noqa: E402 - the path comes first
from rlhf.journal import JournalWriter, path_in  # noqa: E402 - the path comes first
from rlhf.journal_records import Answered, Started, Submitted  # noqa: E402 - the path comes first
from rlhf.journal_replay import restore  # noqa: E402 - the path comes first
from rlhf.queue_shell import QueueShell  # noqa: E402 - the path comes first
from rlhf.responses import Response  # noqa: E402 - the path comes first
from rlhf.reward_queue import RewardQueue  # noqa: E402 - the path comes first
from rlhf.reward_queue_types import Batch, EndOfStream, Hedge, Limits  # noqa: E402 - the path comes first

PROMPT, RESPONSE = list(range(64)), list(range(1000, 1128))
BATCH = 256
SHAPE = Shape("bench", 1, BATCH, group_size=4, lag=1)
NO_HEDGE = Limits(hedge=Hedge(budget=0.0))


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the wall and of this process's CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def line(name: str, count: int, wall: float, cpu: float, base_cpu: float | None = None) -> None:
    ratio = f"  {cpu / base_cpu:6.1f} x baseline" if base_cpu else ""
    print(f"{name:42} {count / cpu:12,.0f} /CPU-s {count / wall:12,.0f} /s{ratio}")


# The state machine.


def machine_run(queue: RewardQueue, journal: JournalWriter, batches: int) -> None:
    score = Score(0.5, {})
    for _ in range(batches):
        while (slot := queue.dispatch(0.0)) is not None:
            RESPONSE[0] = slot.seq
            queue.submit(slot, *digests(PROMPT, RESPONSE), 0.0)
        while (claim := queue.claim(0.0, "g")) is not None:
            queue.answer(claim.envelope, score, 0.0)
        queue.take(0.0)
        queue.mark_trained(queue.trained, 0.0)
        journal.extend(queue.drain())
        journal.sync()


def deque_run(samples: int) -> None:
    waiting: deque[tuple[list[int], list[int], float]] = deque()
    for _ in range(samples // BATCH):
        for _ in range(BATCH):
            waiting.append((PROMPT, RESPONSE, 0.5))
        [waiting.popleft() for _ in range(BATCH)]


def fastest(parts: int, work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the fastest of several equal parts: other work on the machine is not ours."""
    walls, cpus = zip(*(timed(work) for _ in range(parts)), strict=True)
    return min(walls), min(cpus)


PARTS = 20


def machine(samples: int) -> None:
    batches = max(1, samples // PARTS // BATCH)
    part = batches * BATCH
    _, base = fastest(PARTS, lambda: deque_run(part))
    print(f"{'baseline: a deque by position':42} {part / max(base, 1e-9):12,.0f} /CPU-s")
    _, hashing = fastest(PARTS, lambda: [digests(PROMPT, RESPONSE) for _ in range(part)])
    print(f"{'digests of 64 + 128 tokens alone':42} {part / hashing:12,.0f} /CPU-s")
    with tempfile.TemporaryDirectory() as folder:
        queue, journal = restore(Path(folder), SHAPE, NO_HEDGE)
        wall, cpu = fastest(PARTS, lambda: machine_run(queue, journal, batches))
        journal.close()
        line("state machine, digests, journal, fsync", part, wall, cpu, base)


# In an event loop.


async def shell_run(folder: Path, samples: int) -> None:
    score = Score(0.5, {})

    async def rollout(queue: QueueShell) -> None:
        while not isinstance(slot := await queue.dispatch("r"), EndOfStream):
            queue.submit(slot, Response(PROMPT, [slot.seq, *RESPONSE[1:]]))

    async def grade(queue: QueueShell) -> None:
        while (claim := await queue.claim("g")) is not None:
            queue.answer(claim.envelope, score)

    async with await QueueShell.open(folder, SHAPE, NO_HEDGE) as queue:
        queue.end(samples)
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(rollout(queue))
                group.create_task(grade(queue))
            while isinstance(batch := await queue.take(60), Batch):
                queue.mark_trained(batch.number)


async def queues_run(samples: int) -> None:
    asked: asyncio.Queue[int] = asyncio.Queue(2 * BATCH)
    answered: asyncio.Queue[int] = asyncio.Queue(2 * BATCH)

    async def rollout() -> None:
        for number in range(samples):
            await asked.put(number)

    async def grade() -> None:
        for _ in range(samples):
            await answered.put(await asked.get())

    async with asyncio.TaskGroup() as group:
        group.create_task(rollout())
        group.create_task(grade())
        for _ in range(samples):
            await answered.get()


def shell(samples: int) -> None:
    part = max(BATCH, samples // 5)
    _, base = fastest(5, lambda: asyncio.run(queues_run(part)))
    print(f"{'baseline: two asyncio queues':42} {part / base:12,.0f} /CPU-s")
    with tempfile.TemporaryDirectory() as folder:
        folders = iter(Path(folder) / str(number) for number in range(5))
        wall, cpu = fastest(5, lambda: asyncio.run(shell_run(next(folders), part)))
        line("event loop, tokens in the journal, fsync", part, wall, cpu, base)


# Memory.


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def memory(samples: int) -> None:
    queue = RewardQueue(SHAPE, NO_HEDGE)
    parts, before = 10, 0.0
    for part in range(parts):
        for _ in range(samples // parts // BATCH):
            one_batch(queue)
        if part == 0:
            before = resident_mib()
    grown = resident_mib() - before
    print(
        f"memory over {samples:,} samples: {before:.1f} MiB after a tenth, {grown:+.2f} MiB since; "
        f"{queue.depth} samples held"
    )


def one_batch(queue: RewardQueue) -> None:
    while (slot := queue.dispatch(0.0)) is not None:
        queue.submit(slot, "p", str(slot.seq), 0.0)
    while (claim := queue.claim(0.0, "g")) is not None:
        queue.answer(claim.envelope, Score(0.5), 0.0)
    queue.take(0.0)
    queue.mark_trained(queue.trained, 0.0)
    queue.tick(0.0)
    queue.drain()


# A virtual clock.

STEPS, B, GRADERS = 200, 64, 64


def constant(_: random.Random) -> float:
    return 1.0


def stragglers(chance: random.Random) -> float:
    return 5.0 if chance.random() < 0.01 else 0.2


def lognormal(chance: random.Random) -> float:
    return chance.lognormvariate(-0.5, 1.0)


class Pipeline:
    """One engine that makes a batch in 1 s, 64 graders, a trainer that takes 1 s; virtual seconds."""

    def __init__(self, latency: Callable[[random.Random], float], lag: int, hedge: Hedge) -> None:
        shape = Shape("virtual", 1, B, lag=lag)
        self.queue = RewardQueue(shape, Limits(grading_seconds=1e6, stall_seconds=1e9, hedge=hedge))
        self.queue.end(0.0, STEPS * B)
        self.latency, self.chance = latency, random.Random(7)
        self.now = 0.0
        self.events: list[tuple[float, int, str, Any]] = []
        self.numbers: Iterator[int] = iter(range(10**9))
        self.busy, self.rolling, self.training = 0, False, False
        self.extra_stale = 0

    def run(self) -> float:
        """Seconds a step."""
        while self.queue.trained < STEPS:
            self.begin()
            tick = self.queue.tick(self.now)
            self.grade()
            soon = self.events[0][0]
            if tick.next_at is not None and self.now < tick.next_at < soon:
                self.now = tick.next_at + 1e-9
                continue
            self.now, _, kind, what = heapq.heappop(self.events)
            self.happen(kind, what)
        return self.now / STEPS

    def at(self, seconds: float, kind: str, what: Any = None) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.numbers), kind, what))

    def begin(self) -> None:
        if not self.rolling:
            slots = []
            while len(slots) < B and (slot := self.queue.dispatch(self.now)) is not None:
                slots.append(slot)
            if slots:
                self.rolling = True
                self.at(1.0, "rolled", slots)
        if not self.training and isinstance(batch := self.queue.take(self.now), Batch):
            self.training = True
            self.extra_stale += batch.policy_version != max(0, batch.number - self.queue.shape.lag)
            self.at(1.0, "trained", batch.number)

    def grade(self) -> None:
        while self.busy < GRADERS and (claim := self.queue.claim(self.now, "g")) is not None:
            self.busy += 1
            self.at(self.latency(self.chance), "answered", claim.envelope)

    def happen(self, kind: str, what: Any) -> None:
        if kind == "rolled":
            self.rolling = False
            for slot in what:
                self.queue.submit(slot, "p", str(slot.seq), self.now)
        elif kind == "answered":
            self.busy -= 1
            self.queue.answer(what, Score(1.0), self.now)
        else:
            self.training = False
            self.queue.mark_trained(what, self.now)
        self.queue.drain()


def virtual() -> None:
    rows = (
        ("constant 1 s", constant, 1.0, Hedge(budget=0.0)),
        ("0.2 s, 1 % take 5 s", stragglers, 0.248, Hedge(0.98, 64, 0.1)),
        ("lognormal, mean 1 s, sigma 1", lognormal, 1.0, Hedge(0.9, 64, 0.2)),
    )
    print(f"\n{'seconds a step (virtual)':32} {'sync':>6} {'lag 1':>6} {'lag 2':>6} {'lag 4':>6} "
          f"{'hedged 1':>9} {'hedged 2':>9} {'ideal':>6} {'of ideal':>9} {'sync/async':>10} "
          f"{'more calls':>10} {'extra stale':>11}")  # fmt: skip
    for name, latency, work, hedge in rows:
        plain = [Pipeline(latency, lag, Hedge(budget=0.0)) for lag in (0, 1, 2, 4)]
        sync, *lags = [each.run() for each in plain]
        hedged = [Pipeline(latency, lag, hedge) for lag in (1, 2)]
        with_hedge = [each.run() for each in hedged]
        ideal = max(1.0, work * B / GRADERS)
        best = min(lags[1], with_hedge[1])
        deadlines = hedged[1].queue.grading.deadlines
        more = deadlines.hedges / max(1, deadlines.claims - deadlines.hedges)
        stale = sum(each.extra_stale for each in [*plain, *hedged])
        print(f"{name:32} {sync:6.2f} {lags[0]:6.2f} {lags[1]:6.2f} {lags[2]:6.2f} "
              f"{with_hedge[0]:9.2f} {with_hedge[1]:9.2f} {ideal:6.2f} {ideal / best:9.0%} "
              f"{sync / best:10.2f} {more:10.1%} {stale:11}")  # fmt: skip
        assert stale == 0
        assert math.isfinite(sync)


# Replay.


def replay(entries: int) -> None:
    samples = entries // 2
    shape = Shape("bench", 1, samples - samples % 4, group_size=4)
    with tempfile.TemporaryDirectory() as folder:
        with JournalWriter(path_in(Path(folder))) as journal:
            journal.append(Started(shape))
            for seq in range(samples):
                prompt, response = f"{seq:032x}", f"{seq:032x}"
                journal.append(Submitted(seq, 0, prompt, response, 0.0, 1.0))
                journal.append(Answered(seq, 0, 1, 0.5, {}, 1.0, 2.0, "g"))
                if seq % 10_000 == 0:
                    journal.flush()
        size = path_in(Path(folder)).stat().st_size / 2**20
        opened: list[Any] = []
        wall, cpu = timed(lambda: opened.extend(restore(Path(folder), shape)))
        opened[1].close()
        _, base = timed(lambda: path_in(Path(folder)).read_bytes())
        print(
            f"\nreplay of {2 * samples:,} records ({size:.0f} MiB): {wall:.2f} s, {cpu:.2f} CPU-s; "
            f"{cpu / base:.0f} x reading the bytes"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=102_400)
    parser.add_argument("--replay", type=int, default=1_000_000)
    parser.add_argument("--memory", type=int, default=512_000)
    chosen = parser.parse_args()
    machine(chosen.samples)
    shell(chosen.samples // 4)
    memory(chosen.memory)
    virtual()
    replay(chosen.replay)


if __name__ == "__main__":
    main()
