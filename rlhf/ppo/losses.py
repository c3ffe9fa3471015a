"""What is minimised. Every loss is a sum over tokens, to be divided by the whole mini-batch's count.

So a mini-batch gives the same gradient however it is split into micro-batches.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rlhf.ppo.kl import Estimator, divergence
from rlhf.ppo.statistics import kept, masked_sum


class PolicyLoss(NamedTuple):
    """`tokens` [rows, width] to be summed; the rest are sums over tokens for the record."""

    tokens: Tensor
    clipped: Tensor
    approximate_kl: Tensor
    ratio: Tensor


def policy_loss(
    logprobs: Tensor,
    proximal: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
    weights: Tensor | None = None,
) -> PolicyLoss:
    """PPO's clipped surrogate, per token.

    Args:
        logprobs: [rows, width] of the policy under training; the gradient flows through them.
        proximal: [rows, width] of the policy as the step began.
        advantages: [rows, width].
        mask: [rows, width] the tokens that count.
        clip_low: the ratio counts from 1 - clip_low ...
        clip_high: ... to 1 + clip_high.
        dual_clip: for negative advantages the loss counts up to this times |advantage|; > 1.
        weights: [rows, width] importance weights, see `correction`.
    """
    # Equal numbers on both sides of a masked token: its ratio is 1 whatever the model said there.
    log_ratio = kept(logprobs - proximal, mask)
    ratio = torch.exp(log_ratio)
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - clip_low, 1 + clip_high)
    tokens = torch.maximum(plain, clipped)
    if dual_clip is not None:
        tokens = torch.where(advantages < 0, torch.minimum(tokens, -dual_clip * advantages), tokens)
    if weights is not None:
        tokens = tokens * weights
    tokens = kept(tokens, mask)
    with torch.no_grad():
        return PolicyLoss(
            tokens=tokens,
            clipped=masked_sum((clipped > plain).to(ratio.dtype), mask),
            approximate_kl=masked_sum(ratio - 1 - log_ratio, mask),
            ratio=masked_sum(ratio, mask),
        )


def value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float | None
) -> Tensor:
    """[rows, width] half the squared error, of the value or of its clipped move, whichever is worse.

    Args:
        values: [rows, width] of the critic under training.
        old_values: [rows, width] as the step began.
        returns: [rows, width] targets.
        mask: [rows, width] the tokens that count.
        clip: how far a value may move from its old one before the gradient stops; none for no clip.
    """
    error = (values - returns) ** 2
    if clip is not None:
        moved = old_values + (values - old_values).clamp(-clip, clip)
        error = torch.maximum(error, (moved - returns) ** 2)
    return kept(0.5 * error, mask)


def kl_loss(logprobs: Tensor, reference: Tensor, mask: Tensor, estimator: Estimator) -> Tensor:
    """[rows, width] the estimate as a loss, as GRPO has it.

    Its gradient need not be that of KL(policy, reference): for k1 it is zero on average, for k2 it is
    that gradient, for k3 it is that of KL(reference, policy).
    """
    return kept(divergence(logprobs, reference, estimator), mask)
