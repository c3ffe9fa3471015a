"""The queue in an event loop: who waits is woken, what is handed out is durable, waits have names."""

import asyncio
import random
from pathlib import Path

import pytest
from support.rlhf_disk import ForgetfulDisk
from support.rlhf_stream import mispaired, reward_for, run, shape, tokens

from rlhf import journal
from rlhf.identity import Shape
from rlhf.journal import path_in
from rlhf.journal_records import Delivered, Stalled
from rlhf.missing import Missing, MissingPolicy, Reason, Rule, Then
from rlhf.queue_shell import QueueShell, RunFailed
from rlhf.responses import Response, unpack
from rlhf.reward_queue import RewardQueue
from rlhf.reward_queue_types import Batch, EndOfStream, Limits, Slot


async def opened(
    folder: Path, limits: Limits | None = None, stream: Shape | None = None, **options
):
    return await QueueShell.open(folder, stream or shape(), limits, **options)


def response_of(slot: Slot) -> Response:
    return Response(*tokens(slot), prompt="p", response="r", logprobs=[0.0] * 6)


async def rollout(queue: QueueShell, chance: random.Random) -> None:
    """Fills slots until the end, each after a random number of turns of the loop."""
    while not isinstance(slot := await queue.dispatch("rollout"), EndOfStream):
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        queue.submit(slot, response_of(slot))


async def grading(queue: QueueShell, chance: random.Random) -> None:
    while (claim := await queue.claim("grader")) is not None:
        for _ in range(chance.randrange(8)):
            await asyncio.sleep(0)
        queue.answer(claim.envelope, reward_for(claim.envelope))


async def training(queue: QueueShell) -> list[Batch]:
    batches = []
    while isinstance(batch := await queue.take(30), Batch):
        batches.append(batch)
        queue.mark_trained(batch.number)
    return batches


async def whole_run(folder: Path, seed: int, batches: int = 6) -> list[Batch]:
    async with await opened(folder) as queue:
        queue.end(batches * 4)
        async with asyncio.TaskGroup() as group:
            for place in range(3):
                group.create_task(rollout(queue, random.Random(f"{seed}r{place}")))
                group.create_task(grading(queue, random.Random(f"{seed}g{place}")))
            trained = group.create_task(training(queue))
    return trained.result()


async def test_whatever_the_workers_timing_the_batches_are_the_same(tmp_path) -> None:
    expected = [batch.order_digest for batch in run(RewardQueue(shape()), 6)]
    for seed in range(4):
        batches = await whole_run(tmp_path / str(seed), seed)
        assert [batch.order_digest for batch in batches] == expected
        assert all(mispaired(batch) == [] for batch in batches)


async def test_what_rollout_handed_in_comes_back_with_the_reward(tmp_path) -> None:
    (batch, *_) = await whole_run(tmp_path, 1)
    for each in batch.samples:
        response = unpack(each.payload)
        assert response.digests() == each.envelope.digests
        assert response.prompt == "p"


async def test_a_batch_is_on_the_disk_before_it_is_handed_out(tmp_path) -> None:
    disk = ForgetfulDisk()
    async with await opened(tmp_path, disk=disk) as queue:
        queue.end(4)
        workers = [
            asyncio.create_task(rollout(queue, random.Random(1))),
            asyncio.create_task(grading(queue, random.Random(1))),
        ]
        await queue.take(30)
        path = path_in(tmp_path)
        content = path.read_bytes()[: disk.synced[path.stat().st_ino]]
        path.with_name("durable").write_bytes(content)
        durable = [each.record for each in journal.read(path.with_name("durable"))]
        assert [each.batch for each in durable if isinstance(each, Delivered)] == [0]
        await asyncio.gather(*workers)


async def test_a_take_that_is_cancelled_loses_no_batch(tmp_path) -> None:
    class SlowDisk(ForgetfulDisk):
        slow = False

        def sync(self, file) -> None:
            super().sync(file)
            if self.slow:
                self.loop.call_soon_threadsafe(self.reached.set)
                asyncio.run_coroutine_threadsafe(self.gate.wait(), self.loop).result(30)

    disk = SlowDisk()
    disk.gate, disk.reached = asyncio.Event(), asyncio.Event()
    disk.loop = asyncio.get_running_loop()
    async with await opened(tmp_path, disk=disk) as queue:
        disk.slow = True
        queue.end(4)
        workers = [
            asyncio.create_task(rollout(queue, random.Random(1))),
            asyncio.create_task(grading(queue, random.Random(1))),
        ]
        taking = asyncio.create_task(queue.take(30))
        async with asyncio.timeout(30):
            await disk.reached.wait()
        taking.cancel()
        disk.gate.set()
        await asyncio.gather(taking, return_exceptions=True)
        assert (await queue.take(30)).number == 0
        await asyncio.gather(*workers)


