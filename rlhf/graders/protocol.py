"""What a grader is: samples in, one keyed answer each out.

An answer echoes the envelope it was computed for, so it is bound to its sample by identity and
token digests, however long it took and whatever came between.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from rlhf.identity import Envelope, Score
from rlhf.missing import Missing


class Sample(msgspec.Struct, frozen=True):
    """What a grader sees of a sample. `context` is what the task knows of the prompt (JSON)."""

    envelope: Envelope
    prompt_ids: list[int]
    response_ids: list[int]
    prompt: str = ""
    response: str = ""
    context: dict[str, Any] = {}

    def answered(self, outcome: Score | Missing) -> "Answer":
        """The answer to this sample."""
        return Answer(self.envelope, outcome)


class Answer(NamedTuple):
    """A grader's answer: the envelope it was computed for, echoed, and the outcome."""

    envelope: Envelope
    outcome: Score | Missing


class GraderFailed(Exception):
    """A grader could not score; becomes a missing reward with reason GraderError."""


class BadAnswer(Exception):
    """What a grader answered breaks the rules; becomes a missing reward with reason InvalidAnswer."""


class Refused(Exception):
    """Raised by a reward function that will not score a sample; becomes reason Refused."""


class Grader(Protocol):
    """Scores samples.

    `name` is shown. `pure` says that the same tokens always get the same score, so that an audit can
    recompute it. `largest_batch` is how many samples one call may have; only graders that gain from
    batches (a reward model) set it above 1, since all samples of a call share its fate.
    A call may be cancelled when its deadline has passed; the grader then stops its work.
    """

    @property
    def name(self) -> str:
        """What it is called in journals and reports."""
        ...

    @property
    def pure(self) -> bool:
        """Whether the same tokens always get the same score."""
        ...

    @property
    def largest_batch(self) -> int:
        """The most samples for one call."""
        ...

    async def grade(self, samples: Sequence[Sample]) -> Sequence[Answer]:
        """One answer per sample, in any order. Whoever calls checks them (`checking.checked`)."""
        ...

    async def close(self) -> None:
        """Ends what the grader started: processes, connections."""
        ...


_MOST_PARTS = 64
_LONGEST_NAME = 100


def score_of(value: object) -> Score:
    """What a reward function returned, as a score: a number, or named parts with their `reward`.

    A mapping without `reward` is refused: how parts become one number is for `composite` to say.

    Raises:
        BadAnswer: it is neither, or not finite, or has too many parts.
    """
    if isinstance(value, Score):
        score = value
    elif isinstance(value, Mapping):
        score = _from_parts(value)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise BadAnswer(
            f"a reward function returns a number or a mapping with `reward`, not {_kind(value)}"
        )
    else:
        score = Score(float(value))
    if fault := score.fault():
        raise BadAnswer(fault)
    return score


def _from_parts(value: Mapping[Any, Any]) -> Score:
    if "reward" not in value:
        raise BadAnswer(f"the mapping returned has no `reward`, only {sorted(map(str, value))[:8]}")
    if len(value) > _MOST_PARTS:
        raise BadAnswer(f"{len(value)} parts of a reward; at most {_MOST_PARTS}")
    parts = {str(name)[:_LONGEST_NAME]: part for name, part in value.items() if name != "reward"}
    fault = Score(value["reward"], parts).fault()
    if fault:
        raise BadAnswer(fault)
    return Score(float(value["reward"]), {name: float(part) for name, part in parts.items()})


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
