"""When the tokens were not drawn from the policy that is trained: importance weights.

Three policies meet in a step. *Behaviour* drew the tokens: the engine, with the weights of an older
version and arithmetic of its own. *Proximal* is the trainer's policy as the step begins; the clip
keeps the update near it. *Current* is what is being changed. Decoupled PPO clips current/proximal and
weighs every token with proximal/behaviour, which is a constant of the step.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from rlhf.ppo.statistics import kept, masked_mean

Mode = Literal["none", "truncate", "mask"]


class Correction(NamedTuple):
    """`weights` [rows, width], 0 for tokens that are dropped; `dropped` and `mismatch` for the record."""

    weights: Tensor
    dropped: float
    mismatch_kl: float
    largest: float


def importance_weights(
    proximal: Tensor,
    behaviour: Tensor,
    mask: Tensor,
    mode: Mode,
    *,
    cap: float = 2.0,
    low: float = 0.5,
) -> Correction:
    """The weight of each token, proximal over behaviour.

    "truncate" caps it (its bias is that rare tokens count less than they should); "mask" drops tokens
    outside of [low, cap]; "none" gives 1 and only measures.

    Args:
        proximal: [rows, width] log-probabilities by the trainer, as the step begins.
        behaviour: [rows, width] log-probabilities by whoever drew the tokens.
        mask: [rows, width] the tokens that count.
        mode: see above.
        cap: largest weight.
        low: smallest weight that "mask" keeps.
    """
    log_ratio = kept(proximal - behaviour, mask)
    ratio = torch.exp(log_ratio)
    inside = mask
    if mode == "truncate":
        weights = ratio.clamp(max=cap)
    elif mode == "mask":
        inside = mask & (ratio >= low) & (ratio <= cap)
        weights = ratio
    else:
        weights = torch.ones_like(ratio)
    count = mask.sum().clamp(min=1)
    return Correction(
        weights=kept(weights, inside).detach(),
        dropped=float((mask & ~inside).sum() / count),
        mismatch_kl=float(masked_mean(ratio - 1 - log_ratio, mask)),
        largest=float(ratio.max()) if bool(mask.any()) else 1.0,
    )
