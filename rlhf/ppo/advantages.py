"""How much better an action was than expected: with a critic (GAE), or against the group or the batch.

Groups are told by id, never by position, by shape or by the text of their prompt: two groups of one
prompt stay two.
"""

from typing import Literal

import torch
from torch import Tensor

from rlhf.ppo.statistics import kept, whiten

Baseline = Literal["grpo", "dr_grpo", "rloo"]

_TINY = 1e-6


def gae(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    gamma: float,
    lam: float,
    bootstrap: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation over the tokens that count.

    Masked tokens are not there: they give no reward, have no value, and do not decay what follows.

    Args:
        rewards: [rows, width].
        values: [rows, width], of the state before each token.
        mask: [rows, width] the tokens that count.
        gamma: discount per token.
        lam: weight of long returns against the critic.
        bootstrap: [rows] value of the state after the last token; none means that it is terminal.

    Returns:
        (advantages, returns), each [rows, width] and 0 where masked.
    """
    values, rewards = kept(values, mask), kept(rewards, mask)
    next_value = torch.zeros_like(values[:, 0]) if bootstrap is None else bootstrap
    next_advantage = torch.zeros_like(values[:, 0])
    columns = []
    for column in reversed(range(rewards.shape[1])):
        here = mask[:, column]
        surprise = rewards[:, column] + gamma * next_value - values[:, column]
        advantage = surprise + gamma * lam * next_advantage
        next_advantage = torch.where(here, advantage, next_advantage)
        next_value = torch.where(here, values[:, column], next_value)
        columns.append(advantage)
    advantages = kept(torch.stack(columns[::-1], dim=1), mask)
    return advantages, advantages + values


def returns_to_go(rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """[rows, width]: the discounted sum of rewards from each token on, over the tokens that count."""
    return gae(rewards, torch.zeros_like(rewards), mask, gamma, 1.0)[0]


def against_group(
    scores: Tensor, groups: Tensor, baseline: Baseline, *, sample_deviation: bool = False
) -> Tensor:
    """[rows] advantage of each response over the others of its group.

    "grpo" subtracts the group's mean and divides by its standard deviation, "dr_grpo" only subtracts,
    "rloo" subtracts the mean of the *other* responses. A group without differences gets zeros, and so
    does a response alone.

    Args:
        scores: [rows].
        groups: [rows] ids.
        baseline: which of them.
        sample_deviation: divide by the sample's deviation (n - 1) instead of the population's.
    """
    advantages = torch.zeros_like(scores)
    for group in torch.unique(groups):
        members = groups == group
        own = scores[members]
        count = own.numel()
        if count < 2:
            continue
        centred = own - own.mean()
        if baseline == "rloo":
            centred = centred * count / (count - 1)
        elif baseline == "grpo":
            spread = own.std(unbiased=sample_deviation)
            # Equal scores may differ from their mean by rounding: that is no difference to amplify.
            centred = torch.where(spread > _TINY, centred / (spread + _TINY), 0.0 * centred)
        advantages[members] = centred
    return advantages


def reinforce_plus_plus(
    rewards: Tensor,
    mask: Tensor,
    gamma: float,
    groups: Tensor | None = None,
) -> Tensor:
    """[rows, width] REINFORCE++: returns without a critic, normalised over the whole batch.

    Args:
        rewards: [rows, width] per token, KL penalty included.
        mask: [rows, width] the tokens that count.
        gamma: discount per token.
        groups: [rows] ids, to subtract the mean of the group's returns first; none for plain.
    """
    going = returns_to_go(rewards, mask, gamma)
    if groups is not None:
        first = kept(rewards, mask).sum(dim=1)
        going = going - (first - against_group(first, groups, "dr_grpo"))[:, None]
    return whiten(going, mask)


def over_tokens(per_row: Tensor, mask: Tensor) -> Tensor:
    """[rows, width]: each row's number on all of its tokens that count."""
    return kept(per_row[:, None].expand(mask.shape), mask)
