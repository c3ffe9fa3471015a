"""Requests of the shapes that rollout and serving see, by seed: lengths first, then token ids."""

import math
import random
from typing import NamedTuple


class Job(NamedTuple):
    """A request that writes exactly `new` tokens."""

    prompt: list[int]
    new: int


def log_normal(chance: random.Random, median: float, sigma: float, low: int, high: int) -> int:
    """A length, cut to its limits."""
    return min(high, max(low, round(math.exp(chance.gauss(math.log(median), sigma)))))


def jobs(kind: str, count: int, cap: int, vocabulary: int = 4096) -> list[Job]:
    """The requests of a workload; `cap` is the longest response (twice that for sharegpt)."""
    chance = random.Random(f"{kind}/0")
    made = []
    for _ in range(count):
        prompt, new = _lengths(kind, chance, cap)
        made.append(Job([chance.randrange(3, vocabulary) for _ in range(prompt)], new))
    return made


def _lengths(kind: str, chance: random.Random, cap: int) -> tuple[int, int]:
    if kind == "longtail":
        return chance.randint(16, 64), log_normal(chance, 64, 1.0, 4, cap)
    if kind == "alpaca":
        return log_normal(chance, 15, 0.7, 4, 128), log_normal(chance, 35, 1.0, 1, cap)
    if kind == "sharegpt":
        return log_normal(chance, 80, 1.2, 4, cap), log_normal(chance, 200, 1.0, 1, 2 * cap)
    if kind == "uniform":
        return chance.randint(16, 64), chance.randint(1, cap)
    assert kind == "constant", kind
    return 40, cap // 4
