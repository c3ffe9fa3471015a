"""What every foreign engine lacks for RLHF, kept here once: identity, order of weights, refusals.

Requests go out under names that nothing else has, and results are paired by these names. New weights
wait until the requests before them are done, and later requests wait for the new weights. What the
other engine would accept and never finish is refused at submission.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from rlhf.generation import PromptTooLong, Result, Stats
from rlhf.sampling import Parameters

State = Mapping[str, Tensor]


class UnsupportedParameters(ValueError):
    """The other engine would draw by them, and report log-probabilities that mean something else."""


class EngineDied(RuntimeError):
    """The other engine has stopped by itself; what was out will not come back."""


class WrongAnswer(RuntimeError):
    """The other engine's answer contradicts itself or the request."""


class Outgoing(NamedTuple):
    """A request as it goes out. `salt` keeps prefixes of different weights apart."""

    name: str
    prompt: list[int]
    parameters: Parameters
    salt: str


class Answer(NamedTuple):
    """A finished request as it came back; `versions` where the engine says them per token."""

    name: str
    tokens: list[int]
    logprobs: list[float]
    finish_reason: str
    cached_tokens: int = 0
    versions: list[int] | None = None


class _Out(NamedTuple):
    uid: int
    prompt_id: str
    sample_idx: int
    prompt: list[int]
    parameters: Parameters
    version: int


class _Update(NamedTuple):
    version: int
    state: dict[str, Tensor]


class ForeignEngine:
    """The bookkeeping. A back-end says how to send, poll, cancel and load; one thread."""

    repeatable = True
    """Whether a sample depends on its own seed alone. If not, a run cannot be repeated exactly."""

    def __init__(self, context: int, capacity: int, version: int = 0) -> None:
        """`context` tokens a row at most; `capacity` tokens in the whole cache."""
        self._most = min(context, capacity)
        self._version = version
        self._epoch = 0
        self._announced = version
        self._next_uid = 0
        self._out: dict[str, _Out] = {}
        self._line: deque[_Out | _Update] = deque()
        self._aborted: list[Result] = []
        self._finished = 0
        self._generated = 0

    # ---- what a back-end does

    def _refusal(self, parameters: Parameters) -> str:
        """Why these parameters cannot be honoured; empty when they can."""
        raise NotImplementedError

    def _send(self, request: Outgoing) -> None:
        """Hands a request over."""
        raise NotImplementedError

    def _poll(self) -> list[Answer]:
        """What has finished; waits a little when nothing has."""
        raise NotImplementedError

    def _cancel(self, name: str) -> None:
        """Ends a request; an answer may still come and is ignored."""
        raise NotImplementedError

    def _load(self, version: int, state: State) -> None:
        """Puts weights in place; nothing is out."""
        raise NotImplementedError

    # ---- the interface

    def submit(
        self, prompt_id: str, sample_idx: int, tokens: Sequence[int], parameters: Parameters
    ) -> int:
        """Takes a request; the handle is its uid.

        Raises:
            PromptTooLong: it can never fit.
            UnsupportedParameters: the log-probabilities would be those of another distribution.
        """
        length = len(tokens) + parameters.max_new_tokens
        if not tokens or length > self._most:
            raise PromptTooLong(
                f"prompt {prompt_id!r}: {len(tokens)} + {parameters.max_new_tokens} tokens; this "
                f"engine holds 1 to {self._most}"
            )
        refusal = self._refusal(parameters)
        if refusal:
            raise UnsupportedParameters(refusal)
        uid = self._next_uid
        self._next_uid += 1
        out = _Out(uid, prompt_id, sample_idx, list(tokens), parameters, self._announced)
        self._line.append(out)
        self._advance_line()
        return uid

    def step(self) -> list[Result]:
        """What has finished since the last call.

        Raises:
            EngineDied: it has stopped by itself.
            WrongAnswer: an answer that cannot be right.
        """
        self._advance_line()
        done, self._aborted = self._aborted, []
        if self._out:
            done += [self._result(answer) for answer in self._poll() if answer.name in self._out]
        self._advance_line()
        return done

    def abort(self, uid: int) -> None:
        """Ends a request; its result comes with the next step, without its tokens."""
        for entry in list(self._line):
            if isinstance(entry, _Out) and entry.uid == uid:
                self._line.remove(entry)
                self._end(entry)
        for name, out in list(self._out.items()):
            if out.uid == uid:
                self._cancel(name)
                del self._out[name]
                self._end(out)

    def set_weights(self, version: int, state: State) -> None:
        """New weights, once everything submitted before has finished."""
        self._announced = version
        if self._out or self._line:
            copied = {name: tensor.detach().clone() for name, tensor in state.items()}
            self._line.append(_Update(version, copied))
        else:
            self._apply(version, state)

    def stats(self) -> Stats:
        """How it is."""
        waiting = sum(isinstance(entry, _Out) for entry in self._line) + len(self._aborted)
        return Stats(waiting, len(self._out), self._finished, self._generated, self._announced)

    # ---- bookkeeping

    def _advance_line(self) -> None:
        """Sends what may go; an update goes when nothing is out."""
        while self._line:
            entry = self._line[0]
            if isinstance(entry, _Update):
                if self._out:
                    return
                self._line.popleft()
                self._apply(entry.version, entry.state)
                continue
            self._line.popleft()
            name = f"{entry.prompt_id}/{entry.sample_idx}/{entry.uid}"
            self._out[name] = entry
            salt = f"{self._version}.{self._epoch}"
            self._send(Outgoing(name, entry.prompt, entry.parameters, salt))

    def _apply(self, version: int, state: State) -> None:
        self._load(version, state)
        self._version = version
        self._epoch += 1

    def _end(self, out: _Out) -> None:
        self._finished += 1
        self._aborted.append(Result(out.uid, out.prompt_id, out.sample_idx, [], [], [], "aborted"))

    def _result(self, answer: Answer) -> Result:
        out = self._out.pop(answer.name)
        versions = answer.versions or [out.version] * len(answer.tokens)
        if not len(answer.tokens) == len(answer.logprobs) == len(versions):
            raise WrongAnswer(
                f"{answer.name}: {len(answer.tokens)} tokens, {len(answer.logprobs)} "
                f"log-probabilities, {len(versions)} versions"
            )
        self._finished += 1
        self._generated += len(answer.tokens)
        return Result(
            out.uid,
            out.prompt_id,
            out.sample_idx,
            answer.tokens,
            answer.logprobs,
            versions,
            answer.finish_reason,
            cached_tokens=answer.cached_tokens,
        )
