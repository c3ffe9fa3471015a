"""Steering sentences: the mood rises, and the KL to the reference stays at its bound. A minute long."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(600)]
pytest.importorskip("torch")

from support.rlhf_torch_batches import batch_of, small_trainer

from rlhf import building
from rlhf.config.resolve import resolve
from rlhf.run import make_deterministic
from rlhf.warm_up import WarmUp

WORDS = (
    "task.name=sentiment",
    "steps=24",
    "model.context=64",
    "rollout.batch=96",
    "rollout.max_new_tokens=28",
    "warm_up.batch=32",
    "warm_up.lr=3e-3",
    "ppo.epochs=2",
    "ppo.minibatches=4",
    "ppo.value_coefficient=1.0",
    "ppo.missing_stop_penalty=0.5",
    "kl.beta=0.1",
    "kl.target=3",
    "kl.horizon=1000",
    "kl.limit=6",
    "optimizer.lr=5e-4",
)


def test_the_mood_rises_and_the_kl_stays_at_its_bound():
    config = resolve(None, [*WORDS, "warm_up.steps=500"]).config
    make_deterministic(config)
    trainer = small_trainer(config)
    WarmUp(trainer.policy, building.task(config), config).run()
    trainer.become_reference()
    metrics = [
        trainer.update(batch_of(config, trainer.policy, number)).metrics
        for number in range(config.steps)
    ]
    moods = [one["objective/scores/mood"] for one in metrics]
    kls = [one["objective/kl"] for one in metrics]
    assert abs(sum(moods[:2]) / 2) < 0.35
    assert sum(moods[-4:]) / 4 > 0.6
    assert sum(kls[-8:]) / 8 < 6
    assert max(kls) < 9
