"""Rewards of named parts: weights, floors, and every part reported, because one number hides things.

The reward is the weighted mean of the parts. Where a part lies below its floor, the reward is at
most that part itself: no excellence elsewhere buys it back.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from rlhf.graders.checking import answers_of
from rlhf.graders.functions import Called
from rlhf.graders.protocol import Answer, BadAnswer, Grader, Sample, score_of
from rlhf.identity import Score
from rlhf.missing import Missing, Reason


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


class GradersTogether:
    """Scores by several graders, each a part: `{name: (grader, part)}`. They work side by side.

    A sample that one of them gives no score has none: the missing reward says which part is missing.
    """

    def __init__(self, graders: Mapping[str, tuple[Grader, Part]]) -> None:
        if not graders:
            raise ValueError("a composite reward needs at least one part")
        self._graders = {name: grader for name, (grader, _) in graders.items()}
        self.parts = {name: part for name, (_, part) in graders.items()}
        self.name = f"composite of {', '.join(graders)}"
        self.pure = all(grader.pure for grader in self._graders.values())
        self.largest_batch = min(grader.largest_batch for grader in self._graders.values())

    async def grade(self, samples: Sequence[Sample]) -> list[Answer]:
        """One answer per sample, from one answer of every part."""
        async with asyncio.TaskGroup() as group:
            asked = {
                name: group.create_task(answers_of(grader, samples), name=f"part {name}")
                for name, grader in self._graders.items()
            }
        by_part = {name: task.result() for name, task in asked.items()}
        # `answers_of` has paired them by identity, and gives them in the samples' order.
        return [
            sample.answered(
                self._outcome({name: given[place].outcome for name, given in by_part.items()})
            )
            for place, sample in enumerate(samples)
        ]

    async def close(self) -> None:
        """Closes every part's grader."""
        for grader in self._graders.values():
            await grader.close()

    def _outcome(self, outcomes: Mapping[str, Score | Missing]) -> Score | Missing:
        values = {}
        for name, outcome in outcomes.items():
            if isinstance(outcome, Missing):
                return Missing(outcome.reason, f"part {name}: {outcome.detail}")
            values[name] = outcome.reward
        try:
            return combine(values, self.parts)
        except BadAnswer as error:
            return Missing(Reason.INVALID_ANSWER, str(error))
