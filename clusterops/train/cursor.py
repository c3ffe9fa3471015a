"""Which data has been consumed, and which comes next: exactly once, across any number of restarts.

The order of an epoch is a function of seed and epoch alone, computed item by item (a keyed Feistel
permutation), so that going on at ordinal one billion costs as much as starting. What is saved is the
frontier of *consumed* ordinals: data that was only fetched ahead is issued again after a restart.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from clusterops.train.errors import ResumeMismatch

_ROUNDS = 4


def extend_digest(previous: str, ids: Iterable[int | str]) -> str:
    """The order digest after these ids: H(previous, ids). Equal digests mean equal order.

    Ids are counted and their lengths stored, so that [1, 23] and [12, 3] differ.
    """
    chain = hashlib.sha256(previous.encode())
    for one in ids:
        text = f"{type(one).__name__[0]}{one}".encode()
        chain.update(len(text).to_bytes(4, "big") + text)
    return chain.hexdigest()


def permuted(position: int, size: int, seed: int, epoch: int) -> int:
    """The item at a position (0 <= position < size) of an epoch's order."""
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half_bits) - 1
    value = position
    while True:  # walk the cycle until it is back inside; less than four steps on average
        left, right = value >> half_bits, value & mask
        for number in range(_ROUNDS):
            key = f"{seed}:{epoch}:{number}:{right}".encode()
            mixed = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
            left, right = right, left ^ (mixed & mask)
        value = (left << half_bits) | right
        if value < size:
            return value


@dataclass(frozen=True, slots=True)
class Batch:
    """Ordinals `start` to `stop` (exclusive) of the endless stream of epochs, and their item ids."""

    start: int
    stop: int
    ids: tuple[int, ...]

    def for_rank(self, rank: int, world_size: int) -> tuple[int, ...]:
        """One rank's share: every `world_size`-th id, so that all ranks together have each once."""
        return self.ids[rank::world_size]


class DataCursor:
    """Hands out batches of item ids, and remembers which were consumed.

    `issue()` may run ahead (a loader that fetches in the background); `consume(batch)` says that the
    batch went into an optimizer step, in any order. All ranks hold the same cursor and take their
    share of each batch. An epoch's last batch runs over into the next epoch: nothing is dropped.
    """

    def __init__(self, size: int, *, batch_size: int, seed: int = 0) -> None:
        if size < 1 or batch_size < 1:
            raise ValueError(f"size and batch_size must be at least 1, not {size}, {batch_size}")
        self.size = size
        self.batch_size = batch_size
        self.seed = seed
        self._frontier = 0  # everything below was consumed
        self._ahead: dict[int, Batch] = {}  # consumed beyond it, by start
        self._outstanding: dict[int, Batch] = {}  # issued and not consumed, by start
        self._issued = 0
        self._digest = ""

    @property
    def consumed(self) -> int:
        """Ordinals consumed without a gap."""
        return self._frontier

    @property
    def epoch(self) -> int:
        """The epoch that the next unconsumed item belongs to."""
        return self._frontier // self.size

    @property
    def order_digest(self) -> str:
        """Chains the ids consumed so far, in their order; goes into the manifest."""
        return self._digest

    def issue(self) -> Batch:
        """The next batch that was neither issued in this process nor consumed before."""
        # After a restart the frontier may have swallowed what an earlier process consumed ahead.
        start = max(self._issued, self._frontier)
        while start in self._ahead:
            start = self._ahead[start].stop
        later = [other for other in self._ahead if other > start]
        stop = min([start + self.batch_size, *later])
        batch = Batch(start, stop, self._ids(start, stop))
        self._issued = stop
        self._outstanding[start] = batch
        return batch

    def consume(self, batch: Batch) -> None:
        """Records an issued batch as trained on.

        Raises:
            ValueError: it was consumed before, or this cursor has not issued it.
        """
        if self._outstanding.get(batch.start) != batch:
            raise ValueError(
                f"batch {batch.start}..{batch.stop} was consumed before, or not issued here"
            )
        del self._outstanding[batch.start]
        self._ahead[batch.start] = batch
        while self._frontier in self._ahead:
            done = self._ahead.pop(self._frontier)
            for one in done.ids:  # one by one: the digest must not depend on the batch size
                self._digest = extend_digest(self._digest, (one,))
            self._frontier = done.stop

    def state_dict(self) -> dict[str, Any]:
        """What was consumed; what was only issued is not part of it."""
        return {
            "size": self.size,
            "seed": self.seed,
            "frontier": self._frontier,
            "ahead": sorted([batch.start, batch.stop] for batch in self._ahead.values()),
            "digest": self._digest,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where the state was saved.

        Raises:
            ResumeMismatch: the state is of other data, or of another order.
        """
        for name, mine in (("size", self.size), ("seed", self.seed)):
            if state[name] != mine:
                raise ResumeMismatch(
                    f"the checkpoint's data cursor has {name} {state[name]}, this one {mine}; "
                    "the order of the data would change in mid-run"
                )
        self._frontier = self._issued = state["frontier"]
        self._ahead = {
            start: Batch(start, stop, self._ids(start, stop)) for start, stop in state["ahead"]
        }
        self._outstanding = {}
        self._digest = state["digest"]

    def _ids(self, start: int, stop: int) -> tuple[int, ...]:
        return tuple(
            permuted(ordinal % self.size, self.size, self.seed, ordinal // self.size)
            for ordinal in range(start, stop)
        )
