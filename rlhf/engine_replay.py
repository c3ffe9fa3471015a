"""A rollout generated once more, alone, and compared with what was recorded of it.

A response is a function of the weights, the prompt and its sampling seed. So any recorded rollout can
be had again on any machine: equal tokens prove that it is of that policy, and where they first differ
tells what to look for.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rlhf.generation import Engine, drain
from rlhf.sampling import Parameters


class Recorded(NamedTuple):
    """A rollout as it was written down. `logprobs` may be empty where they were not kept."""

    prompt_id: str
    sample_idx: int
    prompt: Sequence[int]
    tokens: Sequence[int]
    logprobs: Sequence[float]
    finish_reason: str


class Replay(NamedTuple):
    """`first_difference` is the place of the first token that differs, None when all are equal.

    `worst` is the largest difference of a log-probability before that place.
    """

    same: bool
    first_difference: int | None
    worst: float
    tokens: list[int]
    logprobs: list[float]
    finish_reason: str
    sentence: str


def replay(
    engine: Engine, recorded: Recorded, parameters: Parameters, tolerance: float = 1e-4
) -> Replay:
    """Generates a rollout again in an engine that holds the weights of its policy version.

    Raises:
        ValueError: the engine is at work; a replay is alone.
        PromptTooLong: the rollout does not fit this engine.
    """
    now = engine.stats()
    if now.waiting or now.running:
        raise ValueError("a rollout is replayed alone, and this engine is at work")
    engine.submit(recorded.prompt_id, recorded.sample_idx, recorded.prompt, parameters)
    (again,) = drain(engine)
    return compared(recorded, again.tokens, again.logprobs, again.finish_reason, tolerance)


def compared(
    recorded: Recorded,
    tokens: list[int],
    logprobs: list[float],
    finish_reason: str,
    tolerance: float,
) -> Replay:
    """What was recorded against what came out."""
    first = _first_difference(recorded.tokens, tokens)
    upto = len(recorded.tokens) if first is None else first
    known = recorded.logprobs[:upto]
    pairs = zip(known, logprobs[: len(known)], strict=True)
    worst = max((abs(one - other) for one, other in pairs), default=0.0)
    same = first is None and worst <= tolerance and finish_reason == recorded.finish_reason
    sentence = _sentence(
        first, worst, tolerance, finish_reason, recorded.finish_reason, len(tokens)
    )
    return Replay(same, first, worst, tokens, logprobs, finish_reason, sentence)


def _first_difference(some: Sequence[int], others: Sequence[int]) -> int | None:
    shorter = min(len(some), len(others))
    for place in range(shorter):
        if some[place] != others[place]:
            return place
    return None if len(some) == len(others) else shorter


def _sentence(
    first: int | None, worst: float, tolerance: float, reason: str, recorded: str, length: int
) -> str:
    if first == 0:
        return "the first token differs: other weights, another prompt, or another seed"
    if first is not None:
        return (
            f"{first} tokens are equal, then they differ: with log-probabilities {worst:.1e} apart "
            "before, "
            + ("rounding on other hardware" if worst <= tolerance else "the weights are others")
        )
    if worst > tolerance:
        return f"the tokens are equal, log-probabilities differ by {worst:.1e}"
    if reason != recorded:
        return f"the tokens are equal, but it ended by {reason!r} and not by {recorded!r}"
    return f"all {length} tokens are equal, log-probabilities within {worst:.1e}"
