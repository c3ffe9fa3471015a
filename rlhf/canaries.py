"""Canaries: slots whose reward is known beforehand and unlike any other, masked from the loss.

When rewards slip, a canary's value turns up in another slot, and the distance is the exact shift.
Values are multiples of 2**-20 just above 5/16, exact also as 32-bit floats, and differ among the
canaries of any window that a shift could cross.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from rlhf.identity import sampling_seed

_BASE = 0.3125
_STEP = 2.0**-20
_VALUES = 4096
_TOLERANCE = _STEP / 4


class CanaryPlan(NamedTuple):
    """Which slots are canaries: one in every `every`, at a place that the seed decides."""

    seed: int
    every: int = 200

    def is_canary(self, seq: int) -> bool:
        """Whether a slot's reward is known beforehand."""
        window, place = divmod(seq, self.every)
        return place == _place(self.seed, window, self.every)

    def reward(self, seq: int) -> float:
        """The reward of a canary."""
        return _BASE + (seq // self.every) % _VALUES * _STEP

    def among(self, seqs: Iterable[int]) -> dict[int, float]:
        """The canaries among some slots, with their rewards."""
        return {seq: self.reward(seq) for seq in seqs if self.is_canary(seq)}


@lru_cache(maxsize=1024)
def _place(seed: int, window: int, every: int) -> int:
    return sampling_seed(seed, window, -1) % every


class CanaryFinding(NamedTuple):
    """Where a canary's reward was found. `offset` +1 = one slot late; None = nowhere near."""

    seq: int
    expected: float
    received: float
    offset: int | None


def find_offsets(
    expected: Mapping[int, float], received: Mapping[int, float], window: int
) -> list[CanaryFinding]:
    """Every canary that was received, with how far off its value was found.

    `expected` are the canaries' rewards by slot, `received` the rewards that entered the update, of
    all slots; `window` is how many slots to either side are searched, nearest first.
    """
    return [
        CanaryFinding(seq, value, received[seq], _nearest(received, seq, value, window))
        for seq, value in sorted(expected.items())
        if seq in received
    ]


def _nearest(received: Mapping[int, float], seq: int, value: float, window: int) -> int | None:
    for distance in range(window + 1):
        for offset in (distance, -distance):
            found = received.get(seq + offset)
            if found is not None and abs(found - value) < _TOLERANCE:
                return offset
    return None
