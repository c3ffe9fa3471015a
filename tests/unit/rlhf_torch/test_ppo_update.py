"""The update: what it does not depend on, what it refuses, and that it learns."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.rlhf_torch_toys import TEMPERATURE, small_model, toy_experience

from rlhf.config.algorithm import Kl, Ppo
from rlhf.model.policy import evaluate
from rlhf.ppo.update import RatioNotOne, update


def train(ppo: Ppo, kl: Kl | None = None, *, rows: int = 12, seed: int = 5, change=None):
    """One update of the small model: (flat parameters afterwards, metrics)."""
    model = small_model()
    experience = toy_experience(model, rows)
    if change is not None:
        change(model, experience)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    metrics = update(
        experience,
        lambda packed: evaluate(model, packed, TEMPERATURE),
        optimizer,
        ppo,
        kl or Kl(beta=0.1, placement="loss", estimator="k2"),
        0.1,
        seed,
    )
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]), metrics


@pytest.mark.parametrize("micro_batch", [1, 2, 5, 12])
def test_the_result_does_not_depend_on_the_split_into_micro_batches(micro_batch):
    settings = {"epochs": 2, "minibatches": 2, "entropy_coefficient": 0.01}
    whole, whole_metrics = train(Ppo(**settings))
    parts, parts_metrics = train(Ppo(**settings, micro_batch=micro_batch))
    assert torch.allclose(whole, parts, atol=2e-6)
    assert whole_metrics == pytest.approx(parts_metrics, abs=1e-4)


def test_every_row_is_used_once_in_every_pass():
    seen: list[int] = []

    def listen(model, experience):
        original = experience.take

        def take(rows):
            seen.extend(rows.tolist())
            return original(rows)

        experience.take = take

    train(Ppo(epochs=3, minibatches=5, micro_batch=2), change=listen)
    assert sorted(seen) == sorted(list(range(12)) * 3)
    assert seen[:12] != seen[12:24]


def test_the_same_seed_gives_the_same_order_and_another_seed_another():
    ppo = Ppo(epochs=1, minibatches=4)
    first, again, other = train(ppo), train(ppo), train(ppo, seed=6)
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])


def test_more_minibatches_than_rows_are_as_many_as_there_are_rows():
    _, metrics = train(Ppo(epochs=1, minibatches=50), rows=3)
    assert metrics["policy/passes"] == 1


def test_the_first_ratio_is_one_also_at_a_temperature():
    _, metrics = train(Ppo(epochs=1))
    assert metrics["val/first_ratio_deviation"] < 1e-6


def test_dropout_is_found_before_the_first_step():
    def with_dropout(model, experience):
        model.layers[0].mlp.up_proj.register_forward_hook(
            lambda _module, _given, result: torch.nn.functional.dropout(result, 0.5)
        )

    with pytest.raises(RatioNotOne, match="dropout"):
        train(Ppo(epochs=1), change=with_dropout)


def test_probabilities_shifted_by_one_token_are_found():
    def shift(model, experience):
        experience.proximal = experience.proximal.roll(1, dims=1)

    with pytest.raises(RatioNotOne, match="shifted index"):
        train(Ppo(epochs=1), change=shift)


def test_nan_from_the_model_is_found_as_a_ratio_that_is_not_one():
    def poison(model, experience):
        experience.proximal[3, 0] = float("nan")

    with pytest.raises(RatioNotOne, match="row"):
        train(Ppo(epochs=1), change=poison)


def test_a_row_without_tokens_that_count_changes_nothing():
    def mask_out(model, experience):
        experience.masks.policy[7] = False
        experience.masks.value[7] = False

    def mask_out_and_spoil(model, experience):
        mask_out(model, experience)
        experience.advantages[7] = 1e6
        experience.returns[7] = -1e6

    clean, _ = train(Ppo(epochs=1, micro_batch=3), change=mask_out)
    spoiled, _ = train(Ppo(epochs=1, micro_batch=3), change=mask_out_and_spoil)
    assert torch.equal(clean, spoiled)


def test_a_kl_beyond_its_limit_ends_the_passes():
    def far(model, experience):
        experience.reference = experience.proximal - 3.0

    _, metrics = train(Ppo(epochs=4), Kl(limit=5.0), change=far)
    assert metrics["policy/passes"] == 1
    _, metrics = train(Ppo(epochs=4), Kl(limit=50.0), change=far)
    assert metrics["policy/passes"] == 4


def test_a_token_with_advantage_becomes_likelier():
    model = small_model()
    experience = toy_experience(model, 6)
    experience.advantages.zero_()
    experience.advantages[2, 0] = 1.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    ppo = Ppo(epochs=1, value_coefficient=0.0)
    update(
        experience,
        lambda packed: evaluate(model, packed, TEMPERATURE),
        optimizer,
        ppo,
        Kl(),
        0.0,
        0,
    )
    with torch.no_grad():
        now = evaluate(model, experience.packed, TEMPERATURE).logprobs
    assert now[2, 0] > experience.proximal[2, 0]
