"""The trainer: an update does not depend on order, split or canaries; every algorithm learns."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import msgspec
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.rlhf_torch_batches import batch_of, small_trainer
from support.rlhf_torch_small import small_config

from rlhf.identity import Score
from rlhf.model.policy import evaluate, pack
from rlhf.responses import unpack


def flat(model):
    return torch.cat([one.detach().flatten() for one in model.parameters()])


def trained(*words, change=lambda batch: batch):
    config = small_config(*words)
    trainer = small_trainer(config)
    updated = trainer.update(change(batch_of(config, trainer.policy)))
    return flat(trainer.policy), updated


def test_the_same_batch_gives_the_same_weights_in_whatever_order_its_samples_lie():
    def backwards(batch):
        return msgspec.structs.replace(batch, samples=batch.samples[::-1])

    assert torch.equal(trained()[0], trained(change=backwards)[0])


def test_a_micro_batch_changes_memory_and_not_the_result():
    whole, in_parts = trained()[0], trained("ppo.micro_batch=3")[0]
    assert torch.allclose(whole, in_parts, atol=1e-5)


def test_a_canary_has_no_advantage_and_no_part_in_the_mean_score():
    one, updated = trained("checks.canary_every=4", "checks.audits=0")
    assert updated.metrics["alignment/canaries"] == 4
    rows = [row for row in updated.rows if row.canary]
    assert all(row.recomputed == row.reward for row in rows)
    assert [row.advantage for row in rows] == [0.0] * 4
    assert updated.metrics["objective/scores"] == pytest.approx(
        sum(row.reward for row in updated.rows if not row.canary) / 12, abs=1e-6
    )
    assert torch.isfinite(one).all()


@pytest.mark.parametrize(
    "words",
    [
        ("ppo.estimator=gae",),
        ("ppo.estimator=grpo", "rollout.group=4", "kl.placement=loss", "kl.estimator=k3"),
        ("ppo.estimator=dr_grpo", "rollout.group=4"),
        ("ppo.estimator=rloo", "rollout.group=4"),
        ("ppo.estimator=reinforce_pp",),
        ("ppo.estimator=reinforce_pp_baseline", "rollout.group=4"),
        ("correction.mode=mask", "ppo.dual_clip=3"),
        ("rollout.temperature=0.7", "ppo.clip_high=0.28", "ppo.entropy_coefficient=0.01"),
    ],
    ids=lambda words: words[0],
)
def test_every_algorithm_makes_the_rewarded_token_likelier(words):
    """Responses that begin with token 7 are worth 1, all others nothing: 7 must become likelier."""
    config = small_config(
        "optimizer.lr=5e-3", "ppo.missing_stop_penalty=0", "checks.audits=0", "kl.beta=0.01", *words
    )
    trainer = small_trainer(config)

    def chance_of_seven():
        with torch.no_grad():
            said = evaluate(
                trainer.policy, pack([[1, 2, 3, 10]], [[7]], 5), config.rollout.temperature
            )
            return float(said.logprobs[0, 0].exp())

    before = chance_of_seven()
    for number in range(10):
        batch = batch_of(config, trainer.policy, number)
        scored = [
            msgspec.structs.replace(
                one, score=Score(float(unpack(one.payload).response_ids[0] == 7))
            )
            for one in batch.samples
        ]
        trainer.update(msgspec.structs.replace(batch, samples=scored))
    assert chance_of_seven() > 1.5 * before


def test_the_reference_stays_and_kl_is_measured_against_it():
    config = small_config("kl.target=1", "kl.beta=0.1", "kl.horizon=100")
    trainer = small_trainer(config)
    reference = flat(trainer.reference)
    first = trainer.update(batch_of(config, trainer.policy, 0)).metrics
    second = trainer.update(batch_of(config, trainer.policy, 1)).metrics
    assert first["objective/kl"] == pytest.approx(0, abs=1e-6)
    assert second["objective/kl"] != 0
    assert torch.equal(flat(trainer.reference), reference)
    assert second["objective/beta"] < first["objective/beta"] == 0.1
    assert trainer.kl.state_dict()["beta"] < second["objective/beta"]


def test_the_learning_rate_falls_linearly_when_told_to():
    config = small_config("optimizer.schedule=linear", "optimizer.lr=1e-3", "steps=4")
    trainer = small_trainer(config)
    rates = [
        trainer.update(batch_of(config, trainer.policy, number)).metrics["optimizer/lr"]
        for number in range(4)
    ]
    assert rates == pytest.approx([1e-3, 0.75e-3, 0.5e-3, 0.25e-3])


def test_samples_of_an_older_policy_are_weighed_and_the_mismatch_is_told():
    config = small_config("optimizer.lr=1e-2")
    trainer = small_trainer(config)
    old = batch_of(config, trainer.policy, 0)
    fresh = trainer.update(old).metrics
    stale = trainer.update(msgspec.structs.replace(old, number=1)).metrics
    assert fresh["staleness/mismatch_kl"] == pytest.approx(0, abs=1e-6)
    assert stale["staleness/mismatch_kl"] > 1e-4
    assert stale["staleness/versions"] == 1
    assert stale["val/first_ratio_deviation"] < 1e-5


def test_rows_for_the_record_say_everything_about_a_sample():
    config = small_config("checks.audits=3")
    trainer = small_trainer(config)
    rows = trainer.update(batch_of(config, trainer.policy, 2)).rows
    assert [row.seq for row in rows] == list(range(32, 48))
    assert sum(row.recomputed is not None for row in rows) == 3
    assert all(row.recomputed in (None, row.reward) for row in rows)
    row = rows[0]
    assert (row.step, row.policy_version, row.worker, row.latency_seconds) == (2, 2, "test", 0.5)
    assert row.prompt.endswith("=")
    assert set(row.features) == {"length", "logprob_sum"}
