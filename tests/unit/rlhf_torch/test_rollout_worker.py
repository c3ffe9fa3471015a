"""The process that generates: the same request, the same bits; cut short, it may go on from its tokens."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import asyncio
from itertools import count

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.rlhf_torch_small import small_config

from rlhf import building, pipeline
from rlhf.config.resolve import dump
from rlhf.frames import AsyncFrames
from rlhf.generation import PlainEngine
from rlhf.identity import Shape
from rlhf.messages import Generate
from rlhf.model.building import build
from rlhf.rollout import Piece, RolloutFailed, requests_of
from rlhf.rollout_worker import Left, NoNumbers, Worker
from rlhf.run_folder import RunFolder
from rlhf.unfinished_rollouts import NAME
from rlhf.weights import Snapshots

SHAPE = Shape("run", 3, batch_size=16, group_size=4)
LONG = ("rollout.group=4", "model.context=64", "rollout.max_new_tokens=40")
GOES_ON = (*LONG, "rollout.deterministic=false")


def lively(config, seed: int):
    """A policy that writes different tokens, and ends some of its responses early."""
    model = build(config.model, building.task(config).vocabulary.size, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2, generator=generator)
    return model


def run_folder(path, config, versions: int = 3) -> RunFolder:
    folder = RunFolder(path / "run")
    folder.path.mkdir()
    folder.config.write_text(dump(config, run_id="run-1"))
    for version in range(versions):
        Snapshots(folder.weights).publish(version, lively(config, version).state_dict())
    return folder


def asked(config, first: int = 0, version: int = 0) -> Generate:
    return requests_of(Piece(first, 16, 0, version), SHAPE, building.task(config))


def after(steps: int):
    """Says that it is time to leave after so many questions."""
    numbers = count()
    return lambda: next(numbers) >= steps


def test_the_same_request_gives_the_same_bits_whatever_came_before(tmp_path):
    config = small_config(*LONG)
    folder = run_folder(tmp_path, config)
    fresh = Worker(config, folder).generate(asked(config))
    worker = Worker(config, folder)
    worker.generate(asked(config, 16, version=2))
    with pytest.raises(Left):
        worker.generate(asked(config), after(3))
    again = worker.generate(asked(config))
    assert again.responses == fresh.responses
    assert [one.seq for one in fresh.responses] == list(range(16))
    assert len({tuple(one.tokens) for one in fresh.responses}) > 8
    assert {one.finish_reason for one in fresh.responses} == {"stop", "length"}


def test_at_temperature_next_to_nothing_both_engines_choose_the_same_tokens(tmp_path):
    config = small_config(*LONG, "rollout.temperature=1e-4")
    folder = run_folder(tmp_path, config)
    paged = Worker(config, folder).generate(asked(config))
    plain = Worker(
        config, folder, lambda model, version, _settings: PlainEngine(model, version)
    ).generate(asked(config))
    assert [one.tokens for one in paged.responses] == [one.tokens for one in plain.responses]
    assert paged.work["computed"] > 0
    assert plain.work == {}


def test_a_group_reads_its_prompt_once(tmp_path):
    config = small_config(*LONG, "task.digits=20", "model.context=64")
    made = Worker(config, run_folder(tmp_path, config)).generate(asked(config))
    assert sum(one.found_tokens > 0 for one in made.responses) == 12
    assert made.work["found"] > 0
    assert made.work["live"] <= made.work["reserved"]


def test_told_to_leave_a_deterministic_run_keeps_nothing(tmp_path):
    config = small_config(*LONG)
    folder = run_folder(tmp_path, config)
    with pytest.raises(Left):
        Worker(config, folder).generate(asked(config), after(5))
    assert not (folder.path / NAME).exists()


def test_otherwise_the_next_life_goes_on_from_the_tokens(tmp_path):
    config = small_config(*GOES_ON)
    folder = run_folder(tmp_path, config)
    whole = Worker(config, folder).generate(asked(config))
    with pytest.raises(Left):
        Worker(config, folder).generate(asked(config), after(20))
    rest = Worker(config, folder).generate(asked(config))
    assert rest.work["iterations"] < whole.work["iterations"] - 15
    for mine, theirs in zip(rest.responses, whole.responses, strict=True):
        assert (mine.seq, mine.tokens, mine.finish_reason) == (
            theirs.seq,
            theirs.tokens,
            theirs.finish_reason,
        )
        assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-5)


def test_tokens_of_other_weights_another_draw_or_a_damaged_file_are_not_gone_on_from(tmp_path):
    config = small_config(*GOES_ON)
    folder = run_folder(tmp_path, config)
    whole = Worker(config, folder).generate(asked(config))
    with pytest.raises(Left):
        Worker(config, folder).generate(asked(config), after(20))
    again = requests_of(Piece(0, 4, 1, 0), SHAPE, building.task(config))
    anew = Worker(config, folder).generate(again)
    assert anew.work["iterations"] == pytest.approx(whole.work["iterations"], abs=1)
    kept = (folder.path / NAME).read_bytes()
    for content in (b"", kept[:100], b"\x93\x01\x02\x03"):
        (folder.path / NAME).write_bytes(content)
        made = Worker(config, folder).generate(asked(config))
        assert made.responses == whole.responses
    (folder.path / NAME).write_bytes(kept)
    Snapshots(folder.weights).publish(0, lively(config, 7).state_dict())
    other = Worker(config, folder).generate(asked(config))
    assert other.work["iterations"] == pytest.approx(whole.work["iterations"], abs=1)


def test_rollouts_may_be_carried_over_and_every_token_says_by_which_version(tmp_path):
    config = small_config(*GOES_ON, "rollout.max_version_lag=1")
    folder = run_folder(tmp_path, config, versions=1)
    numbers = count()

    def publish_on_the_way() -> bool:
        if next(numbers) == 6:
            for version in (1, 2):
                state = lively(config, version).state_dict()
                Snapshots(folder.weights).publish(version, state)
        return False

    worker = Worker(config, folder)
    worker.look_for_weights_seconds = 0.0
    made = worker.generate(asked(config), publish_on_the_way)
    carried = [one for one in made.responses if one.versions]
    assert carried
    for one in carried:
        assert len(one.versions) == len(one.tokens)
        assert one.versions == sorted(one.versions)
        assert set(one.versions) == {0, 1}
    # The next request is of its own version again.
    assert all(not one.versions for one in worker.generate(asked(config, 16, 2)).responses)


def test_a_policy_without_numbers_is_named(tmp_path):
    config = small_config(*LONG)
    folder = run_folder(tmp_path, config)
    broken = lively(config, 0)
    with torch.no_grad():
        broken.value_head.weight.fill_(1.0)
        broken.embed_tokens.weight.fill_(float("nan"))
    Snapshots(folder.weights).publish(0, broken.state_dict())
    with pytest.raises(NoNumbers, match="policy version 0 gives no finite"):
        Worker(config, folder).generate(asked(config))


async def test_the_process_writes_down_how_far_it_is_when_it_is_ended_in_a_batch(
    tmp_path, monkeypatch
):
    sent = asyncio.Event()

    class Told(AsyncFrames):
        async def send(self, message):
            await super().send(message)
            sent.set()

    monkeypatch.setattr(pipeline, "AsyncFrames", Told)
    config = small_config(*GOES_ON)
    folder = run_folder(tmp_path, config)
    process = pipeline.RolloutProcess(folder.path)
    await process.generate(asked(config, 16))  # it has started now
    sent.clear()
    generating = asyncio.create_task(process.generate(asked(config)))
    await sent.wait()
    await process.end()
    with pytest.raises(RolloutFailed, match="is gone"):
        await generating
    assert (folder.path / NAME).exists()
    rest = Worker(config, folder).generate(asked(config))
    (folder.path / NAME).unlink()
    anew = Worker(config, folder).generate(asked(config))
    assert [one.tokens for one in rest.responses] == [one.tokens for one in anew.responses]
