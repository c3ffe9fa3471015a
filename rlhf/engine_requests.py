"""What is asked of the engine, what it keeps of a request, and what comes back."""

from collections.abc import Sequence as Tokens
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from rlhf.engine_text import StopStrings
from rlhf.generation import Result
from rlhf.identity import Digests
from rlhf.kv.sequence import Sequence
from rlhf.sampling import Parameters

MOST_STOP_STRINGS = 16
MOST_TOP_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class FullParameters(Parameters):
    """`Parameters` with what only this engine does.

    `stop_strings` end a response when its text contains one; the text ends before it, the tokens
    with the one that completed it. `logit_bias` (token, number added to its logit) changes what is
    drawn, not the log-probabilities reported. `keep_support` returns for each token which ones
    could have been drawn, so that a trainer can renormalise. `top_logprobs` of the likeliest are
    reported beside the chosen one's. `extras` keep prefixes apart that must not be shared, as
    (kind, value).
    """

    stop_strings: tuple[str, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()
    keep_support: bool = False
    top_logprobs: int = 0
    extras: tuple[tuple[str, str | int], ...] = ()

    def __post_init__(self) -> None:
        Parameters.__post_init__(self)
        if len(self.stop_strings) > MOST_STOP_STRINGS or not all(self.stop_strings):
            raise ValueError(f"at most {MOST_STOP_STRINGS} stop strings, none of them empty")
        if not 0 <= self.top_logprobs <= MOST_TOP_LOGPROBS:
            raise ValueError(f"top_logprobs is 0 to {MOST_TOP_LOGPROBS}, not {self.top_logprobs}")
        if self.min_new_tokens > self.max_new_tokens:
            raise ValueError(
                f"min_new_tokens {self.min_new_tokens} is above max_new_tokens {self.max_new_tokens}"
            )


class InvalidRequest(ValueError):
    """A request that no engine could serve: an empty prompt, ids that the model does not know."""


class DuplicateSample(InvalidRequest):
    """A sample of this prompt and index is under way: the two results could be mixed up."""


class QueueFull(RuntimeError):
    """As many requests wait as may; try again later."""


class Unfinished(msgspec.Struct, frozen=True):
    """A response that was cut short, with all that is needed to go on: tokens, never keys.

    `attended` are the versions of the oldest keys and values that each token looked at.
    """

    prompt_id: str
    sample_idx: int
    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    versions: list[int]
    attended: list[int]


class Completion(NamedTuple):
    """A result with what the plain interface has no place for.

    `attended` is per token the policy version of the oldest keys and values it looked at: lower than
    its own version where a rollout was carried over an update. `supports` has per token the ids that
    could have been drawn (None: all of them); `top` the likeliest (token, log-probability). `text`
    is cut before a stop string; empty when the engine knows no vocabulary. The digests are those of
    prompt and response, so that a result cannot be paired with another prompt unnoticed.
    """

    result: Result
    attended: list[int]
    digests: Digests
    text: str = ""
    supports: list[list[int] | None] | None = None
    top: list[list[tuple[int, float]]] | None = None


class NewToken(NamedTuple):
    """A token as it was drawn. `text` is what it adds to the text, held back while it may be part of
    a stop string or of a letter.
    """

    uid: int
    token: int
    logprob: float
    text: str
    top: list[tuple[int, float]]


class Request:
    """What the engine keeps of a request while it lives."""

    __slots__ = (
        "before",
        "logprobs",
        "parameters",
        "prompt_id",
        "sample_idx",
        "sequence",
        "stopper",
        "supports",
        "text",
        "top",
    )

    def __init__(
        self,
        sequence: Sequence,
        prompt_id: str,
        sample_idx: int,
        parameters: FullParameters,
        before: Unfinished | None,
        stopper: StopStrings | None,
    ) -> None:
        self.sequence = sequence
        self.prompt_id = prompt_id
        self.sample_idx = sample_idx
        self.parameters = parameters
        self.before = before
        self.logprobs: list[float] = list(before.logprobs) if before else []
        self.supports: list[list[int] | None] = [None] * len(self.logprobs)
        self.top: list[list[tuple[int, float]]] = [[] for _ in self.logprobs]
        self.stopper = stopper
        self.text = ""

    @property
    def place(self) -> int:
        """The position of the next token in the response."""
        return len(self.sequence.tokens) - self.sequence.prompt_length

    def versions(self, policies: dict[int, int]) -> tuple[list[int], list[int]]:
        """Per token: the policy version, and the oldest attended; by the engine's numbering."""
        policy, attended = self.sequence.versions()
        known = self.before
        return (
            (known.versions if known else []) + [policies[one] for one in policy],
            (known.attended if known else []) + [policies[one] for one in attended],
        )


def full(parameters: Parameters) -> FullParameters:
    """The parameters with nothing added, where only the plain ones are given."""
    if isinstance(parameters, FullParameters):
        return parameters
    names = Parameters.__dataclass_fields__
    return FullParameters(**{name: getattr(parameters, name) for name in names})


def check_prompt(tokens: Tokens[int], vocabulary: int, prompt_id: str) -> None:
    """Refuses what no model can read.

    Raises:
        InvalidRequest: an empty prompt, or ids beyond the vocabulary.
    """
    if not tokens:
        raise InvalidRequest(f"prompt {prompt_id!r} is empty: there is nothing to go on from")
    if min(tokens) < 0 or max(tokens) >= vocabulary:
        raise InvalidRequest(
            f"prompt {prompt_id!r} has token ids {min(tokens)} to {max(tokens)}; the model knows "
            f"0 to {vocabulary - 1}"
        )
