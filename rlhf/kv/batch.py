"""A planned step as tensors: which tokens, at which positions, into which places, looking where.

All tokens of a step lie in one row: first one of each decoding sequence, those with short tables
before those with long ones, then the chunks of prompts. Neighbours of like length are attended to
together, so that a long sequence makes only its own group wide.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rlhf.kv.cache import padded_table
from rlhf.kv.plan import Plan
from rlhf.kv.sequence import Sequence

_GROUPS = 6
_WASTE = 0.2


class DecodeGroup(NamedTuple):
    """Rows `first` to `last` (exclusive), one token each; [rows, width] table, [rows] lengths."""

    first: int
    last: int
    table: Tensor
    lengths: Tensor
    visible: Tensor
    """[1, rows, 1, width x block size] which places a row looks at."""


class ChunkSpan(NamedTuple):
    """Tokens `first` to `first + length` of the row, at positions from `start`; [blocks] table."""

    first: int
    length: int
    start: int
    table: Tensor
    visible: Tensor | None
    """[length, places] which places a token looks at; None where a chunk starts its sequence."""


class Batch(NamedTuple):
    """Everything that a forward pass needs to know. Tensors are [tokens] unless said otherwise."""

    tokens: Tensor
    positions: Tensor
    places: Tensor
    groups: list[DecodeGroup]
    spans: list[ChunkSpan]
    drawing: Tensor
    """[draws] rows whose logits are asked for, in the order of `Plan.drawing`."""


def batch_of(plan: Plan, block_size: int, device: torch.device | str = "cpu") -> Batch:
    """Lays a plan out."""
    order = sorted(range(len(plan.decoding)), key=lambda row: len(plan.decoding[row].blocks))
    decoding = [plan.decoding[row] for row in order]
    tokens = [sequence.tokens[sequence.computed] for sequence in decoding]
    positions = [sequence.computed for sequence in decoding]
    places = [
        one.blocks[one.computed // block_size] * block_size + one.computed % block_size
        for one in decoding
    ]
    row_of = [0] * len(order)
    for row, original in enumerate(order):
        row_of[original] = row
    drawing = row_of
    spans = []
    for chunk in plan.chunks:
        first = len(tokens)
        span = range(chunk.start, chunk.start + chunk.length)
        table = chunk.sequence.blocks
        tokens += chunk.sequence.tokens[chunk.start : chunk.start + chunk.length]
        positions += span
        places += [table[at // block_size] * block_size + at % block_size for at in span]
        drawing += [first + chunk.length - 1] * len(chunk.drawing)
        spans.append(_span(first, chunk.length, chunk.start, table, block_size, device))
    return Batch(
        torch.tensor(tokens, dtype=torch.int64, device=device),
        torch.tensor(positions, dtype=torch.int64, device=device),
        torch.tensor(places, dtype=torch.int64, device=device),
        _groups(decoding, block_size, device),
        spans,
        torch.tensor(drawing, dtype=torch.int64, device=device),
    )


def _span(
    first: int,
    length: int,
    start: int,
    blocks: list[int],
    block_size: int,
    device: torch.device | str,
) -> ChunkSpan:
    used = blocks[: -(-(start + length) // block_size)]
    table = torch.tensor(used, device=device)
    if start == 0:
        return ChunkSpan(first, length, start, table, None)
    looked_at = torch.arange(start + length, device=device)
    looking = torch.arange(start, start + length, device=device)
    return ChunkSpan(first, length, start, table, looked_at <= looking[:, None])


def _groups(
    decoding: list[Sequence], block_size: int, device: torch.device | str
) -> list[DecodeGroup]:
    groups = []
    widths = [-(-(one.computed + 1) // block_size) for one in decoding]
    for first, last in cut(widths):
        width = max(widths[first:last])
        rows = decoding[first:last]
        tables = padded_table([one.blocks[:width] for one in rows], width)
        lengths = torch.tensor([one.computed + 1 for one in rows], device=device)
        visible = torch.arange(width * block_size, device=device) < lengths[:, None]
        groups.append(
            DecodeGroup(
                first,
                last,
                torch.tensor(tables, device=device),
                lengths,
                visible[None, :, None, :],
            )
        )
    return groups


def cut(widths: list[int], groups: int = _GROUPS, waste: float = _WASTE) -> list[tuple[int, int]]:
    """Cuts rising widths into few runs, each with little padding up to its widest.

    A run grows while at most the share `waste` of it is padding; the last takes what is left.
    """
    runs: list[tuple[int, int]] = []
    first, total = 0, 0
    for row, width in enumerate(widths):
        padded = width * (row - first + 1)
        if row > first and len(runs) < groups - 1 and padded - total - width > waste * padded:
            runs.append((first, row))
            first, total = row, 0
        total += width
    if first < len(widths):
        runs.append((first, len(widths)))
    return runs
