"""From one score per response to one reward per token."""

import torch
from torch import Tensor

from rlhf.ppo.kl import Estimator, divergence
from rlhf.ppo.statistics import kept


def with_stop_penalty(scores: Tensor, stopped: Tensor, penalty: float) -> Tensor:
    """[rows] scores, less `penalty` where a response did not come to its stop token."""
    return scores - penalty * (~stopped).to(scores.dtype)


def token_rewards(
    scores: Tensor,
    logprobs: Tensor,
    reference: Tensor,
    mask: Tensor,
    beta: float,
    estimator: Estimator = "k1",
) -> Tensor:
    """[rows, width] rewards: the KL penalty on every token, the score once, on the last real token.

    Args:
        scores: [rows].
        logprobs: [rows, width] of the policy that the penalty is for.
        reference: [rows, width] of the reference model.
        mask: [rows, width] the tokens that count; a row may have none, and then gets no reward.
        beta: weight of the penalty.
        estimator: see `kl`.
    """
    rewards = kept(-beta * divergence(logprobs, reference, estimator), mask)
    return rewards + scores[:, None] * last_token(mask).to(scores.dtype)


def last_token(mask: Tensor) -> Tensor:
    """[rows, width]: true at the last true column of each row."""
    columns = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, columns, torch.full_like(columns, -1)).max(dim=1).values
    return columns == last[:, None]
