"""Workers between queue and grader: keyed answers, calls cancelled at their deadline, batches."""

import asyncio
from pathlib import Path

from support import rlhf_reward_functions as functions
from support.rlhf_stream import reward_for, shape, tokens

from rlhf import journal
from rlhf.graders.functions import FunctionGrader
from rlhf.grading_workers import GradingWorkers
from rlhf.identity import Score
from rlhf.journal import path_in
from rlhf.journal_records import Missed, Stalled
from rlhf.queue_shell import QueueShell
from rlhf.responses import Response
from rlhf.reward_queue_types import Batch, EndOfStream, Hedge, Limits

BATCHES = 3


async def graded(folder: Path, grader, limits: Limits | None = None, workers: int = 4):
    """A run of three batches with a grader; the batches and the queue's counts."""
    async with await QueueShell.open(folder, shape(), limits) as queue:
        queue.end(BATCHES * 4)
        taken = []
        async with asyncio.TaskGroup() as group:
            group.create_task(GradingWorkers(queue, grader, workers=workers).run())
            group.create_task(filling(queue))
            while isinstance(batch := await queue.take(60), Batch):
                taken.append(batch)
                queue.mark_trained(batch.number)
    return taken, queue.queue.counts


async def filling(queue: QueueShell) -> None:
    while not isinstance(slot := await queue.dispatch("rollout"), EndOfStream):
        queue.submit(slot, Response(*tokens(slot), prompt="p", response="r" * (slot.seq + 1)))


async def test_every_sample_gets_the_reward_of_its_own_response(tmp_path) -> None:
    batches, counts = await graded(tmp_path, FunctionGrader(functions.length))
    rewards = [each.score.reward for batch in batches for each in batch.samples]
    assert rewards == [float(seq + 1) for seq in range(BATCHES * 4)]
    assert counts == {}


class InBatches:
    """Answers in another order than asked, and notes how many came at once."""

    name, pure, largest_batch = "in batches", True, 3

    def __init__(self) -> None:
        self.sizes = []

    async def grade(self, samples):
        self.sizes.append(len(samples))
        await asyncio.sleep(0)
        return [each.answered(reward_for(each.envelope)) for each in samples][::-1]

    async def close(self) -> None:
        pass


async def test_a_grader_of_batches_gets_what_waits_and_no_more_than_it_can_take(tmp_path) -> None:
    grader = InBatches()
    batches, _ = await graded(tmp_path, grader, workers=1)
    assert all(each.score == reward_for(each.envelope) for b in batches for each in b.samples)
    assert max(grader.sizes) == 3
    assert sum(grader.sizes) == BATCHES * 4


class HangsOnce:
    """Never answers the first request for slot 2."""

    name, pure, largest_batch = "hangs once", True, 1

    def __init__(self) -> None:
        self.cancelled = 0

    async def grade(self, samples):
        (one,) = samples
        if one.envelope.seq == 2 and one.envelope.attempt == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return [one.answered(Score(1.0))]

    async def close(self) -> None:
        pass


async def test_a_call_that_hangs_is_cancelled_at_its_deadline_and_asked_again(tmp_path) -> None:
    grader = HangsOnce()
    limits = Limits(grading_seconds=0.1, hedge=Hedge(budget=0.0))
    batches, counts = await graded(tmp_path, grader, limits, workers=1)
    assert len(batches) == BATCHES
    assert (counts, grader.cancelled) == ({"TimedOut": 1}, 1)
    found = [each.record for each in journal.read(path_in(tmp_path))]
    (missed,) = [each for each in found if isinstance(each, Missed)]
    assert (missed.seq, missed.worker) == (2, "hangs once#0")


async def test_the_slower_of_two_calls_for_a_sample_is_cancelled(tmp_path) -> None:
    grader = HangsOnce()
    limits = Limits(hedge=Hedge(percentile=0.5, after_samples=1, budget=1.0))
    batches, counts = await graded(tmp_path, grader, limits)
    assert len(batches) == BATCHES
    assert (grader.cancelled, counts.get("TimedOut", 0)) == (1, 0)


async def test_a_stall_shows_where_the_call_stands(tmp_path) -> None:
    limits = Limits(stall_seconds=0.05, grading_seconds=0.3, hedge=Hedge(budget=0.0))
    await graded(tmp_path, HangsOnce(), limits, workers=1)
    found = [each.record for each in journal.read(path_in(tmp_path))]
    stalled = next(each for each in found if isinstance(each, Stalled))
    assert "grading of s2 by hangs once#0" in stalled.waits[0]
    assert "in grade" in stalled.stack


class Confused:
    """Answers for a neighbour every third time, once too often every fourth."""

    name, pure, largest_batch = "confused", True, 2

    def __init__(self) -> None:
        self.calls = 0

    async def grade(self, samples):
        self.calls += 1
        answers = [each.answered(reward_for(each.envelope)) for each in samples]
        if self.calls % 4 == 0:
            return [*answers, answers[0]]
        if self.calls % 3 == 0:
            return answers[:-1]
        return answers

    async def close(self) -> None:
        pass


async def test_a_confused_grader_costs_time_and_no_wrong_reward(tmp_path) -> None:
    batches, counts = await graded(tmp_path, Confused(), workers=2)
    assert [each.envelope.seq for batch in batches for each in batch.samples] == list(range(12))
    assert all(
        each.score == reward_for(each.envelope)
        for batch in batches
        for each in batch.samples
        if each.envelope.draw == 0
    )
    assert counts["InvalidAnswer"] > 0
