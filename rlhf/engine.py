"""The rollout engine: requests in, results out, over a paged cache and scheduled step by step.

A step: apply what is due (aborts, new weights), plan, compute, draw, commit. Each token is drawn by a
number that is a function of its request's seed and its place, so a response does not depend on its
neighbours, the order of arrival, the size of the pool or of the chunks.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rlhf.engine_compute import Computation
from rlhf.engine_lengths import LengthHistory
from rlhf.engine_requests import (
    Completion,
    DuplicateSample,
    FullParameters,
    InvalidRequest,
    NewToken,
    QueueFull,
    Request,
    Unfinished,
    check_prompt,
    full,
)
from rlhf.engine_sampling import Drawn, Wanted
from rlhf.engine_settings import Settings
from rlhf.engine_stats import Averages, EngineReport, Stopwatch, memory_use, work_done
from rlhf.engine_text import Decode, StopStrings
from rlhf.engine_updates import OnUpdate, Updates, Weights
from rlhf.generation import PromptTooLong, Result, Stats
from rlhf.identity import digests
from rlhf.kv.blocks import BlockPool
from rlhf.kv.plan import Ended, Plan
from rlhf.kv.scheduler import NeverFits, Scheduler
from rlhf.kv.sequence import Sequence as Tokens
from rlhf.model.language import LanguageModel
from rlhf.sampling import Parameters

ABORTED, STALE = "aborted", "stale"


class Step(NamedTuple):
    """What a step brought: every token drawn, and everybody who has ended."""

    tokens: list[NewToken]
    ended: list[Completion]


class PagedEngine:
    """Generates for many requests at once. One thread.

    Raises:
        UnsupportedModel: the model is not built like those known to the paged forward pass.
    """

    def __init__(
        self,
        model: LanguageModel,
        version: int = 0,
        settings: Settings | None = None,
        *,
        decode: Decode | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`decode` turns ids into text, for stop strings and for the text of results."""
        self._settings = settings or Settings()
        self._decode = decode
        self._stopwatch = Stopwatch(clock)
        self._computation = Computation(model, self._settings, self._stopwatch)
        self._architecture = self._computation.architecture
        pool = BlockPool(self._computation.blocks, self._settings.block_size)
        self._scheduler = Scheduler(pool, self._settings.limits, self._settings.order)
        self._updates = Updates(model, version)
        self._lengths = LengthHistory()
        self._requests: dict[int, Request] = {}
        self._samples: dict[tuple[str, int], int] = {}
        self._later: dict[int, list[Request]] = {}
        self._aborts: dict[int, None] = {}
        self._next_uid = 0
        self._finished: dict[str, int] = {}
        self._generated = 0
        self._stale = 0
        self._averages = Averages()
        self._undelivered: list[Completion] = []

    # ---- requests

    def submit(
        self, prompt_id: str, sample_idx: int, tokens: Sequence[int], parameters: Parameters
    ) -> int:
        """Takes a request; the handle is its uid.

        Samples of one `prompt_id` and prompt that wait together read the prompt once.

        Raises:
            PromptTooLong: it can never fit, neither the context nor the cache.
            InvalidRequest: an empty prompt, unknown ids, or a sample that is under way already.
            QueueFull: as many wait as may.
        """
        return self._take(prompt_id, sample_idx, tokens, full(parameters), None)

    def resume(self, unfinished: Unfinished, parameters: Parameters) -> int:
        """Takes a response that was cut short and goes on from its tokens.

        Raises:
            As `submit`; InvalidRequest also when there is nothing left to generate.
        """
        if len(unfinished.tokens) >= parameters.max_new_tokens:
            raise InvalidRequest(
                f"{unfinished.prompt_id!r} has {len(unfinished.tokens)} of "
                f"{parameters.max_new_tokens} tokens: it is finished"
            )
        return self._take(
            unfinished.prompt_id,
            unfinished.sample_idx,
            unfinished.prompt,
            full(parameters),
            unfinished,
        )

    def _take(
        self,
        prompt_id: str,
        sample_idx: int,
        tokens: Sequence[int],
        parameters: FullParameters,
        before: Unfinished | None,
    ) -> int:
        self._check(prompt_id, sample_idx, tokens, parameters)
        sequence = Tokens(
            self._next_uid,
            list(tokens),
            parameters.max_new_tokens,
            stops=parameters.stop_tokens,
            generated=list(before.tokens) if before else None,
            predicted=self._lengths.predicted(prompt_id, parameters.max_new_tokens),
            group=prompt_id,
            extras=parameters.extras,
        )
        stopper = StopStrings(self._decode, parameters.stop_strings) if self._decode else None
        request = Request(sequence, prompt_id, sample_idx, parameters, before, stopper)
        if stopper and before:
            request.text = "".join([stopper.add(token) for token in before.tokens])
        epoch = self._updates.announced
        try:
            self._scheduler.check(sequence)
        except NeverFits as error:
            raise PromptTooLong(f"prompt {prompt_id!r}: {error}") from error
        if epoch == self._updates.applied:
            self._scheduler.submit(sequence)
        else:
            self._later.setdefault(epoch, []).append(request)
        self._next_uid += 1
        self._requests[sequence.uid] = request
        self._samples[prompt_id, sample_idx] = sequence.uid
        return sequence.uid

    def _check(
        self, prompt_id: str, sample_idx: int, tokens: Sequence[int], parameters: FullParameters
    ) -> None:
        check_prompt(tokens, self._architecture.vocabulary, prompt_id)
        if (prompt_id, sample_idx) in self._samples:
            raise DuplicateSample(
                f"sample {sample_idx} of prompt {prompt_id!r} is under way already"
            )
        length = len(tokens) + parameters.max_new_tokens
        if length > self._architecture.context:
            raise PromptTooLong(
                f"prompt {prompt_id!r}: {len(tokens)} + {parameters.max_new_tokens} tokens, more "
                f"than the model's context of {self._architecture.context}"
            )
        if parameters.stop_strings and self._decode is None:
            raise InvalidRequest("stop strings need an engine that knows the vocabulary")
        biased = [token for token, _ in parameters.logit_bias]
        if any(not 0 <= token < self._architecture.vocabulary for token in biased):
            raise InvalidRequest("logit_bias names a token that the model does not know")
        if self.stats().waiting >= self._settings.max_waiting:
            raise QueueFull(f"{self._settings.max_waiting} requests wait already; try again later")

    def abort(self, uid: int) -> None:
        """Ends a request at the next step; its result comes, as "aborted". Unknown ones are ignored."""
        if uid in self._requests:
            self._aborts[uid] = None

    def set_weights(self, version: int, weights: Weights) -> None:
        """Other weights, between two steps: a state, or a function that puts them in place.

        What becomes of rollouts that run is `Settings.on_update`'s matter. A state that has to wait
        is copied. No response ever continues on keys of other weights unnoticed, and no prefix of
        other weights is found, also when a version number comes back.

        Raises:
            WeightsMismatch: another model's weights; nothing has changed.
        """
        waits = self._settings.on_update is OnUpdate.FINISH and bool(self._requests)
        self._updates.announce(version, weights, at_once=not waits)
        if not waits:
            self._apply_updates()

    # ---- stepping

    def step(self) -> list[Result]:
        """Computes one more token of whatever runs; what has finished by it."""
        return [one.result for one in self.advance().ended]

    def advance(self) -> Step:
        """A step, with every token that was drawn."""
        ended, self._undelivered = self._undelivered, []
        ended += [self._end(self._requests[uid], ABORTED) for uid in list(self._aborts)]
        self._apply_updates()
        ended += self._end_stale()
        with self._stopwatch.stage("schedule"):
            plan = self._scheduler.plan()
        if not plan.tokens:
            self._scheduler.commit(plan, [])
            return Step([], ended)
        drawing = [self._requests[sequence.uid] for sequence in plan.drawing()]
        got = self._computed(plan, drawing)
        with self._stopwatch.stage("commit"):
            self._averages.add(self._scheduler, plan.tokens)
            over = self._scheduler.commit(plan, got.tokens)
            tokens = self._record(drawing, got)
            ended += [self._completed(one) for one in over]
            ended += self._end_at_strings(drawing)
        return Step(tokens, ended)

    def stream(self, uid: int) -> Iterator[NewToken]:
        """Steps until a request has ended; its tokens as they come.

        Others go on meanwhile. What ends, this one too, is delivered by the next `advance` or `step`.
        """
        while uid in self._requests:
            tokens, ended = self.advance()
            self._undelivered += ended
            yield from [token for token in tokens if token.uid == uid]

    def _computed(self, plan: Plan, drawing: list[Request]) -> Drawn:
        """What the plan draws. When that fails, everybody is read again in the next step."""
        try:
            rows = [Wanted(one.parameters, one.place) for one in drawing]
            return self._computation.run(plan, rows)
        except BaseException:
            self._scheduler.abandon(plan)
            raise

    def _record(self, drawing: list[Request], got: Drawn) -> list[NewToken]:
        """Notes the log-probabilities, and what else was asked for."""
        tokens = []
        rows = zip(drawing, got.tokens, got.logprobs, strict=True)
        for row, (request, token, logprob) in enumerate(rows):
            if token < 0:
                continue
            request.logprobs.append(logprob)
            if request.parameters.keep_support:
                request.supports.append(got.supports.get(row))
            top = got.top.get(row, [])
            if request.parameters.top_logprobs:
                request.top.append(top)
            text = request.stopper.add(token) if request.stopper else ""
            request.text += text
            self._stale += request.sequence.kv_version != self._updates.applied
            tokens.append(NewToken(request.sequence.uid, token, logprob, text, top))
        self._generated += len(tokens)
        return tokens

    # ---- ends

    def _end_at_strings(self, drawing: list[Request]) -> list[Completion]:
        found = [one for one in drawing if one.stopper and one.stopper.found]
        return [self._end(one, "stop") for one in found if one.sequence.uid in self._requests]

    def _end_stale(self) -> list[Completion]:
        """Rollouts that would go on too many versions after they began."""
        limit = self._settings.max_version_lag
        if limit is None:
            return []
        policies = self._updates.policies
        now = policies[self._updates.applied]
        ended = []
        for request in list(self._requests.values()):
            before = request.before
            first = before.versions[0] if before and before.versions else None
            if first is None and request.sequence.spans:
                first = policies[request.sequence.spans[0][1]]
            if first is not None and now - first > limit:
                ended.append(self._end(request, STALE))
        return ended

    def _end(self, request: Request, reason: str) -> Completion:
        for waiting in self._later.values():
            if request in waiting:
                waiting.remove(request)
                return self._completed(Ended(request.sequence, reason))
        return self._completed(self._scheduler.end(request.sequence, reason))

    def _completed(self, ended: Ended) -> Completion:
        """The one terminal event of a request."""
        sequence, reason = ended
        request = self._requests.pop(sequence.uid)
        del self._samples[request.prompt_id, request.sample_idx]
        self._aborts.pop(sequence.uid, None)
        versions, attended = request.versions(self._updates.policies)
        if request.stopper:
            request.text += request.stopper.rest()
            reason = "stop" if request.stopper.found and reason == "length" else reason
        self._finished[reason] = self._finished.get(reason, 0) + 1
        if reason in ("stop", "length"):
            self._lengths.observe(request.prompt_id, request.place)
        tokens = sequence.generated
        result = Result(
            sequence.uid,
            request.prompt_id,
            request.sample_idx,
            tokens,
            request.logprobs,
            versions,
            reason,
            sequence.preemptions,
            sequence.cached_tokens,
        )
        parameters = request.parameters
        return Completion(
            result,
            attended,
            digests(sequence.tokens[: sequence.prompt_length], tokens),
            request.text,
            request.supports if parameters.keep_support else None,
            request.top if parameters.top_logprobs else None,
        )

    # ---- weights

    def _apply_updates(self) -> None:
        """Puts new weights in place, as soon as nobody needs the old ones any more."""
        finish = self._settings.on_update is OnUpdate.FINISH
        while self._updates.next_due(finish and self._scheduler.busy):
            self._updates.apply()
            carry = self._settings.on_update is OnUpdate.CARRY
            self._scheduler.set_version(self._updates.applied, carry=carry)
            for request in self._later.pop(self._updates.applied, []):
                self._scheduler.submit(request.sequence)

    # ---- what there is

    def unfinished(self) -> list[Unfinished]:
        """Everything that has not ended, by uid: keep it, and `resume` it in another life."""
        found = []
        for uid in sorted(self._requests):
            request = self._requests[uid]
            versions, attended = request.versions(self._updates.policies)
            sequence = request.sequence
            found.append(
                Unfinished(
                    request.prompt_id,
                    request.sample_idx,
                    sequence.tokens[: sequence.prompt_length],
                    sequence.generated,
                    list(request.logprobs),
                    versions,
                    attended,
                )
            )
        return found

    def stats(self) -> Stats:
        """How it is. The version is that of the newest weights, also while older rollouts finish."""
        later = sum(len(one) for one in self._later.values())
        return Stats(
            len(self._scheduler.waiting) + later,
            self._scheduler.running,
            sum(self._finished.values()),
            self._generated,
            self._updates.policies[self._updates.announced],
        )

    def report(self) -> EngineReport:
        """Memory, work and times."""
        now = self.stats()
        return EngineReport(
            now.waiting,
            now.running,
            dict(self._finished),
            memory_use(self._scheduler),
            work_done(self._scheduler, self._averages, self._generated, self._stale),
            self._stopwatch.summaries(),
        )

    def audit(self) -> None:
        """Compares everything with everything; for tests and for finding a fault.

        Raises:
            Corrupted: says what contradicts what.
        """
        self._scheduler.audit()
