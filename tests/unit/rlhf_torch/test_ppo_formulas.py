"""PPO's formulas against the values in the literature, and what each of them must not do."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import math

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from rlhf.ppo.advantages import (
    against_group,
    gae,
    over_tokens,
    reinforce_plus_plus,
    returns_to_go,
)
from rlhf.ppo.correction import importance_weights
from rlhf.ppo.kl import AdaptiveKl, FixedKl, divergence
from rlhf.ppo.layout import (
    at_response,
    length_up_to_stop,
    masks,
    response_mask,
)
from rlhf.ppo.losses import kl_loss, policy_loss, value_loss
from rlhf.ppo.rewards import last_token, token_rewards, with_stop_penalty
from rlhf.ppo.statistics import masked_variance, whiten


def row(*values: float):
    return torch.tensor([values], dtype=torch.float64)


def yes(*values: int):
    return torch.tensor([values], dtype=torch.bool)


def listed(tensor):
    return [pytest.approx(value, abs=1e-9) for value in tensor.flatten().tolist()]


def test_a_masked_token_has_no_value_and_does_not_decay_the_advantage():
    advantages, returns = gae(row(0, 1, 0), row(0, 0, 100), yes(1, 1, 0), 1.0, 0.95)
    assert advantages.tolist() == [[pytest.approx(0.95), 1.0, 0.0]]
    assert returns.tolist() == [[pytest.approx(0.95), 1.0, 0.0]]


def test_masked_tokens_in_the_middle_are_as_if_they_were_not_there():
    with_gap, _ = gae(row(0, 7, 7, 1), row(0.5, 9, 9, 0.2), yes(1, 0, 0, 1), 0.9, 0.8)
    without, _ = gae(row(0, 1), row(0.5, 0.2), yes(1, 1), 0.9, 0.8)
    assert with_gap[0, [0, 3]].tolist() == listed(without)


def test_nan_in_a_masked_token_reaches_nothing():
    advantages, returns = gae(row(0, 1, math.nan), row(0, 0, math.nan), yes(1, 1, 0), 1.0, 0.95)
    assert torch.isfinite(advantages).all()
    assert torch.isfinite(returns).all()
    assert torch.isfinite(whiten(row(1, 2, math.nan), yes(1, 1, 0))).all()
    loss = policy_loss(row(0, math.nan), row(0, math.nan), row(1, math.nan), yes(1, 0))
    assert loss.tokens.tolist() == [[-1.0, 0.0]]


def test_a_truncated_row_bootstraps_from_the_value_after_it():
    advantages, returns = gae(
        row(0, 0), row(0, 0), yes(1, 1), 0.5, 1.0, bootstrap=torch.tensor([8.0]).double()
    )
    assert returns.tolist() == [[2.0, 4.0]]
    assert advantages.tolist() == [[2.0, 4.0]]


def test_returns_to_go_are_discounted_sums():
    assert returns_to_go(row(1, 1, 1), yes(1, 1, 1), 0.5).tolist() == [[1.75, 1.5, 1.0]]


def test_kl_is_a_reward_per_token_and_the_score_comes_once():
    rewards = token_rewards(
        torch.tensor([1.0]).double(), row(0.1, -0.2, 0, 0.3), row(0, 0, 0, 0), yes(1, 1, 1, 1), 0.05
    )
    assert rewards.tolist() == [listed(row(-0.005, 0.01, 0, 0.985))]


def test_the_score_is_on_the_last_real_token_not_on_padding():
    scores = torch.tensor([1.0, 2.0]).double()
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
    zeros = torch.zeros(2, 4, dtype=torch.float64)
    rewards = token_rewards(scores, zeros, zeros, mask, 0.1)
    assert rewards.tolist() == [[0, 1, 0, 0], [0, 0, 0, 2]]


def test_a_row_without_real_tokens_gets_no_score():
    assert not last_token(yes(0, 0, 0)).any()


def test_score_on_the_last_token_equals_score_in_the_slot_after_it_without_discount():
    """The other layout in use has one more column for the state after the last token."""
    rewards, values = row(0, 0, 1, 0), row(0.3, 0.1, 0.2, 0)
    here, _ = gae(rewards, values, yes(1, 1, 1, 0), 1.0, 1.0)
    later, _ = gae(row(0, 0, 0, 1), values, yes(1, 1, 1, 1), 1.0, 1.0)
    assert here[0, :3].tolist() == listed(later[0, :3])


def test_a_response_without_stop_token_loses_the_penalty():
    scores = torch.tensor([0.8, 0.8], dtype=torch.float64)
    stopped = torch.tensor([False, True])
    assert with_stop_penalty(scores, stopped, 1.0).tolist() == listed(row(-0.2, 0.8))


def test_any_of_the_stop_tokens_ends_a_response_and_counts():
    tokens = torch.tensor([[5, 9, 5, 5], [5, 5, 8, 9], [5, 5, 5, 5]])
    lengths, stopped = length_up_to_stop(tokens, (9, 8))
    assert lengths.tolist() == [2, 3, 4]
    assert stopped.tolist() == [True, True, False]


def test_excluded_rows_train_nothing_and_truncated_ones_only_the_critic():
    found = masks(
        torch.tensor([2, 2, 1]),
        torch.tensor([True, False, True]),
        torch.tensor([False, False, True]),
        2,
        drop_truncated=True,
    )
    assert found.policy.tolist() == [[True, True], [False, False], [False, False]]
    assert found.value.tolist() == [[True, True], [True, True], [False, False]]


def test_response_columns_start_at_the_last_token_of_the_prompt():
    over_row = torch.arange(10.0).view(2, 5)
    picked = at_response(over_row, torch.tensor([1, 3]), 3)
    assert picked.tolist() == [[0, 1, 2], [7, 8, 9]]
    assert at_response(over_row[..., None], torch.tensor([1, 3]), 2).shape == (2, 2, 1)


def test_response_mask_counts_up_to_each_length():
    assert response_mask(torch.tensor([0, 2]), 3).tolist() == [
        [False, False, False],
        [True, True, False],
    ]


def test_adaptive_kl_moves_by_a_fifth_of_the_share_of_episodes_at_most():
    controller = AdaptiveKl(0.2, target=6, horizon=10_000)
    controller.update(12, 256)
    assert controller.beta == pytest.approx(0.201024)
    controller.update(0, 256)
    assert controller.beta == pytest.approx(0.201024 * (1 - 0.2 * 0.0256))


def test_kl_weights_survive_a_restart():
    controller = AdaptiveKl(0.2, target=6, horizon=10_000)
    controller.update(12, 256)
    later = AdaptiveKl(0.2, target=6, horizon=10_000)
    later.load_state_dict(controller.state_dict())
    assert later.beta == controller.beta
    fixed = FixedKl(0.1)
    fixed.update(100, 256)
    assert fixed.beta == 0.1


def test_value_loss_takes_the_worse_of_the_value_and_its_clipped_move():
    loss = value_loss(row(0.5), row(0.0), row(1.0), yes(1), clip=0.2)
    assert loss.item() == pytest.approx(0.32)
    assert value_loss(row(0.5), row(0.0), row(1.0), yes(1), clip=None).item() == pytest.approx(
        0.125
    )


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.5, 1.0, -1.2),  # clipped above
        (0.5, 1.0, -0.5),  # worse than the clip: counts in full
        (0.5, -1.0, 0.8),  # clipped below
        (1.5, -1.0, 1.5),
        (9.0, -1.0, 3.0),  # dual clip
    ],
)
def test_ratio_clip_and_dual_clip(ratio, advantage, expected):
    loss = policy_loss(row(math.log(ratio)), row(0.0), row(advantage), yes(1), dual_clip=3.0)
    assert loss.tokens.item() == pytest.approx(expected)


def test_clip_may_be_wider_above_than_below():
    loss = policy_loss(row(math.log(1.5)), row(0.0), row(1.0), yes(1), clip_high=0.28)
    assert loss.tokens.item() == pytest.approx(-1.28)
    assert loss.clipped.item() == 1


def test_a_clipped_token_has_no_gradient():
    logprobs = row(math.log(1.5), 0.0).requires_grad_()
    policy_loss(logprobs, row(0.0, 0.0), row(1.0, 1.0), yes(1, 1)).tokens.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[0.0, -1.0]]


SCORES = torch.tensor([0.0, 0, 1, 1], dtype=torch.float64)
ONE_GROUP = torch.zeros(4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("baseline", "sample", "expected"),
    [
        ("grpo", False, 1.0),
        ("grpo", True, 0.8660254),
        ("dr_grpo", False, 0.5),
        ("rloo", False, 2 / 3),
    ],
)
def test_group_baselines(baseline, sample, expected):
    found = against_group(SCORES, ONE_GROUP, baseline, sample_deviation=sample)
    assert found.tolist() == pytest.approx([-expected, -expected, expected, expected], abs=1e-5)


def test_two_groups_of_one_prompt_stay_two():
    scores = torch.tensor([0.0] * 16 + [1.0] * 16)
    groups = torch.tensor([7] * 16 + [3] * 16)
    assert against_group(scores, groups, "rloo").abs().max() == 0
    merged = against_group(scores, torch.zeros(32), "rloo")
    assert merged[0].item() == pytest.approx(-16 / 31)
    assert merged[-1].item() == pytest.approx(1 - 15 / 31)


@pytest.mark.parametrize("baseline", ["grpo", "dr_grpo", "rloo"])
def test_constant_groups_have_no_advantage(baseline):
    scores = torch.tensor([0.0, 1, 2, 3]).repeat_interleave(4)
    groups = torch.arange(4).repeat_interleave(4)
    assert against_group(scores, groups, baseline).abs().max() == 0


@pytest.mark.parametrize("baseline", ["grpo", "dr_grpo", "rloo"])
def test_equal_scores_that_are_no_binary_fractions_have_no_advantage(baseline):
    scores = torch.full((7,), 0.1, dtype=torch.float32)
    found = against_group(scores, torch.zeros(7), baseline)
    assert found.abs().max() < 1e-6


def test_a_lone_response_has_nothing_to_be_compared_with():
    assert against_group(torch.tensor([3.0]), torch.tensor([0]), "rloo").tolist() == [0.0]


def test_groups_are_told_by_id_wherever_their_rows_are():
    scores = torch.tensor([0.0, 5.0, 1.0, 7.0])
    interleaved = against_group(scores, torch.tensor([0, 1, 0, 1]), "dr_grpo")
    assert interleaved.tolist() == [-0.5, -1.0, 0.5, 1.0]


def test_reinforce_plus_plus_normalises_over_the_tokens_of_the_batch():
    rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0], [2.0, 9.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1], [1, 1], [1, 0]], dtype=torch.bool)
    found = reinforce_plus_plus(rewards, mask, 1.0)
    going = torch.tensor([1.0, 1, 0, 0, 2], dtype=torch.float64)
    expected = (going - going.mean()) / going.std(unbiased=False)
    assert found[mask].tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    assert found[2, 1] == 0


def test_reinforce_plus_plus_with_group_baseline_ignores_how_hard_a_prompt_is():
    rewards = torch.tensor([[0.0], [1.0], [10.0], [11.0]], dtype=torch.float64)
    found = reinforce_plus_plus(
        rewards, torch.ones(4, 1, dtype=torch.bool), 1.0, torch.tensor([0, 0, 1, 1])
    )
    assert found.flatten().tolist() == pytest.approx([-1, 1, -1, 1], abs=1e-6)


def test_an_advantage_per_row_is_on_all_its_tokens():
    spread = over_tokens(torch.tensor([2.0, 3.0]), torch.tensor([[1, 1], [1, 0]]).bool())
    assert spread.tolist() == [[2, 2], [3, 0]]


def test_whitening_a_batch_gives_mean_0_and_variance_1_or_keeps_the_mean():
    values, mask = row(1, 2, 3, 4, 999), yes(1, 1, 1, 1, 0)
    whitened = whiten(values, mask)
    assert whitened[mask].mean().item() == pytest.approx(0, abs=1e-9)
    assert masked_variance(whitened, mask).item() == pytest.approx(1, abs=1e-6)
    kept = whiten(values, mask, keep_mean=True)
    assert kept[mask].mean().item() == pytest.approx(2.5)
    assert kept[0, 4] == 0


@pytest.mark.parametrize(("estimator", "unbiased"), [("k1", True), ("k2", False), ("k3", True)])
def test_kl_estimators_on_a_three_way_softmax(estimator, unbiased):
    policy = torch.log_softmax(torch.tensor([0.5, -0.3, 0.1]).double(), 0)
    reference = torch.log_softmax(torch.tensor([0.0, 0.4, 0.2]).double(), 0)
    exact = (policy.exp() * (policy - reference)).sum()
    mean = (policy.exp() * divergence(policy, reference, estimator)).sum()
    assert (abs(float(mean - exact)) < 1e-12) == unbiased
    if estimator != "k1":
        assert (divergence(policy, reference, estimator) >= 0).all()


@pytest.mark.parametrize(("estimator", "of"), [("k1", "nothing"), ("k2", "kl"), ("k3", "reverse")])
def test_what_a_kl_loss_is_the_gradient_of(estimator, of):
    """On average over tokens drawn from the policy, as the update sees them."""
    logits = torch.tensor([0.5, -0.3, 0.1]).double().requires_grad_()
    reference = torch.log_softmax(torch.tensor([0.0, 0.4, 0.2]).double(), 0)
    logprobs = torch.log_softmax(logits, 0)
    drawn = logprobs.detach().exp()
    losses = kl_loss(logprobs[None], reference[None], yes(1, 1, 1), estimator)[0]
    (found,) = torch.autograd.grad((drawn * losses).sum(), logits, retain_graph=True)
    forward = (logprobs.exp() * (logprobs - reference)).sum()
    backward = (reference.exp() * (reference - logprobs)).sum()
    exact = {"kl": forward, "reverse": backward}.get(of)
    expected = torch.zeros(3).double() if exact is None else torch.autograd.grad(exact, logits)[0]
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-12)


def test_importance_weights_are_capped_or_dropped():
    proximal, behaviour = row(math.log(0.9), math.log(0.2), 0.0), row(math.log(0.3), 0.0, 0.0)
    capped = importance_weights(proximal, behaviour, yes(1, 1, 1), "truncate", cap=2.0)
    assert capped.weights.tolist() == [listed(row(2.0, 0.2, 1.0))]
    assert capped.dropped == 0
    dropped = importance_weights(proximal, behaviour, yes(1, 1, 1), "mask", cap=2.0, low=0.5)
    assert dropped.weights.tolist() == [listed(row(0, 0, 1))]
    assert dropped.dropped == pytest.approx(2 / 3)
    assert dropped.largest == pytest.approx(3.0)


def test_without_correction_the_mismatch_is_still_measured():
    found = importance_weights(row(0.1), row(0.0), yes(1), "none")
    assert found.weights.item() == 1
    assert found.mismatch_kl == pytest.approx(math.exp(0.1) - 1 - 0.1)


def test_equal_policies_have_weight_one_and_no_mismatch():
    found = importance_weights(row(-1.0, -2.0), row(-1.0, -2.0), yes(1, 1), "truncate")
    assert found.weights.tolist() == [[1.0, 1.0]]
    assert found.mismatch_kl == 0


def test_a_nucleus_renormalised_by_the_engine_shows_as_its_mass():
    """An engine that reports log-probabilities within its top-p set is off by exactly the set's mass."""
    probabilities = torch.tensor([0.5, 0.3, 0.1, 0.1], dtype=torch.float64)
    inside = probabilities[:2] / probabilities[:2].sum()
    found = importance_weights(
        probabilities[:2].log()[None], inside.log()[None], yes(1, 1), "truncate"
    )
    assert found.weights.tolist() == [listed(row(0.8, 0.8))]


def test_decoupled_ppo_on_three_policies():
    """Clipped against the proximal policy, weighed against the behaviour: two separate ratios."""
    current, proximal, behaviour = row(math.log(0.6)), row(math.log(0.4)), row(math.log(0.5))
    weight = importance_weights(proximal, behaviour, yes(1), "truncate").weights
    loss = policy_loss(current, proximal, row(1.0), yes(1), weights=weight)
    assert loss.tokens.item() == pytest.approx(-1.2 * 0.8)
    naive = policy_loss(current, behaviour, row(1.0), yes(1))
    assert naive.tokens.item() == pytest.approx(-1.2)
