"""Canaries on their way: the grader's answers pass, those of canaries are the known ones."""

from collections.abc import Sequence

from rlhf.canaries import CanaryPlan
from rlhf.graders.protocol import Answer, Grader, Sample
from rlhf.identity import Score


class CanaryGrader:
    """A grader behind which some slots have a reward that was known beforehand.

    Canaries go the same way as all others, through claim, grading and order; only their number is not
    the grader's.
    """

    def __init__(self, inner: Grader, plan: CanaryPlan | None) -> None:
        self._inner = inner
        self._plan = plan

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def pure(self) -> bool:
        return self._inner.pure

    @property
    def largest_batch(self) -> int:
        return self._inner.largest_batch

    async def grade(self, samples: Sequence[Sample]) -> list[Answer]:
        """The inner grader's answers, and the canaries' own."""
        known = {one.envelope.seq for one in samples if self._is_canary(one)}
        asked = [one for one in samples if one.envelope.seq not in known]
        answers = list(await self._inner.grade(asked)) if asked else []
        return answers + [self._known(one) for one in samples if one.envelope.seq in known]

    async def close(self) -> None:
        """Closes the inner grader."""
        await self._inner.close()

    def _is_canary(self, sample: Sample) -> bool:
        return self._plan is not None and self._plan.is_canary(sample.envelope.seq)

    def _known(self, sample: Sample) -> Answer:
        assert self._plan is not None
        return sample.answered(Score(self._plan.reward(sample.envelope.seq)))
