"""Between queue and engine: whole batches by the right version, each slot its own response."""

import asyncio

import pytest
from support.rlhf_torch_small import small_config

from rlhf import building
from rlhf.config.limits import queue_limits, stream_shape
from rlhf.graders.functions import FunctionGrader
from rlhf.grading_workers import GradingWorkers
from rlhf.identity import Shape, reserve_key, sampling_seed
from rlhf.messages import Generate, Generated, Generation
from rlhf.queue_shell import QueueShell, RunFailed
from rlhf.responses import unpack
from rlhf.reward_queue_types import EndOfStream, Slot
from rlhf.rollout import Piece, Rollout, RolloutFailed, piece_of, requests_of, without_stop

SHAPE = Shape("run", seed=0, batch_size=4, group_size=2, lag=1)
TASK = building.task(small_config())


class EchoEngine:
    """Answers with tokens that are a function of the request alone; keeps what it was asked."""

    def __init__(self, fail=lambda _: False):
        self.asked: list[Generate] = []
        self._fail = fail

    async def generate(self, wanted):
        self.asked.append(wanted)
        if self._fail(wanted):
            raise RolloutFailed("out of memory")
        await asyncio.sleep(0)
        responses = [
            Generation(one.seq, [one.seed % 10, 1, 11], [-1.0, -2.0, -0.5], "stop")
            for one in reversed(wanted.requests)
        ]
        return Generated(wanted.version, responses, 0.5)


def config(*words):
    return small_config("rollout.batch=4", "rollout.group=2", "queue.retries=1", *words)


async def stream(tmp_path, engine, steps=3, grade=lambda _prompt, _response: 0.5, settings=None):
    """Runs a whole stream with an engine; the delivered batches."""
    settings = settings or config()
    shape = stream_shape(settings, "run")
    grader = FunctionGrader(grade, pure=True, inline=True)
    batches = []
    async with await QueueShell.open(tmp_path, shape, queue_limits(settings)) as queue:
        queue.end(steps * shape.batch_size)
        rollout = Rollout(queue, engine, TASK, shape, settings)
        work = [
            asyncio.create_task(rollout.run()),
            asyncio.create_task(GradingWorkers(queue, grader, workers=2).run()),
        ]
        try:
            while not isinstance(batch := await queue.take(20), EndOfStream):
                batches.append(batch)
                queue.mark_trained(batch.number)
            await asyncio.gather(*work)
        finally:
            for one in work:
                one.cancel()
            await asyncio.gather(*work, return_exceptions=True)
    return batches, rollout


async def test_each_slot_gets_the_response_that_was_drawn_with_its_seed(tmp_path):
    batches, rollout = await stream(tmp_path, EchoEngine())
    for batch in batches:
        for graded in batch.samples:
            response = unpack(graded.payload)
            seq = graded.envelope.seq
            assert response.response_ids[0] == sampling_seed(0, seq, 0) % 10
            assert response.prompt == TASK.prompt(seq // 2).text
            assert response.response == TASK.vocabulary.decode(response.response_ids[:2])
            assert response.logprobs == [-1.0, -2.0, -0.5]
    assert rollout.generated_tokens == 36
    assert rollout.generating_seconds == 1.5


async def test_batches_are_asked_for_whole_and_by_the_version_that_is_theirs(tmp_path):
    engine = EchoEngine()
    await stream(tmp_path, engine, steps=4)
    assert [wanted.version for wanted in engine.asked] == [0, 0, 1, 2]
    assert [[one.seq for one in wanted.requests] for wanted in engine.asked] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
        [12, 13, 14, 15],
    ]


async def test_a_failure_of_the_engine_is_asked_again_and_changes_nothing(tmp_path):
    failures = iter([True, False, False, True, False, False])
    engine = EchoEngine(lambda _: next(failures, False))
    batches, _ = await stream(tmp_path / "failing", engine)
    undisturbed, _ = await stream(tmp_path / "well", EchoEngine())
    assert batches[-1].order_digest == undisturbed[-1].order_digest
    assert len(engine.asked) == 5


async def test_an_engine_that_always_fails_ends_the_run_by_name(tmp_path):
    engine = EchoEngine(lambda _: True)
    with pytest.raises(RunFailed, match=r"slot s0.*NoResponse"):
        await stream(tmp_path, engine)


async def test_a_group_whose_reward_never_comes_is_drawn_again_whole_from_the_reserve(tmp_path):
    refused = TASK.prompt(1).text

    def grade(prompt, response):
        if prompt == refused:
            raise RuntimeError("cannot score this")
        return 1.0

    engine = EchoEngine()
    batches, _ = await stream(tmp_path, engine, grade=grade)
    redrawn = [one for one in batches[0].samples if one.envelope.draw]
    assert [one.envelope.seq for one in redrawn] == [2, 3]
    for graded in redrawn:
        response = unpack(graded.payload)
        assert response.prompt == TASK.reserve(reserve_key(0, 2, graded.envelope.draw)).text
        assert response.response_ids[0] == sampling_seed(0, graded.envelope.seq, 1) % 10
        assert graded.envelope.policy_version == 0
    assert {one.envelope.seq: one.envelope.draw for one in batches[1].samples} == dict.fromkeys(
        range(4, 8), 0
    )


async def test_responses_for_other_slots_are_a_failure_of_the_engine(tmp_path):
    class Wrong(EchoEngine):
        async def generate(self, wanted):
            made = await super().generate(wanted)
            return Generated(made.version, made.responses[1:], 0.1)

    with pytest.raises(RunFailed, match=r"slot s0.*NoResponse"):
        await stream(tmp_path, Wrong())


async def test_a_hung_engine_is_given_up_after_its_time(tmp_path):
    class Hung(EchoEngine):
        async def generate(self, wanted):
            if not self.asked:
                self.asked.append(wanted)
                await asyncio.Event().wait()
            return await super().generate(wanted)

    settings = config("queue.rollout_seconds=0.2")
    batches, _ = await stream(tmp_path, Hung(), settings=settings)
    assert len(batches) == 3


def test_pieces_are_batches_or_groups_that_are_drawn_again():
    plain = Slot(seq=6, draw=0, batch=1, group_id=3, first_seq=6, policy_version=0)
    again = Slot(seq=7, draw=2, batch=1, group_id=3, first_seq=6, policy_version=0)
    assert piece_of(plain, SHAPE) == Piece(4, 4, 0, 0)
    assert piece_of(again, SHAPE) == Piece(6, 2, 2, 0)
    wanted = requests_of(piece_of(again, SHAPE), SHAPE, TASK)
    assert [one.seed for one in wanted.requests] == [sampling_seed(0, 6, 2), sampling_seed(0, 7, 2)]
    assert wanted.requests[0].prompt_ids == wanted.requests[1].prompt_ids


def test_a_response_is_shown_up_to_its_first_stop_token():
    assert without_stop([1, 2, 9, 3], (9, 8)) == [1, 2]
    assert without_stop([1, 2], (9,)) == [1, 2]
