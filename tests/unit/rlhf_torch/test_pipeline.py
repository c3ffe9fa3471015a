"""The pipeline without its processes: what it answers, how it goes on, and what the user's code can do."""

import asyncio
import contextlib
import json
import socket
import sys

import pytest
from support.rlhf_torch_small import small_config

from rlhf import messages, pipeline
from rlhf.canaries import CanaryPlan
from rlhf.canary_grader import CanaryGrader
from rlhf.config.resolve import dump
from rlhf.frames import AsyncFrames, PeerGone
from rlhf.graders.functions import BadFunction, FunctionGrader
from rlhf.graders.protocol import Sample
from rlhf.identity import Envelope, Score
from rlhf.messages import Generated, Generation
from rlhf.queue_shell import RunFailed
from rlhf.responses import unpack
from rlhf.run_folder import RunFolder
from rlhf.tasks.task import TaskInvalid


class Echo:
    """In place of the rollout process: each response is a function of its seed."""

    asked = 0
    told: "asyncio.Queue[int] | None" = None

    def __init__(self, folder):
        pass

    async def generate(self, wanted):
        type(self).asked += 1
        if self.told is not None:
            self.told.put_nowait(wanted.version)
        return Generated(
            wanted.version,
            [
                Generation(one.seq, [97 + one.seed % 4, 98], [-0.5, -0.5], "length")
                for one in wanted.requests
            ],
            0.01,
        )

    async def end(self):
        pass


@pytest.fixture(autouse=True)
def _no_process(monkeypatch):
    monkeypatch.setattr(pipeline, "RolloutProcess", Echo)
    Echo.asked = 0


@pytest.fixture
def user_module(tmp_path, monkeypatch):
    """A module of the user's with reward functions, importable."""
    (tmp_path / "users_rewards.py").write_text(
        "calls = []\n"
        "def length(prompt, response): return len(response)\n"
        "def level(prompt, response, level): return float(level)\n"
        "def broken(prompt, response): raise KeyError(prompt)\n"
        "def odd(prompt, response):\n"
        "    calls.append(prompt)\n"
        "    if len(calls) % 3 == 0: raise KeyError(prompt)\n"
        "    if len(calls) % 7 == 0: return float('nan')\n"
        "    return 1.0\n"
        "def takes_nothing(): return 1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("users_rewards", None)


def run_folder(tmp_path, *words: str, prompts=3) -> RunFolder:
    """A folder with a task of the user's, three prompts for batches of eight."""
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir(exist_ok=True)
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        "".join(json.dumps({"prompt": f"p{n}", "level": n}) + "\n" for n in range(prompts))
    )
    config = small_config(
        "task.name=jsonl",
        f"task.prompts={path}",
        "grader.kind=function",
        "grader.workers=1",
        "rollout.batch=8",
        "steps=3",
        "queue.retries=2",
        *words,
    )
    folder.config.write_text(dump(config, run_id="run-1"))
    return folder


@contextlib.asynccontextmanager
async def serving(folder, checkpoint=None):
    """The trainer's end of a pipeline that serves."""
    ours, theirs = socket.socketpair()
    link = await AsyncFrames.over(theirs, messages.FromTrainer)
    trainer = await AsyncFrames.over(ours, messages.FromPipeline)
    serve = asyncio.create_task(pipeline.serve(link, folder, checkpoint))
    serve.add_done_callback(lambda _: link.close())
    try:
        yield trainer, serve
    finally:
        trainer.close()
        serve.cancel()
        await asyncio.gather(serve, return_exceptions=True)


async def asked(trainer, message):
    await trainer.send(message)
    return await trainer.receive()


async def failure_of(serve) -> Exception:
    await asyncio.wait([serve], timeout=20)
    error = serve.exception()
    assert error is not None
    return error


async def test_batches_come_in_order_and_then_the_end(tmp_path, user_module):
    folder = run_folder(tmp_path, "grader.function=users_rewards:length")
    async with serving(folder) as (trainer, serve):
        for number in range(3):
            delivery = await asked(trainer, messages.Take(20))
            assert delivery.batch.number == number
            assert [one.envelope.seq for one in delivery.batch.samples] == list(
                range(8 * number, 8 * number + 8)
            )
            assert {one.score.reward for one in delivery.batch.samples} == {2.0}
            saved = await asked(trainer, messages.Trained(number))
            assert saved.checkpoint.trained == number + 1
        assert await asked(trainer, messages.Take(20)) == messages.End(24)
        await trainer.send(messages.Stop())
        await asyncio.wait_for(serve, 20)


async def test_while_a_batch_is_trained_the_next_ones_are_made_as_far_as_the_lag_allows(
    tmp_path, user_module, monkeypatch
):
    folder = run_folder(tmp_path, "grader.function=users_rewards:length", "queue.lag=2", "steps=9")
    versions: asyncio.Queue[int] = asyncio.Queue()
    monkeypatch.setattr(Echo, "told", versions)
    async with serving(folder) as (trainer, _), asyncio.timeout(20):
        delivery = await asked(trainer, messages.Take(20))
        assert [await versions.get() for _ in range(3)] == [0, 0, 0]
        assert delivery.batch.number == 0
        assert versions.empty()
        await asked(trainer, messages.Trained(0))
        assert await versions.get() == 1