async def test_a_wait_that_is_too_long_names_what_it_waits_for(tmp_path) -> None:
    async with await opened(tmp_path) as queue:
        slot = await queue.dispatch("engine-7")
        other = await queue.dispatch("engine-8")
        queue.submit(other, response_of(other))
        await queue.claim("grader-3")
        with pytest.raises(TimeoutError) as waited:
            await queue.take(0.01)
        text = str(waited.value)
        assert "batch 0 is not complete after 0.01 s" in text
        assert "rollout of s0 by engine-7 since" in text
        assert "grading of s1 by grader-3 since" in text
        assert "dispatch of s2, s3 since" in text
        queue.submit(slot, response_of(slot))


async def test_a_failed_run_wakes_everybody(tmp_path) -> None:
    limits = Limits(missing=MissingPolicy(refused=Rule(0, Then.FAIL)))
    async with await opened(tmp_path, limits) as queue:
        slots = [await queue.dispatch() for _ in range(8)]
        queue.submit(slots[0], response_of(slots[0]))
        claim = await queue.claim("g")
        waiting = [
            asyncio.create_task(each)
            for each in (queue.dispatch(), queue.claim("g"), queue.take(30))
        ]
        await asyncio.sleep(0)
        queue.answer(claim.envelope, Missing(Reason.REFUSED, "never"))
        for failed in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(failed, RunFailed)
            assert failed.sample.seq == 0
            assert "Refused: never" in str(failed)


async def test_an_attempt_that_hangs_is_asked_again_while_others_wait(tmp_path) -> None:
    limits = Limits(grading_seconds=0.05)
    async with await opened(tmp_path, limits) as queue:
        expired = []
        queue.on_expired.append(expired.append)
        slot = await queue.dispatch()
        queue.submit(slot, response_of(slot))
        first = await queue.claim("hangs")
        async with asyncio.timeout(30):
            second = await queue.claim("works")
        assert (first.envelope.attempt, second.envelope.attempt) == (1, 2)
        assert [each.worker for each in expired] == ["hangs"]


async def test_a_stall_is_written_down_with_the_stack_of_its_holder(tmp_path) -> None:
    async with await opened(tmp_path, Limits(stall_seconds=0.05)) as queue:
        told = asyncio.Event()

        def where(stall) -> str:
            told.set()
            return 'File "loader.py", line 42, in load'

        queue.on_stall = where
        await queue.dispatch("engine")
        async with asyncio.timeout(30):
            await told.wait()
    found = [each.record for each in journal.read(path_in(tmp_path))]
    stalled = [each for each in found if isinstance(each, Stalled)]
    assert "rollout of s0 by engine" in stalled[0].waits[0]
    assert "loader.py" in stalled[0].stack


async def test_a_checkpoint_is_where_the_next_life_begins(tmp_path) -> None:
    async with await opened(tmp_path) as queue:
        queue.end(8)
        workers = [
            asyncio.create_task(rollout(queue, random.Random(1))),
            asyncio.create_task(grading(queue, random.Random(1))),
        ]
        batch = await queue.take(30)
        with pytest.raises(ValueError, match="after mark_trained"):
            await queue.checkpoint()
        queue.mark_trained(batch.number)
        saved = await queue.checkpoint()
        await training(queue)
        await asyncio.gather(*workers)
        await queue.compact(1)
    async with await opened(tmp_path, checkpoint=saved) as queue:
        queue.end(8)
        batch = await queue.take(30)
        assert (batch.number, [s.envelope.seq for s in batch.samples]) == (1, [4, 5, 6, 7])


async def test_a_disk_that_refuses_fails_the_run(tmp_path) -> None:
    class Refusing(ForgetfulDisk):
        full = False

        def sync(self, file) -> None:
            super().sync(file)
            if self.full:
                raise OSError(28, "No space left on device")

    disk = Refusing()
    async with await opened(tmp_path, disk=disk) as queue:
        disk.full = True
        queue.end(4)
        workers = [
            asyncio.create_task(rollout(queue, random.Random(1))),
            asyncio.create_task(grading(queue, random.Random(1))),
        ]
        with pytest.raises(OSError, match="No space"):
            await queue.take(30)
        for ended in await asyncio.gather(*workers, return_exceptions=True):
            assert ended is None or isinstance(ended, RunFailed)
