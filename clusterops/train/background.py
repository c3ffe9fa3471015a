"""A save that runs beside training: copy the state, let training go on, write in a thread.

At most one is in flight. Its failure is kept until somebody asks for the result.
"""

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from clusterops.train.blocks import Block, is_tensor, tensor_memory
from clusterops.train.serialization import Encoded

T = TypeVar("T")


class StateCopies:
    """Copies of a state's memory, kept from save to save: touching fresh memory costs several times
    the copy itself. Costs main memory of the size of the state.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Any] = {}

    def take(self, state: Encoded) -> Encoded:
        """The state with every block copied. Overwrites the copies of the last call."""
        buffers: dict[str, Any] = {}
        on_device = False
        blocks = []
        for block in state.blocks:
            copied = self._copied(block)
            on_device = on_device or (is_tensor(block.source) and block.source.is_cuda)
            if copied is not block.source:
                buffers[block.name] = copied
            blocks.append(
                Block(block.name, copied, block.dtype, block.shape, block.size, block.item_bytes)
            )
        if on_device:
            import torch

            torch.cuda.current_stream().synchronize()
        self._buffers = buffers  # what this state no longer has is let go
        return Encoded(state.tree, blocks)

    def _copied(self, block: Block) -> Any:
        source = block.source
        if isinstance(source, bytes):
            return source
        if is_tensor(source):
            return self._copied_tensor(block.name, source)
        kept: Any = self._buffers.get(block.name)
        if _fits(kept, source, "nbytes"):
            kept[...] = source
            return kept
        return source.copy(order="C")

    def _copied_tensor(self, name: str, source: Any) -> Any:
        import torch

        plain = source.detach().resolve_conj().resolve_neg()
        kept: Any = self._buffers.get(name)
        if not _fits(kept, plain, "itemsize"):
            kept = torch.empty(plain.shape, dtype=plain.dtype, pin_memory=plain.is_cuda)
        if plain.device.type == "cpu" and plain.is_contiguous():
            # torch would wake all its threads for each tensor, which costs more than the copy when
            # other ranks keep the cores busy.
            tensor_memory(kept)[:] = tensor_memory(plain)
        else:
            kept.copy_(plain, non_blocking=plain.is_cuda)
        return kept


class BackgroundTask(Generic[T]):
    """One piece of work in a thread, whose result or failure is collected once."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._result: T
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="checkpoint-save", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether `result` would return at once."""
        return not self._thread.is_alive()

    @property
    def failed(self) -> bool:
        """Whether it has ended, and `result` would raise."""
        return self.done and self._failure is not None

    def wait(self, seconds: float) -> bool:
        """Waits at most so long for the end; says whether it was reached."""
        self._thread.join(seconds)
        return self.done

    def result(self) -> T:
        """Waits for the end; returns what the work returned, or raises what it raised."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._failure = error


def _fits(kept: Any, source: Any, size: str) -> bool:
    """Whether a kept copy has the shape and type of what is to be copied."""
    return (
        kept is not None
        and type(kept).__module__.partition(".")[0] == type(source).__module__.partition(".")[0]
        and kept.shape == source.shape
        and kept.dtype == source.dtype
        and getattr(kept, size, None) == getattr(source, size, None)
    )
