"""Rewards of named parts: weights, floors, and every part reported, because one number hides things.

The reward is the weighted mean of the parts. Where a part lies below its floor, the reward is at
most that part itself: no excellence elsewhere buys it back.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from rlhf.graders.functions import Called
from rlhf.graders.protocol import Answer, BadAnswer, Sample, score_of
from rlhf.identity import Score


class Part(msgspec.Struct, frozen=True):
    """How a part counts. `floor` None = none."""

    weight: float = 1.0
    floor: float | None = None

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise ValueError(f"a part's weight is {self.weight}; it must be more than 0")


def combine(values: Mapping[str, float], parts: Mapping[str, Part]) -> Score:
    """The reward of some parts, and the parts.

    Raises:
        BadAnswer: a part is missing or unknown, or not finite.
    """
    if values.keys() != parts.keys():
        missing = sorted(parts.keys() - values.keys())
        unknown = sorted(values.keys() - parts.keys())
        raise BadAnswer(f"parts of the reward are missing: {missing}, or unknown: {unknown}")
    if fault := Score(0.0, dict(values)).fault():
        raise BadAnswer(fault)
    weights = sum(part.weight for part in parts.values())
    mean = sum(parts[name].weight * value for name, value in values.items()) / weights
    below = [
        values[name]
        for name, part in parts.items()
        if part.floor is not None and values[name] < part.floor
    ]
    return Score(min([mean, *below]), dict(values))


class CompositeGrader:
    """Scores by several functions, each a part: `{name: (function, part)}`."""

    largest_batch = 1

    def __init__(
        self,
        scorers: Mapping[str, tuple[Callable[..., float], Part]],
        *,
        name: str = "composite",
        pure: bool = False,
    ) -> None:
        if not scorers:
            raise ValueError("a composite reward needs at least one part")
        self.name = name
        self.pure = pure
        self.parts = {name: part for name, (_, part) in scorers.items()}
        self._called = {name: Called(function) for name, (function, _) in scorers.items()}

    def score(self, sample: Sample) -> Score:
        """The reward of a sample and its parts.

        Raises:
            BadAnswer: a function returned no finite number.
        """
        values = {name: score_of(called(sample)).reward for name, called in self._called.items()}
        return combine(values, self.parts)

    async def grade(self, samples: Sequence[Sample]) -> list[Answer]:
        """Scores in the event loop: the parts are quick functions."""
        return [sample.answered(self.score(sample)) for sample in samples]

    async def close(self) -> None:
        """Nothing was started."""
