"""The configuration of a run that takes milliseconds a step; needs no torch."""

from rlhf.config.resolve import resolve
from rlhf.config.sections import RunConfig

SMALL = (
    "model.width=16",
    "model.heads=2",
    "model.layers=1",
    "model.context=16",
    "rollout.batch=16",
    "warm_up.steps=0",
    "task.digits=3",
    "rollout.max_new_tokens=5",
    "checks.canary_every=0",
    "ppo.epochs=2",
    "ppo.minibatches=2",
)


def small_config(*words: str) -> RunConfig:
    """The configuration, with these words on top."""
    return resolve(None, [*SMALL, *words]).config
