"""What a grader is: samples in, one keyed answer each out."""

from collections.abc import Sequence
from typing import Any, Protocol

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


class Answer(msgspec.Struct, frozen=True):
    """A grader's answer: the envelope it was computed for, echoed, and the outcome."""

    envelope: Envelope
    outcome: Score | Missing


class Grader(Protocol):
    """Scores samples. `pure` = the same tokens give the same reward, so that audits can recompute."""

    name: str
    pure: bool

    async def grade(self, samples: Sequence[Sample]) -> Sequence[Answer]:
        """One answer per sample, in any order; what is missing or too much is refused by the caller."""
        ...
