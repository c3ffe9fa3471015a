"""The advantages of a batch, by the algorithm that the configuration names."""

from typing import NamedTuple

from torch import Tensor

from rlhf.config.algorithm import Kl, Ppo
from rlhf.ppo.advantages import (
    Baseline,
    against_group,
    gae,
    over_tokens,
    reinforce_plus_plus,
)
from rlhf.ppo.layout import Masks
from rlhf.ppo.rewards import token_rewards, with_stop_penalty
from rlhf.ppo.statistics import kept, whiten

_BASELINES: dict[str, Baseline] = {"grpo": "grpo", "dr_grpo": "dr_grpo", "rloo": "rloo"}


class Measured(NamedTuple):
    """What is known of a batch before it is learned from; tensors are [rows] or [rows, width]."""

    scores: Tensor
    stopped: Tensor
    groups: Tensor
    masks: Masks
    proximal: Tensor
    reference: Tensor
    values: Tensor | None


class Advantages(NamedTuple):
    """[rows, width] each; `returns` only with a critic. `rewards` are per token, for the record."""

    advantages: Tensor
    returns: Tensor | None
    rewards: Tensor


def advantages_of(batch: Measured, ppo: Ppo, kl: Kl, beta: float) -> Advantages:
    """The advantages of every token that counts, over the whole batch.

    A row without any token that counts (a canary) has no part in anything: neither in its group's
    mean nor in the batch's.
    """
    scores = with_stop_penalty(batch.scores, batch.stopped, ppo.missing_stop_penalty)
    mask = batch.masks.value
    penalty = beta if kl.placement == "reward" else 0.0
    rewards = token_rewards(scores, batch.proximal, batch.reference, mask, penalty, kl.estimator)
    if ppo.whiten_rewards:
        rewards = whiten(rewards, mask, keep_mean=True)
    if ppo.estimator == "gae":
        assert batch.values is not None
        advantages, returns = gae(rewards, batch.values, mask, ppo.gamma, ppo.lam)
        if ppo.whiten_advantages:
            advantages = whiten(advantages, batch.masks.policy)
        return Advantages(kept(advantages, batch.masks.policy), returns, rewards)
    counts = mask.any(dim=1)
    if ppo.estimator in _BASELINES:
        per_row = kept(rewards, mask).sum(dim=1)
        own = per_row.new_zeros(per_row.shape)
        own[counts] = against_group(
            per_row[counts],
            batch.groups[counts],
            _BASELINES[ppo.estimator],
            sample_deviation=ppo.sample_deviation,
        )
        return Advantages(over_tokens(own, batch.masks.policy), None, rewards)
    groups = batch.groups[counts] if ppo.estimator == "reinforce_pp_baseline" else None
    advantages = rewards.new_zeros(rewards.shape)
    advantages[counts] = reinforce_plus_plus(rewards[counts], mask[counts], ppo.gamma, groups)
    return Advantages(kept(advantages, batch.masks.policy), None, rewards)
