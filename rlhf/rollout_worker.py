"""The process that generates: reads requests, loads the policy version they name, answers.

    python -m rlhf.rollout_worker FD RUN_FOLDER

A request's batch is generated as a whole, from fresh weights, on a fixed number of threads: the same
request gives the same tokens in every run.
"""

import sys
import time
from pathlib import Path

import torch

from rlhf import building, messages
from rlhf.child_process import begin_child
from rlhf.config.resolve import read_resolved
from rlhf.config.sections import RunConfig
from rlhf.frames import Frames, PeerGone
from rlhf.generation import Engine, PlainEngine, drain
from rlhf.model.building import build
from rlhf.run_folder import RunFolder
from rlhf.sampling import Parameters
from rlhf.weights import Snapshots, SnapshotUnreadable


class Worker:
    """Engine, weights and settings of one run."""

    def __init__(self, config: RunConfig, folder: RunFolder) -> None:
        torch.set_num_threads(config.model.threads)
        self._config = config
        vocabulary = building.task(config).vocabulary
        self._stop_tokens = vocabulary.stop_tokens
        model = build(config.model, vocabulary.size, config.seed)
        self._engine: Engine = PlainEngine(model, version=-1)
        self._snapshots = Snapshots(folder.weights)

    def generate(self, wanted: messages.Generate) -> messages.Generated:
        """All responses of a request.

        Raises:
            SnapshotUnreadable: the policy version is not there, or damaged.
        """
        started = time.monotonic()
        if self._engine.stats().version != wanted.version:
            state = self._snapshots.load(wanted.version, self._config.model.device)
            self._engine.set_weights(wanted.version, state)
        by_uid = {}
        for request in wanted.requests:
            uid = self._engine.submit(
                str(request.seq), 0, request.prompt_ids, self._parameters(request.seed)
            )
            by_uid[uid] = request.seq
        responses = [
            messages.Generation(
                by_uid[result.uid], result.tokens, result.logprobs, result.finish_reason
            )
            for result in drain(self._engine)
        ]
        return messages.Generated(wanted.version, responses, time.monotonic() - started)

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
                answer: messages.FromRollout = worker.generate(wanted)
            except (SnapshotUnreadable, ValueError, RuntimeError) as error:
                answer = messages.Failure(f"{type(error).__name__}: {error}")
            frames.send(answer)
    except PeerGone:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
