"""Rollout: the interface of an engine, and a plain one that generates batch after batch.

An engine is handed requests and gives results that carry their own identity, in any order. A result
does not depend on its neighbours: each token is drawn with a number that is a function of the
request's seed and the token's position alone.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from rlhf.model.language import LanguageModel
from rlhf.model.policy import log_softmax_at
from rlhf.model.reading import Reading, reading_of
from rlhf.sampling import Parameters, allowed_tokens, draw, uniforms

NEVER_FITS = "prompt and response do not fit the model's context"


class PromptTooLong(ValueError):
    """A request that the model's context can never hold; the others go on."""


class Result(NamedTuple):
    """A finished response. `tokens`, `logprobs` and `versions` are of one length.

    `logprobs` are those of the full distribution at the request's temperature, also under top-k or
    top-p. `versions` is the policy version behind each token. `finish_reason` is "stop", "length" or
    "aborted". `cached_tokens` were not computed but found.
    """

    uid: int
    prompt_id: str
    sample_idx: int
    tokens: list[int]
    logprobs: list[float]
    versions: list[int]
    finish_reason: str
    preemptions: int = 0
    cached_tokens: int = 0


class Stats(NamedTuple):
    """Counts since the engine was made."""

    waiting: int
    running: int
    finished: int
    generated_tokens: int
    version: int


class Engine(Protocol):
    """Generates. One thread; `step` until `stats` says that nothing waits or runs."""

    def submit(
        self, prompt_id: str, sample_idx: int, tokens: Sequence[int], parameters: Parameters
    ) -> int:
        """Takes a request; the handle is its uid.

        Raises:
            PromptTooLong: it can never fit.
        """

    def step(self) -> list[Result]:
        """Computes one more token of whatever runs; what has finished by it."""

    def abort(self, uid: int) -> None:
        """Ends a request at the next step; its result comes, as "aborted". Unknown ones are ignored."""

    def set_weights(self, version: int, state: Mapping[str, Tensor]) -> None:
        """Goes on with other weights, from the next step on."""

    def stats(self) -> Stats:
        """How it is."""


class _Request:
    """A request and what has been generated for it."""

    def __init__(
        self, uid: int, prompt_id: str, index: int, prompt: list[int], parameters: Parameters
    ) -> None:
        self.uid = uid
        self.prompt_id = prompt_id
        self.sample_idx = index
        self.prompt = prompt
        self.parameters = parameters
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.versions: list[int] = []
        self.aborted = False

    def finish_reason(self) -> str:
        """Why it has ended; empty while it goes on. A stop token on the last place is a stop."""
        if self.aborted:
            return "aborted"
        if self.tokens and self.tokens[-1] in self.parameters.stop_tokens:
            return "stop"
        return "length" if len(self.tokens) >= self.parameters.max_new_tokens else ""

    def result(self, reason: str) -> Result:
        """What it has come to."""
        return Result(
            self.uid,
            self.prompt_id,
            self.sample_idx,
            self.tokens,
            self.logprobs,
            self.versions,
            reason,
        )


class PlainEngine:
    """One batch at a time: all that waits is read together and runs until the last has finished.

    Finished rows leave the batch at once. Which requests make up a batch is up to the caller, who
    submits them before the first `step`: so the arithmetic is the same in every run.
    """

    def __init__(self, model: LanguageModel, version: int = 0) -> None:
        self._model = model
        self._version = version
        self._waiting: list[_Request] = []
        self._running: list[_Request] = []
        self._reading: Reading | None = None
        self._next_uid = 0
        self._finished = 0
        self._generated = 0

    def submit(
        self, prompt_id: str, sample_idx: int, tokens: Sequence[int], parameters: Parameters
    ) -> int:
        """Queues one rollout; its handle. See `Engine.submit`."""
        length = len(tokens) + parameters.max_new_tokens
        if not tokens or length > self._model.context:
            raise PromptTooLong(
                f"{NEVER_FITS}: {len(tokens)} + {parameters.max_new_tokens} tokens of "
                f"{self._model.context}, prompt {prompt_id}"
            )
        uid = self._next_uid
        self._next_uid += 1
        self._waiting.append(_Request(uid, prompt_id, sample_idx, list(tokens), parameters))
        return uid

    def step(self) -> list[Result]:
        done = self._sweep()
        if not self._running:
            if not self._waiting:
                return done
            self._running, self._waiting = self._waiting, []
        with torch.inference_mode():
            self._advance()
        return done + self._sweep()

    def abort(self, uid: int) -> None:
        for request in (*self._waiting, *self._running):
            if request.uid == uid:
                request.aborted = True

    def set_weights(self, version: int, state: Mapping[str, Tensor]) -> None:
        # What runs has been read by the old weights: it is read again, never continued on old keys.
        self._reading = None
        self._model.load_state_dict(dict(state))
        self._version = version

    def stats(self) -> Stats:
        return Stats(
            len(self._waiting), len(self._running), self._finished, self._generated, self._version
        )

    def _advance(self) -> None:
        """One more token for every running row."""
        rows = self._running
        logits = self._read() if self._reading is None else self._continue(self._reading)
        divisors = torch.tensor([row.parameters.divisor for row in rows], device=logits.device)
        logprobs = log_softmax_at(logits, divisors[:, None])
        places = [len(row.tokens) for row in rows]
        numbers = uniforms([row.parameters.seed for row in rows], places)
        allowed = allowed_tokens(logprobs, [row.parameters for row in rows], places)
        chosen = draw(logprobs, allowed, numbers, [row.parameters.temperature for row in rows])
        of_chosen = logprobs.gather(1, chosen[:, None]).squeeze(1)
        for row, token, logprob in zip(rows, chosen.tolist(), of_chosen.tolist(), strict=True):
            row.tokens.append(token)
            row.logprobs.append(logprob)
            row.versions.append(self._version)
        self._generated += len(rows)

    def _read(self) -> Tensor:
        """Reads everything each row has so far."""
        rows = [request.prompt + request.tokens for request in self._running]
        most = max(len(one.prompt) + one.parameters.max_new_tokens for one in self._running)
        self._reading = reading_of(self._model, rows, most)
        return self._reading.logits

    def _continue(self, reading: Reading) -> Tensor:
        reading.add([row.tokens[-1] for row in self._running])
        return reading.logits

    def _sweep(self) -> list[Result]:
        """Takes out what has finished, from the batch and from those that wait."""
        done = [row for row in (*self._waiting, *self._running) if row.finish_reason()]
        self._waiting = [row for row in self._waiting if not row.finish_reason()]
        stay = [index for index, row in enumerate(self._running) if not row.finish_reason()]
        if len(stay) < len(self._running):
            self._running = [self._running[index] for index in stay]
            if self._reading is not None:
                self._reading = self._reading.only(stay) if stay else None
        self._finished += len(done)
        return [row.result(row.finish_reason()) for row in done]


def drain(engine: Engine) -> list[Result]:
    """Steps until nothing is left; all results, by uid."""
    found: list[Result] = []
    while (stats := engine.stats()).waiting or stats.running:
        found += engine.step()
    return sorted(found, key=lambda result: result.uid)
