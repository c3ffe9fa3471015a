"""PPO's formulas against slow ones that follow the definitions word by word."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from rlhf.ppo.advantages import against_group, gae, returns_to_go
from rlhf.ppo.losses import policy_loss, value_loss
from rlhf.ppo.rewards import token_rewards
from rlhf.ppo.statistics import whiten

numbers = st.floats(-5, 5, allow_nan=False, width=32)


@st.composite
def token_rows(draw, columns: int = 3):
    """`columns` lists of numbers of one length, and a mask."""
    length = draw(st.integers(1, 8))
    row = st.lists(numbers, min_size=length, max_size=length)
    mask = draw(st.lists(st.booleans(), min_size=length, max_size=length))
    return [draw(row) for _ in range(columns)], mask


def tensor(values):
    return torch.tensor([values], dtype=torch.float64)


def oracle_gae(rewards, values, mask, gamma, lam, bootstrap):
    """The definition: O(T^2), a sum of discounted surprises over the tokens that count."""
    real = [t for t in range(len(mask)) if mask[t]]
    after = ([values[t] for t in real] + [bootstrap])[1:]
    surprises = [
        rewards[t] + gamma * follows - values[t]
        for t, follows in zip(real, after[: len(real)], strict=True)
    ]
    advantages = [0.0] * len(mask)
    for i, t in enumerate(real):
        advantages[t] = sum((gamma * lam) ** (j - i) * surprises[j] for j in range(i, len(real)))
    return advantages


@given(token_rows(2), st.floats(0, 1), st.floats(0, 1), numbers)
@settings(deadline=None)
def test_gae_is_the_sum_of_discounted_surprises(rows, gamma, lam, bootstrap):
    (rewards, values), mask = rows
    found, returns = gae(
        tensor(rewards),
        tensor(values),
        torch.tensor([mask]),
        gamma,
        lam,
        torch.tensor([bootstrap], dtype=torch.float64),
    )
    expected = oracle_gae(rewards, values, mask, gamma, lam, bootstrap)
    assert found[0].tolist() == pytest.approx(expected, abs=1e-9)
    kept_values = [value if here else 0.0 for value, here in zip(values, mask, strict=True)]
    assert (returns - found)[0].tolist() == pytest.approx(kept_values, abs=1e-9)


@given(token_rows(1), st.floats(0, 1))
@settings(deadline=None)
def test_with_lambda_one_and_no_critic_the_advantage_is_the_return(rows, gamma):
    (rewards,), mask = rows
    real = [t for t in range(len(mask)) if mask[t]]
    expected = [0.0] * len(mask)
    for i, t in enumerate(real):
        expected[t] = sum(gamma**j * rewards[real[i + j]] for j in range(len(real) - i))
    found = returns_to_go(tensor(rewards), torch.tensor([mask]), gamma)
    assert found[0].tolist() == pytest.approx(expected, abs=1e-9)


@given(token_rows(2), numbers, st.floats(0, 2))
@settings(deadline=None)
def test_rewards_add_up_to_the_score_less_the_kl(rows, score, beta):
    (logprobs, reference), mask = rows
    rewards = token_rewards(
        torch.tensor([score], dtype=torch.float64),
        tensor(logprobs),
        tensor(reference),
        torch.tensor([mask]),
        beta,
    )
    real = [t for t in range(len(mask)) if mask[t]]
    kl = sum(logprobs[t] - reference[t] for t in real)
    assert rewards.sum().item() == pytest.approx((score if real else 0.0) - beta * kl, abs=1e-7)


@given(st.lists(st.tuples(st.integers(0, 3), numbers), min_size=1, max_size=20))
@settings(deadline=None)
def test_group_baselines_by_definition(rows):
    groups = [group for group, _ in rows]
    scores = [score for _, score in rows]
    for baseline in ("grpo", "dr_grpo", "rloo"):
        found = against_group(
            torch.tensor(scores, dtype=torch.float64), torch.tensor(groups), baseline
        ).tolist()
        for index, (group, score) in enumerate(rows):
            own = [s for g, s in rows if g == group]
            others = [s for at, (g, s) in enumerate(rows) if g == group and at != index]
            mean = sum(own) / len(own)
            spread = math.sqrt(sum((s - mean) ** 2 for s in own) / len(own))
            if not others:
                expected = 0.0
            elif baseline == "rloo":
                expected = score - sum(others) / len(others)
            elif baseline == "dr_grpo":
                expected = score - mean
            elif spread > 1e-3:
                expected = (score - mean) / spread
            else:
                continue  # so near to equal that the guard against rounding decides
            assert found[index] == pytest.approx(expected, rel=2e-3, abs=1e-6)


@given(token_rows(3), st.sampled_from([None, 1.5, 3.0]))
@settings(deadline=None)
def test_the_policy_loss_token_by_token(rows, dual):
    (logprobs, proximal, advantages), mask = rows
    found = policy_loss(
        tensor(logprobs),
        tensor(proximal),
        tensor(advantages),
        torch.tensor([mask]),
        clip_low=0.2,
        clip_high=0.28,
        dual_clip=dual,
    ).tokens[0]
    for t, here in enumerate(mask):
        ratio = math.exp(logprobs[t] - proximal[t])
        gain = min(ratio * advantages[t], min(max(ratio, 0.8), 1.28) * advantages[t])
        if dual is not None and advantages[t] < 0:
            gain = max(gain, dual * advantages[t])
        assert found[t].item() == pytest.approx(-gain if here else 0.0, rel=1e-9, abs=1e-9)


@given(token_rows(3), st.floats(0.01, 2))
@settings(deadline=None)
def test_the_value_loss_token_by_token(rows, clip):
    (values, old, returns), mask = rows
    found = value_loss(tensor(values), tensor(old), tensor(returns), torch.tensor([mask]), clip)[0]
    for t, here in enumerate(mask):
        moved = old[t] + min(max(values[t] - old[t], -clip), clip)
        worse = max((values[t] - returns[t]) ** 2, (moved - returns[t]) ** 2)
        assert found[t].item() == pytest.approx(0.5 * worse if here else 0.0, abs=1e-9)


@given(token_rows(1))
@settings(deadline=None)
def test_whitened_entries_have_mean_zero(rows):
    (values,), mask = rows
    found = whiten(tensor(values), torch.tensor([mask]))[0]
    real = [t for t in range(len(mask)) if mask[t]]
    assert sum(found[t].item() for t in real) == pytest.approx(0, abs=1e-4 * max(len(real), 1))
    assert all(found[t].item() == 0 for t in range(len(mask)) if not mask[t])
