"""Where things stand in a row: the one index convention that everything about a response follows.

A row is a prompt and its response without a gap, padded on the right. Whatever belongs to the response
is [rows, width], column i for response token i: its log-probability, the value of the state it was
chosen in, its reward, its advantage. Right padding needs no attention mask: a causal model never lets
a real token see what comes after it.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Masks(NamedTuple):
    """Which response tokens count, and for what. Both are [rows, width] and boolean.

    `policy`: tokens that the policy chose and is trained on. `value`: tokens whose state has a value,
    which is learned and used in advantages. They differ where a row teaches the critic alone, for
    instance a truncated one. The state after the last token is terminal: it has no value, so none is
    masked in or out.
    """

    policy: Tensor
    value: Tensor


def response_mask(lengths: Tensor, width: int) -> Tensor:
    """[rows, width]: the columns that hold response tokens, the stop token included."""
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def masks(
    lengths: Tensor,
    stopped: Tensor,
    excluded: Tensor,
    width: int,
    *,
    drop_truncated: bool = False,
) -> Masks:
    """The masks of a batch.

    Args:
        lengths: [rows] response tokens up to the stop token, which counts.
        stopped: [rows] whether the response ended with a stop token.
        excluded: [rows] whether the row is in the batch for a check alone and trains nothing.
        width: columns.
        drop_truncated: whether a response that was cut off trains the critic only.
    """
    real = response_mask(lengths, width) & ~excluded[:, None]
    return Masks(real & stopped[:, None] if drop_truncated else real, real)


def at_response(over_row: Tensor, prompt_lengths: Tensor, width: int) -> Tensor:
    """Picks, for each response token, what the model says at the token before it.

    Args:
        over_row: [rows, tokens, ...], one entry per token of the row.
        prompt_lengths: [rows], each at least 1.
        width: columns of the result; those beyond the row repeat its last entry.
    """
    columns = torch.arange(width, device=over_row.device)
    positions = (prompt_lengths[:, None] - 1 + columns).clamp(max=over_row.shape[1] - 1)
    index = positions.reshape(*positions.shape, *([1] * (over_row.dim() - 2)))
    return over_row.gather(1, index.expand(*positions.shape, *over_row.shape[2:]))


def length_up_to_stop(tokens: Tensor, stop_tokens: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """([rows] lengths up to and with the first stop token, [rows] whether there is one).

    A row without one is as long as the tensor is wide.
    """
    is_stop = torch.zeros_like(tokens, dtype=torch.bool)
    for stop in stop_tokens:
        is_stop |= tokens == stop
    stopped = is_stop.any(dim=1)
    first = is_stop.to(torch.int8).argmax(dim=1) + 1
    return torch.where(stopped, first, torch.full_like(first, tokens.shape[1])), stopped
