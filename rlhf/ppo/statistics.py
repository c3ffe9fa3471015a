"""Means, variances and whitening over the entries that count, and nothing else.

A masked entry may hold anything, NaN included: it is replaced before any arithmetic, because NaN times
zero is NaN.
"""

import torch
from torch import Tensor


def kept(values: Tensor, mask: Tensor) -> Tensor:
    """The values, and zero wherever the mask is false."""
    return torch.where(mask, values, torch.zeros_like(values))


def masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    """The sum of the entries that count."""
    return kept(values, mask).sum()


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of the entries that count; 0 when there are none."""
    return masked_sum(values, mask) / mask.sum().clamp(min=1)


def masked_variance(values: Tensor, mask: Tensor) -> Tensor:
    """The population variance of the entries that count."""
    return masked_mean((values - masked_mean(values, mask)) ** 2, mask)


def whiten(values: Tensor, mask: Tensor, *, keep_mean: bool = False, eps: float = 1e-8) -> Tensor:
    """Scales to variance 1, and shifts to mean 0 unless the mean is kept. Masked entries become 0.

    Call it with the whole batch: the statistics of a part of it would depend on the split.
    """
    mean = masked_mean(values, mask)
    scaled = (values - mean) * torch.rsqrt(masked_variance(values, mask) + eps)
    return kept(scaled + mean if keep_mean else scaled, mask)
