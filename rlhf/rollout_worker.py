"""The process that generates: reads requests, loads the policy version they name, answers.

    python -m rlhf.rollout_worker FD RUN_FOLDER

A request is a whole batch, and each one gets an engine of its own: no key, no prefix and no expected
length of an earlier one is left in it. So the same request gives the same bits in every run, on a
fixed number of threads, whatever came before.

A link that closes while a batch is generated is a notice to leave. With rollout.deterministic=false
the tokens so far are written down then, and the next life goes on from them; such a run may also
carry its rollouts over to newer weights on the way.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from rlhf import building, messages
from rlhf.child_process import begin_child
from rlhf.config.resolve import read_resolved
from rlhf.config.sections import RunConfig
from rlhf.engine import PagedEngine
from rlhf.engine_choice import engine_for
from rlhf.engine_requests import Unfinished
from rlhf.engine_settings import Settings
from rlhf.engine_updates import OnUpdate
from rlhf.frames import Frames, PeerGone
from rlhf.generation import Engine, Result
from rlhf.kv.plan import Limits
from rlhf.model.building import build
from rlhf.model.language import LanguageModel
from rlhf.run_folder import RunFolder
from rlhf.sampling import Parameters
from rlhf.unfinished_rollouts import CutShort, UnfinishedRollouts
from rlhf.weights import Snapshots, SnapshotUnreadable

MakeEngine = Callable[[LanguageModel, int, Settings], Engine]


class Left(Exception):
    """Nobody waits for the batch any more; what may be gone on from is written down."""


class NoNumbers(RuntimeError):
    """The policy's numbers are no numbers: it can't be sampled from."""


class Worker:
    """Model, weights and settings of one run."""

    def __init__(
        self, config: RunConfig, folder: RunFolder, make_engine: MakeEngine = engine_for
    ) -> None:
        torch.set_num_threads(config.model.threads)
        self._config = config
        vocabulary = building.task(config).vocabulary
        self._stop_tokens = vocabulary.stop_tokens
        self._model = build(config.model, vocabulary.size, config.seed)
        self._version = -1
        self._make_engine = make_engine
        self._snapshots = Snapshots(folder.weights)
        self._unfinished = UnfinishedRollouts(folder.path)
        self.look_for_weights_seconds = 0.2
        """How often newer weights are looked for, when a rollout may go on with them."""

    def generate(
        self, wanted: messages.Generate, leaving: Callable[[], bool] = lambda: False
    ) -> messages.Generated:
        """All responses of a request. `leaving` is asked between two steps.

        Raises:
            SnapshotUnreadable: the policy version is not there, or damaged.
            PromptTooLong: a prompt does not fit.
            NoNumbers: the policy is broken.
            Left: there was a notice to leave.
        """
        began = time.monotonic()
        self._load(wanted.version)
        engine = self._make_engine(self._model, wanted.version, self._settings(wanted))
        under_way = _UnderWay(wanted, self._snapshots.checksum(wanted.version))
        self._begin(engine, under_way)
        look_at = began
        while (now := engine.stats()).waiting or now.running:
            if leaving():
                if not self._config.rollout.deterministic:
                    self._unfinished.write(list(under_way.cut_short(engine)))
                raise Left
            if self._config.rollout.max_version_lag and time.monotonic() >= look_at:
                self._carry_over(engine, wanted.version)
                look_at = time.monotonic() + self.look_for_weights_seconds
            under_way.done += engine.step()
        seconds = time.monotonic() - began
        return messages.Generated(wanted.version, under_way.responses(), seconds, work_of(engine))

    def _settings(self, wanted: messages.Generate) -> Settings:
        rollout = self._config.rollout
        return Settings(
            cache_bytes=rollout.cache_mib << 20,
            limits=Limits(seats=min(rollout.seats, len(wanted.requests))),
            on_update=OnUpdate.CARRY if rollout.max_version_lag else OnUpdate.FINISH,
        )

    def _load(self, version: int) -> None:
        if self._version != version:
            state = self._snapshots.load(version, self._config.model.device)
            self._version = -1  # neither, should the next line fail half-way
            self._model.load_state_dict(state)
            self._version = version

    def _begin(self, engine: Engine, under_way: "_UnderWay") -> None:
        """Hands every request in; one that was cut short before goes on from its tokens."""
        wanted = under_way.wanted
        newest = max(self._snapshots.versions(), default=0)
        for request in wanted.requests:
            before = self._unfinished.take(request, under_way.weights, newest)
            parameters = self._parameters(request.seed)
            if before is not None and before.finish_reason:
                under_way.done.append(_finished(before))
            elif before is not None and before.rollout.tokens and isinstance(engine, PagedEngine):
                engine.resume(before.rollout, parameters)
            else:
                engine.submit(str(request.group), request.seq, request.prompt_ids, parameters)

    def _carry_over(self, engine: Engine, version: int) -> None:
        """The newest weights that rollouts of a version may go on with, if they are new."""
        most = version + self._config.rollout.max_version_lag
        newest = max((one for one in self._snapshots.versions() if one <= most), default=version)
        if newest > self._version:
            state = self._snapshots.load(newest, self._config.model.device)
            engine.set_weights(newest, state)
            self._version = newest

    def _parameters(self, seed: int) -> Parameters:
        rollout = self._config.rollout
        return Parameters(
            max_new_tokens=rollout.max_new_tokens,
            seed=seed,
            temperature=rollout.temperature,
            top_k=rollout.top_k,
            top_p=rollout.top_p,
            stop_tokens=self._stop_tokens,
        )


class _UnderWay:
    """A request, and the results so far. Results are told apart by their slot."""

    def __init__(self, wanted: messages.Generate, weights: str) -> None:
        self.wanted = wanted
        self.weights = weights
        self.done: list[Result] = []
        self._by_seq = {request.seq: request for request in wanted.requests}

    def responses(self) -> list[messages.Generation]:
        """All of them, by slot.

        Raises:
            NoNumbers: one holds none.
        """
        return [self._response(one) for one in sorted(self.done, key=lambda one: one.sample_idx)]

    def _response(self, result: Result) -> messages.Generation:
        if result.finish_reason not in ("stop", "length") or not all(
            map(math.isfinite, result.logprobs)
        ):
            raise NoNumbers(
                f"policy version {self.wanted.version} gives no finite log-probabilities for slot "
                f"{result.sample_idx} after {len(result.tokens)} tokens: its weights are broken"
            )
        own = all(version == self.wanted.version for version in result.versions)
        return messages.Generation(
            result.sample_idx,
            result.tokens,
            result.logprobs,
            result.finish_reason,
            result.cached_tokens,
            [] if own else result.versions,
        )

    def cut_short(self, engine: Engine) -> Iterator[CutShort]:
        """What is to be kept: the responses that are done, and those that the engine is at."""
        for result in self.done:
            request = self._by_seq[result.sample_idx]
            rollout = Unfinished(
                result.prompt_id,
                result.sample_idx,
                request.prompt_ids,
                result.tokens,
                result.logprobs,
                result.versions,
                result.versions,
            )
            yield CutShort(request.seq, request.seed, self.weights, rollout, result.finish_reason)
        for rollout in engine.unfinished() if isinstance(engine, PagedEngine) else ():
            request = self._by_seq[rollout.sample_idx]
            yield CutShort(request.seq, request.seed, self.weights, rollout)


def _finished(kept: CutShort) -> Result:
    one = kept.rollout
    return Result(
        -1,
        one.prompt_id,
        one.sample_idx,
        one.tokens,
        one.logprobs,
        one.versions,
        kept.finish_reason,
    )


def work_of(engine: Engine) -> dict[str, float]:
    """What an engine has counted, each a sum over its iterations; nothing from one that does not."""
    if not isinstance(engine, PagedEngine):
        return {}
    work = engine.report().work
    return {
        "iterations": float(work.iterations),
        "computed": float(work.computed),
        "recomputed": float(work.recomputed),
        "preemptions": float(work.preemptions),
        "found": float(work.found),
        "running": work.mean_running * work.iterations,
        "live": work.mean_live * work.iterations,
        "reserved": work.mean_reserved * work.iterations,
    }


def main(arguments: list[str]) -> int:
    """Serves until the pipeline closes its end."""
    number, folder_name = arguments
    link = begin_child(number)
    frames: Frames[messages.Generate] = Frames(link, messages.Generate)
    folder = RunFolder(Path(folder_name))
    worker = Worker(read_resolved(folder.config), folder)
    try:
        while True:
            wanted = frames.receive()
            try:
                # One request at a time: what comes meanwhile can only be the end of the link.
                answer: messages.FromRollout = worker.generate(wanted, lambda: frames.wait(0))
            except (SnapshotUnreadable, ValueError, RuntimeError) as error:
                answer = messages.Failure(f"{type(error).__name__}: {error}")
            frames.send(answer)
    except (PeerGone, Left):
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
