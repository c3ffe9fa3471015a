"""The guard in the trainer: a batch that its own weights have not drawn so stops the run, by cause."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import msgspec
import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

from support.rlhf_torch_batches import batch_of, small_trainer
from support.rlhf_torch_small import small_config

from rlhf.responses import pack, unpack
from rlhf.reward_queue_types import Batch
from rlhf.rollout_check import RolloutDrifts

WORDS = (
    "checks.guard_share=0.3",
    "rollout.temperature=0.7",
    "checks.audits=0",
    "model.context=40",
    "rollout.max_new_tokens=30",
)


def changed(batch: Batch, change) -> Batch:
    """The batch with other log-probabilities; tokens and rewards stay."""
    samples = []
    for graded in batch.samples:
        response = unpack(graded.payload)
        other = msgspec.structs.replace(response, **change(response))
        samples.append(msgspec.structs.replace(graded, payload=pack(other)))
    return msgspec.structs.replace(batch, samples=samples)


def shifted(logprobs: list[float]) -> list[float]:
    """Each one place late; a response of one or two tokens could not tell."""
    return [logprobs[-1], *logprobs[:-1]] if len(logprobs) > 2 else logprobs


def test_what_the_policy_itself_has_drawn_passes_and_is_measured():
    config = small_config(*WORDS)
    trainer = small_trainer(config)
    metrics = trainer.update(batch_of(config, trainer.policy)).metrics
    assert metrics["alignment/guarded"] > 10
    assert metrics["alignment/guard_drift"] < 1e-5
    assert metrics["staleness/carried_tokens"] == 0


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda one: {"logprobs": [x * 0.7 for x in one.logprobs]}, "scaled logprobs|unknown"),
        (lambda one: {"logprobs": shifted(one.logprobs)}, "shifted by one"),
        (
            lambda one: {"logprobs": [x - 0.5 for x in one.logprobs], "found_tokens": 3},
            "stale keys",
        ),
    ],
)
def test_a_drift_stops_the_run_before_it_learns_and_the_cause_is_named(change, cause):
    config = small_config(*WORDS)
    trainer = small_trainer(config)
    before = {name: value.clone() for name, value in trainer.policy.state_dict().items()}
    batch = changed(batch_of(config, trainer.policy), change)
    with pytest.raises(RolloutDrifts, match=cause):
        trainer.update(batch)
    assert all(value.equal(before[name]) for name, value in trainer.policy.state_dict().items())


def test_the_temperature_that_rollout_forgot_is_named():
    config = small_config(*WORDS)
    trainer = small_trainer(config)
    batch = batch_of(small_config(*WORDS, "rollout.temperature=1.0"), trainer.policy)
    with pytest.raises(RolloutDrifts, match="at temperature 1"):
        trainer.update(batch)


def test_a_batch_of_older_weights_is_not_compared_and_a_share_of_nothing_checks_nothing():
    config = small_config(*WORDS)
    trainer = small_trainer(config)
    stale = msgspec.structs.replace(batch_of(config, trainer.policy, number=1), policy_version=0)
    wrong = changed(stale, lambda one: {"logprobs": [x - 0.1 for x in one.logprobs]})
    assert "alignment/guarded" not in trainer.update(wrong).metrics
    config = small_config(*WORDS, "checks.guard_share=0")
    wrong = changed(
        batch_of(config, trainer.policy), lambda one: {"logprobs": [x - 0.1 for x in one.logprobs]}
    )
    assert "alignment/guarded" not in small_trainer(config).update(wrong).metrics
