"""The guard of the first step: the trainer scores some tokens again, and drift is named by its cause.

Before any update the policy that trains is the policy that sampled, so every log-probability must come
out again. When it does not, training would go on for hours with ratios that mean nothing; and each way
of being wrong leaves its own trace.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from hashlib import blake2b
from math import isnan
from typing import NamedTuple

Rescore = Callable[[float], Sequence[Sequence[float]]]
"""The trainer's log-probabilities of all rows' tokens at a temperature."""

_EXPLAINED = 0.9
_CLOSER = 0.1


class Cause(StrEnum):
    """What the drift comes from."""

    NONE = "none"
    TEMPERATURE = "temperature"
    SCALED_LOGPROBS = "scaled logprobs"
    SHIFTED = "shifted by one"
    WRONG_ROW = "wrong row"
    STALE_KEYS = "stale keys"
    UNKNOWN = "unknown"


class Scored(NamedTuple):
    """A response as the engine reported it. `found_tokens` were taken from earlier or sibling keys;
    `carried` when tokens were drawn over keys of older weights.
    """

    name: str
    logprobs: Sequence[float]
    found_tokens: int = 0
    carried: bool = False


class Verdict(NamedTuple):
    """`drift` is the largest difference of a log-probability, `rows` those that drift, by name."""

    cause: Cause
    drift: float
    tokens: int
    rows: list[str]
    sentence: str

    @property
    def stop(self) -> bool:
        """Whether training must not go on."""
        return self.cause is not Cause.NONE


def chosen(names: Sequence[str], lengths: Sequence[int], share: float, seed: int) -> list[int]:
    """Which rows are scored again: by a hash, until they hold `share` of all tokens; at least one."""
    order = sorted(range(len(names)), key=lambda row: _drawn(seed, names[row]))
    wanted = share * sum(lengths)
    rows: list[int] = []
    held = 0
    for row in order:
        if rows and held >= wanted:
            break
        rows.append(row)
        held += lengths[row]
    return sorted(rows)


def _drawn(seed: int, name: str) -> bytes:
    return blake2b(f"{seed}/{name}".encode(), digest_size=8, person=b"step-0").digest()


def judge(
    rows: Sequence[Scored], rescore: Rescore, temperature: float, tolerance: float = 1e-3
) -> Verdict:
    """Compares what the engine reported with what the trainer computes, and names the cause.

    Args:
        rows: what was reported.
        rescore: asked once when all is well; again at other temperatures to find the cause.
        temperature: that the trainer uses.
        tolerance: largest difference that rounding explains.
    """
    trainer = rescore(temperature)
    drifts = [_drift(row.logprobs, other) for row, other in zip(rows, trainer, strict=True)]
    wrong = [number for number, drift in enumerate(drifts) if not drift <= tolerance]
    tokens = sum(len(row.logprobs) for row in rows)
    if not wrong:
        return Verdict(Cause.NONE, max(drifts, default=0.0), tokens, [], "no drift")
    found = _cause(rows, trainer, wrong, drifts, rescore, temperature)
    drift = max(drifts[number] for number in wrong)
    names = [rows[number].name for number in wrong]
    sentence = f"{len(wrong)} of {len(rows)} responses drift by up to {drift:.3g}: {found[1]}"
    return Verdict(found[0], drift, tokens, names, sentence)


def _cause(
    rows: Sequence[Scored],
    trainer: Sequence[Sequence[float]],
    wrong: Sequence[int],
    drifts: Sequence[float],
    rescore: Rescore,
    temperature: float,
) -> tuple[Cause, str]:
    """The first explanation under which (nearly) all rows that drift come out."""

    def explains(candidate: Callable[[int], bool]) -> bool:
        return sum(candidate(number) for number in wrong) >= _EXPLAINED * len(wrong)

    def close(number: int, other: Sequence[float]) -> bool:
        return _drift(rows[number].logprobs, other) <= _CLOSER * drifts[number]

    def close_to(scored: Sequence[Sequence[float]], number: int) -> bool:
        return close(number, scored[number])

    if explains(lambda number: _is_shifted(rows[number].logprobs, trainer[number], drifts[number])):
        return Cause.SHIFTED, "each reported log-probability belongs to the token beside it"
    if explains(
        lambda number: any(close(number, trainer[other]) for other in _others(rows, number))
    ):
        return Cause.WRONG_ROW, "the log-probabilities are those of other responses of the batch"
    for other in _suspects(temperature):
        scored = rescore(other)
        if explains(partial(close_to, scored)):
            return (
                Cause.TEMPERATURE,
                f"they are those at temperature {other:g}, the trainer's is {temperature:g}",
            )
    raw = rescore(1.0)
    if explains(lambda number: close(number, [one / temperature for one in raw[number]])):
        return (
            Cause.SCALED_LOGPROBS,
            "log-probabilities were divided by the temperature, instead of logits before the softmax",
        )
    reused = [number for number, row in enumerate(rows) if row.found_tokens or row.carried]
    if all(number in reused for number in wrong):
        only = len(reused) == len(wrong)
        return (
            Cause.STALE_KEYS,
            f"all of these{', and only these,' if only else ''} used keys computed before: "
            "those are of other weights",
        )
    return Cause.UNKNOWN, "neither temperature, shift, rows nor reused keys explain it"


def _suspects(temperature: float) -> list[float]:
    """Temperatures that somebody may have used instead: none, twice, or upside down."""
    others = dict.fromkeys((1.0, temperature**2, 1 / temperature))
    return [one for one in others if abs(one - temperature) > 1e-6]


def _others(rows: Sequence[Scored], number: int) -> list[int]:
    length = len(rows[number].logprobs)
    return [one for one, row in enumerate(rows) if one != number and len(row.logprobs) == length]


def _is_shifted(reported: Sequence[float], trainer: Sequence[float], drift: float) -> bool:
    """One off in either direction; a response of one token cannot tell."""
    if min(len(reported), len(trainer)) < 3:
        return False
    pairs = ((reported[1:], trainer[:-1]), (reported[:-1], trainer[1:]))
    return any(_drift(*pair) <= _CLOSER * drift for pair in pairs)


def _drift(some: Sequence[float], others: Sequence[float]) -> float:
    """The largest difference; infinite when the lengths differ or a number is none."""
    if len(some) != len(others):
        return float("inf")
    differences = [abs(one - other) for one, other in zip(some, others, strict=True)]
    return max((float("inf") if isnan(one) else one for one in differences), default=0.0)
