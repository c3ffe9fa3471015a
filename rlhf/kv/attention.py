"""Attention over blocks: by gathering them (any device), or by a kernel that reads tables itself.

Which one is decided once, at the start. Shapes: queries [tokens, heads, head width]; keys and values
are in the cache already, the new tokens' too. Grouped-query attention is where a cache has fewer
heads than there are queries.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from rlhf.kv.batch import Batch, ChunkSpan, DecodeGroup
from rlhf.kv.cache import Cache, padded_table


class Attention(Protocol):
    """How tokens look at what is in the cache."""

    def begin(self, batch: Batch) -> None:
        """The step that follows."""

    def __call__(self, layer: int, query: Tensor, scale: float) -> Tensor:
        """[tokens, heads, head width] what each token gathers."""


class GatherAttention:
    """Copies the blocks of a group side by side and attends to them; exact, on any device.

    The cache is laid out heads first. Gathered blocks go into two buffers that are kept: fresh
    memory for each group and layer would cost more than the copy.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._groups: list[DecodeGroup] = []
        self._spans: list[ChunkSpan] = []
        self._buffers = [cache.store.new_empty(0) for _ in range(2)]

    def begin(self, batch: Batch) -> None:
        """The step that follows."""
        self._groups, self._spans = batch.groups, batch.spans

    def __call__(self, layer: int, query: Tensor, scale: float) -> Tensor:
        """[tokens, heads, head width] what each token gathers."""
        output = torch.empty_like(query)
        for group in self._groups:
            rows = slice(group.first, group.last)
            output[rows] = self._decoded(layer, query[rows], group, scale)
        for span in self._spans:
            rows = slice(span.first, span.first + span.length)
            output[rows] = self._read(layer, query[rows], span, scale)
        return output

    def _decoded(self, layer: int, query: Tensor, group: DecodeGroup, scale: float) -> Tensor:
        """One token a row. Queries that share a head of the cache attend as if they were tokens."""
        rows, heads, width = query.shape
        shared = self._cache.heads
        key, value = (
            each.view(shared, rows, -1, width) for each in self._gathered(layer, group.table)
        )
        together = query.view(rows, shared, heads // shared, width).transpose(0, 1)
        attended = functional.scaled_dot_product_attention(
            together, key, value, attn_mask=group.visible, scale=scale
        )
        return attended.transpose(0, 1).reshape(rows, heads, width)

    def _read(self, layer: int, query: Tensor, span: ChunkSpan, scale: float) -> Tensor:
        """A chunk of one prompt."""
        heads, shared = query.shape[1], self._cache.heads
        end = span.start + span.length
        key, value = (each[None, :, :end] for each in self._gathered(layer, span.table))
        if shared != heads:
            key, value = (each.repeat_interleave(heads // shared, dim=1) for each in (key, value))
        attended = functional.scaled_dot_product_attention(
            query.transpose(0, 1)[None],
            key,
            value,
            attn_mask=span.visible,
            is_causal=span.visible is None,
            scale=scale,
        )
        return attended[0].transpose(0, 1)

    def _gathered(self, layer: int, table: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a table's blocks, [heads, places, head width] each."""
        made = self._cache
        blocks, block = table.numel(), made.block_size * made.head_width
        size = made.heads * blocks * block
        if self._buffers[0].numel() < size:
            self._buffers = [made.store.new_empty(size) for _ in range(2)]
        found = []
        for buffer, source in zip(
            self._buffers, (made.keys(layer), made.values(layer)), strict=True
        ):
            target = buffer[:size].view(made.heads, blocks, block)
            torch.index_select(source.view(made.heads, -1, block), 1, table.flatten(), out=target)
            found.append(target.view(made.heads, -1, made.head_width))
        return found[0], found[1]


class VarlenAttention:
    """torch's attention over sequences of various lengths, which reads the block tables itself.

    One call for the whole step, on CUDA, in half precision, over a cache laid out by block. `num_splits=1`: a sequence's numbers do
    not depend on the longest neighbour.
    """

    def __init__(self, cache: Cache, kernel: Callable[..., Any]) -> None:
        self._cache = cache
        self._kernel = kernel
        self._tables: dict[str, Any] = {}
        self._starts = torch.zeros(1, dtype=torch.int32)
        self._longest = (0, 0)

    def begin(self, batch: Batch) -> None:
        """The step that follows."""
        device = self._cache.store.device
        tables = [row for group in batch.groups for row in group.table.tolist()]
        tables += [span.table.tolist() for span in batch.spans]
        lengths = [length for group in batch.groups for length in group.lengths.tolist()]
        lengths += [span.start + span.length for span in batch.spans]
        queries = [1] * sum(group.last - group.first for group in batch.groups)
        queries += [span.length for span in batch.spans]
        widest = max(len(table) for table in tables)
        self._tables = {
            "seqused_k": torch.tensor(lengths, dtype=torch.int32, device=device),
            "block_table": torch.tensor(
                padded_table(tables, widest), dtype=torch.int32, device=device
            ),
        }
        self._starts = torch.tensor([0, *queries], device=device).cumsum(0).to(torch.int32)
        self._longest = (max(queries), widest * self._cache.block_size)

    def __call__(self, layer: int, query: Tensor, scale: float) -> Tensor:
        """[tokens, heads, head width] what each token gathers."""
        keys, values = self._cache.keys(layer), self._cache.values(layer)
        gathered: Tensor = self._kernel(
            query,
            keys,
            values,
            self._starts,
            None,
            *self._longest,
            scale=scale,
            window_size=(-1, 0),
            enable_gqa=keys.shape[2] != query.shape[1],
            num_splits=1,
            **self._tables,
        )
        return gathered


def reads_tables(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether there is a kernel that reads block tables; the cache is then laid out by block."""
    return device.type == "cuda" and dtype in (torch.float16, torch.bfloat16)


def choose(cache: Cache) -> Attention:
    """The attention for this cache: the kernel where it exists, gathering everywhere else."""
    if cache.heads_first:
        return GatherAttention(cache)
    from torch.nn.attention.varlen import varlen_attn

    return VarlenAttention(cache, varlen_attn)
