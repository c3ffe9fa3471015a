"""The bulk of a state: named pieces of memory, as torch tensors, numpy arrays or bytes.

torch and numpy are imported only where a piece is of theirs.
"""

import math
import sys
from dataclasses import dataclass
from typing import Any

from clusterops.train.errors import CorruptCheckpoint


@dataclass(slots=True)
class Block:
    """A named piece of memory of a state: `source` is a torch tensor, a numpy array or bytes.

    `dtype` and `shape` are what a shard's header says; `item_bytes` is the alignment it needs.
    """

    name: str
    source: Any
    dtype: str
    shape: tuple[int, ...]
    size: int
    item_bytes: int


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a tree refers to a block, and what to allocate for it."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]


def allocate(reference: Reference) -> tuple[Any, memoryview]:
    """A new object for a block, and its memory to fill.

    Raises:
        CorruptCheckpoint: the dtype is unknown here.
    """
    if reference.kind == "blob":
        content = bytearray(*reference.shape)
        return content, memoryview(content)
    if reference.kind == "array":
        import numpy

        try:
            array: Any = numpy.empty(reference.shape, numpy.dtype(reference.dtype))
        except (TypeError, ValueError) as error:
            raise CorruptCheckpoint(f"{reference.name}: {error}") from None
        return array, _memory(array.reshape(-1).view(numpy.uint8))
    import torch

    dtype = getattr(torch, reference.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise CorruptCheckpoint(f"{reference.name} has dtype {reference.dtype}, unknown to torch")
    # By way of bytes: some dtypes can be viewed, but not be allocated without a warning.
    flat = torch.empty(math.prod(reference.shape) * dtype.itemsize, dtype=torch.uint8)
    return flat.view(dtype).view(reference.shape), _memory(flat.numpy())


def finished(reference: Reference, filled: Any) -> Any:
    """The object of a block, once its memory has been filled."""
    return bytes(filled) if reference.kind == "blob" else filled


def memory_of(block: Block) -> memoryview:
    """A block's bytes in main memory, contiguous; copies only what is on a device or scattered."""
    source = block.source
    if isinstance(source, bytes):
        return memoryview(source)
    if is_tensor(source):
        return tensor_memory(source.detach().resolve_conj().resolve_neg().cpu().contiguous())
    import numpy

    return _memory(numpy.ascontiguousarray(source).reshape(-1).view(numpy.uint8))


def is_tensor(value: Any) -> bool:
    """Whether this is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def tensor_memory(tensor: Any) -> memoryview:
    """The bytes of a contiguous tensor in main memory, of any dtype, without a copy."""
    import torch

    size = tensor.numel() * tensor.element_size()
    if size == 0:
        return memoryview(b"")
    start = tensor.storage_offset() * tensor.element_size()
    flat = torch.empty(0, dtype=torch.uint8)
    flat.set_(tensor.untyped_storage(), start, (size,), (1,))
    return _memory(flat.numpy())


def _memory(array: Any) -> memoryview:
    return memoryview(array)