async def test_fewer_prompts_than_a_batch_come_round_again(tmp_path, user_module):
    folder = run_folder(tmp_path, "grader.function=users_rewards:level")
    async with serving(folder) as (trainer, _):
        delivery = await asked(trainer, messages.Take(20))
    texts = [unpack(one.payload).prompt for one in delivery.batch.samples]
    assert sorted(texts[:3]) == sorted(texts[3:6]) == ["p0", "p1", "p2"]
    for graded in delivery.batch.samples:
        assert graded.score.reward == float(unpack(graded.payload).prompt[1:])


async def test_a_function_that_fails_now_and_then_costs_attempts_and_nothing_else(
    tmp_path, user_module
):
    folder = run_folder(tmp_path, "grader.function=users_rewards:odd")
    async with serving(folder) as (trainer, _):
        delivery = await asked(trainer, messages.Take(20))
    assert {one.score.reward for one in delivery.batch.samples} == {1.0}
    assert max(one.envelope.attempt for one in delivery.batch.samples) > 1
    assert all(one.envelope.draw == 0 for one in delivery.batch.samples)


async def test_a_function_that_always_fails_ends_the_run_with_the_slot_named(tmp_path, user_module):
    folder = run_folder(tmp_path, "grader.function=users_rewards:broken", "queue.then=Fail")
    async with serving(folder) as (trainer, serve):
        await trainer.send(messages.Take(20))
        error = await failure_of(serve)
    assert isinstance(error, RunFailed)
    assert "slot s0" in str(error)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("users_rewards:takes_nothing", "function\\(prompt, response"),
        ("users_rewards:missing", "no function missing"),
        ("not_a_module_at_all:f", "cannot be imported"),
        ("users_rewards", "module:function"),
    ],
)
async def test_a_function_that_cannot_be_called_is_refused_at_once(
    tmp_path, user_module, function, told
):
    folder = run_folder(tmp_path, f"grader.function={function}")
    async with serving(folder) as (_, serve):
        error = await failure_of(serve)
    assert isinstance(error, BadFunction)
    with pytest.raises(BadFunction, match=told):
        raise error


async def test_prompts_that_cannot_be_trained_on_are_refused_at_once(tmp_path, user_module):
    folder = run_folder(tmp_path, "grader.function=users_rewards:length", prompts=0)
    async with serving(folder) as (_, serve):
        assert isinstance(await failure_of(serve), TaskInvalid)


async def test_after_a_restart_finished_samples_are_not_generated_again(tmp_path, user_module):
    folder = run_folder(tmp_path, "grader.function=users_rewards:length")
    async with serving(folder) as (trainer, _):
        first = await asked(trainer, messages.Take(20))
        saved = await asked(trainer, messages.Trained(0))
        second = await asked(trainer, messages.Take(20))
    before = Echo.asked
    async with serving(folder, saved.checkpoint) as (trainer, _):
        again = await asked(trainer, messages.Take(20))
        assert again.batch.number == 1
        assert again.batch.order_digest == second.batch.order_digest
        assert [one.payload for one in again.batch.samples] == [
            one.payload for one in second.batch.samples
        ]
    assert Echo.asked <= before + 2
    assert first.batch.number == 0


async def test_a_trainer_that_waits_too_long_is_told_for_whom(tmp_path, user_module, monkeypatch):
    class Hung(Echo):
        async def generate(self, _wanted):
            await asyncio.Event().wait()

    monkeypatch.setattr(pipeline, "RolloutProcess", Hung)
    folder = run_folder(tmp_path, "grader.function=users_rewards:length")
    async with serving(folder) as (trainer, serve):
        await trainer.send(messages.Take(0.3))
        error = await failure_of(serve)
    assert isinstance(error, TimeoutError)
    assert "rollout of s0" in str(error)


async def test_a_trainer_that_is_gone_ends_the_pipeline(tmp_path, user_module):
    folder = run_folder(tmp_path, "grader.function=users_rewards:length")
    async with serving(folder) as (trainer, serve):
        await asked(trainer, messages.Take(20))
        trainer.close()
        assert isinstance(await failure_of(serve), PeerGone)


async def test_canaries_have_their_own_reward_and_the_others_the_graders():
    plan = CanaryPlan(seed=0, every=4)
    grader = CanaryGrader(FunctionGrader(lambda _prompt, _response: 0.5, inline=True), plan)
    samples = [
        Sample(Envelope("run", seq, 0, seq, 1, 0, "p", "r"), [1], [2], "a", "b") for seq in range(8)
    ]
    answers = {one.envelope.seq: one.outcome for one in await grader.grade(samples)}
    known = plan.among(range(8))
    assert len(known) == 2
    assert answers == {seq: Score(known[seq]) if seq in known else Score(0.5) for seq in range(8)}
