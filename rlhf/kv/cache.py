"""The tensors behind the blocks: keys and values of all layers, written and copied by place."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rlhf.kv.blocks import NULL_BLOCK, Copy


class Cache:
    """Keys and values of all layers, by block.

    `heads_first` lays them out as [layers, 2, heads, blocks + 1, block size, head width]: gathered
    blocks are then what attention on a CPU reads fastest. Kernels that read block tables themselves
    want [layers, 2, blocks + 1, block size, heads, head width].

    A block is zeroed when it is handed out: places that nothing was written to yet are masked, but
    a NaN there would spread through the mask (0 x NaN). The null block stays zero for good.
    """

    def __init__(
        self,
        layers: int,
        blocks: int,
        block_size: int,
        heads: int,
        head_width: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        heads_first: bool = True,
    ) -> None:
        places = (blocks + 1, block_size)
        inner = (heads, *places, head_width) if heads_first else (*places, heads, head_width)
        self.store = torch.zeros((layers, 2, *inner), dtype=dtype, device=device)
        self.block_size = block_size
        self.heads = heads
        self.head_width = head_width
        self.heads_first = heads_first
        self._blocks_at = 3 if heads_first else 2
        flat = (heads, -1, head_width) if heads_first else (-1, heads, head_width)
        self._places = self.store.view(layers, 2, *flat)

    def keys(self, layer: int) -> Tensor:
        """One layer's keys, in the layout of the cache."""
        return self.store[layer, 0]

    def values(self, layer: int) -> Tensor:
        """One layer's values, in the layout of the cache."""
        return self.store[layer, 1]

    def write(self, layer: int, places: Tensor, key: Tensor, value: Tensor) -> None:
        """Puts [tokens, heads, head width] keys and values into their places."""
        for kind, given in ((0, key), (1, value)):
            if self.heads_first:
                self._places[layer, kind].index_copy_(1, places, given.transpose(0, 1))
            else:
                self._places[layer, kind].index_copy_(0, places, given)

    def clear(self, blocks: Sequence[int]) -> None:
        """Zeroes blocks that are handed out anew."""
        if blocks:
            chosen = torch.tensor(blocks, device=self.store.device)
            self.store.index_fill_(self._blocks_at, chosen, 0)

    def copy(self, copies: Sequence[Copy]) -> None:
        """Copies whole blocks, all layers."""
        if copies:
            device, at = self.store.device, self._blocks_at
            source = torch.tensor([one.source for one in copies], device=device)
            target = torch.tensor([one.target for one in copies], device=device)
            self.store.index_copy_(at, target, self.store.index_select(at, source))


def block_bytes(
    layers: int, block_size: int, heads: int, head_width: int, dtype: torch.dtype
) -> int:
    """What one block takes in memory, keys and values of all layers."""
    return 2 * layers * block_size * heads * head_width * dtype.itemsize


def padded_table(tables: Sequence[Sequence[int]], width: int) -> list[list[int]]:
    """Tables of one width; the null block fills up."""
    return [[*table, *[NULL_BLOCK] * (width - len(table))] for table in tables]
