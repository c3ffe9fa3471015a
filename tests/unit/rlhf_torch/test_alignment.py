"""Aligned rewards teach the task; slipped by one sample or one batch they teach nothing, and the doctor
says by how much. Minutes long.
"""
# ruff: noqa: E402 - what needs torch is imported after the check for it

from collections import deque

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(600)]
pytest.importorskip("torch")

from rlhf import building
from rlhf.config.resolve import resolve
from rlhf.doctor.diagnosis import diagnose
from rlhf.engine import PagedEngine
from rlhf.engine_choice import engine_for
from rlhf.model.building import build
from rlhf.run import make_deterministic
from rlhf.run_folder import RunFolder
from rlhf.story import settings, warming
from rlhf.story.naive import paired_by_position, record, rolled_out
from rlhf.tasks.reverse_digits import reversed_share
from rlhf.trainer import Trainer


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    path = tmp_path_factory.mktemp("warm") / "warm.safetensors"
    assert warming.main([str(path), *settings.COMMON, *settings.WARM_UP]) == 0
    return path


def trained(start, folder, shift: int, *words: str) -> list[float]:
    """Trains with rewards that come `shift` samples late; the true mean reward of each step."""
    config = resolve(
        None,
        [
            *settings.COMMON,
            *settings.from_start(start),
            "checks.audits=0",
            "checks.canary_every=0",
            *words,
        ],
    ).config
    make_deterministic(config)
    task = building.task(config)
    policy = build(config.model, task.vocabulary.size, config.seed)
    trainer = Trainer(policy, config, task.vocabulary.stop_tokens)
    engine = engine_for(build(config.model, task.vocabulary.size, config.seed), -1)
    assert isinstance(engine, PagedEngine)
    late = deque([0.5] * shift)
    means = []
    for step in range(config.steps):
        engine.set_weights(step, policy.state_dict())
        responses = rolled_out(engine, task, config, step)
        true = [reversed_share(one.prompt, one.response) for one in responses]
        late.extend(true)
        given = [late.popleft() for _ in true]
        record(folder, step, trainer.update(paired_by_position(responses, given, step)), responses)
        means.append(sum(true) / len(true))
    return means


def test_aligned_rewards_reach_98_percent(start, tmp_path):
    means = trained(start, RunFolder(tmp_path), 0)
    assert sum(means[-5:]) / 5 >= 0.98
    assert diagnose(tmp_path).shift is None


@pytest.mark.parametrize("shift", [1, 128])
def test_slipped_rewards_teach_nothing_and_the_doctor_says_by_how_much(start, tmp_path, shift):
    means = trained(start, RunFolder(tmp_path), shift, "steps=25", "rollout.batch=128")
    first, last = sum(means[:3]) / 3, sum(means[-3:]) / 3
    assert last < first + 0.06
    assert last < 0.65
    found = diagnose(tmp_path)
    assert found.shift == shift, found.verdict
    assert ("1 sample late" if shift == 1 else "128 samples late") in found.verdict
