"""The trainer's side of the stream of batches: a process that fills it, and one call per thing wanted."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from clusterops.train import Session
from rlhf import child_process, messages
from rlhf.config.sections import RunConfig
from rlhf.frames import Frames, PeerGone
from rlhf.reward_queue_types import Batch, Checkpoint
from rlhf.run_folder import RunFolder

_POLL_SECONDS = 0.2


class StreamFailed(Exception):
    """There will be no further batch; says why, naming the slots and who holds them."""


class RewardStream:
    """Batches in order, each graded, from the pipeline's process.

    Give it to `session.resume`: what it keeps is the journal's place that belongs to the weights.
    """

    def __init__(self, config: RunConfig, folder: RunFolder) -> None:
        self._config = config
        self._folder = folder
        self._checkpoint: Checkpoint | None = None
        self._child: child_process.Child | None = None
        self._frames: Frames[messages.FromPipeline] | None = None
        self.last: messages.Delivery | None = None
        """What came with the newest batch."""
        self.waited_seconds = 0.0
        """How long the trainer waited for it."""

    @property
    def order_digest(self) -> str:
        """The digest over all samples trained on, in their order."""
        return "" if self._checkpoint is None else self._checkpoint.order_digest

    def state_dict(self) -> dict[str, Any]:
        """The place in the journal, as of the last update."""
        return {} if self._checkpoint is None else msgspec.to_builtins(self._checkpoint)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on there when the stream is opened."""
        self._checkpoint = msgspec.convert(dict(state), Checkpoint) if state else None

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Starts the pipeline, and ends it."""
        saved = "" if self._checkpoint is None else msgspec.json.encode(self._checkpoint).decode()
        self._child = child_process.start("rlhf.pipeline", [str(self._folder.path), saved])
        self._frames = Frames(self._child.link, messages.FromPipeline)
        try:
            yield
        finally:
            with contextlib.suppress(PeerGone):
                self._frames.send(messages.Stop())
            self._child.end()
            self._child = self._frames = None

    def batches(self, run: Session) -> Iterator[tuple[int, Batch]]:
        """(step, its batch) for the steps still to do. The body trains on it and calls `run.report`.

        The next batch is waited for between two steps, where a notice to leave is served at once.
        """
        if run.finished:
            return
        batch = self._waited_for(run)
        for step in run.steps():
            yield step, batch
            if not run.finished:
                batch = self._waited_for(run)

    def trained(self, batch: Batch) -> None:
        """Says that the update is made and its policy published.

        Raises:
            StreamFailed: the journal could not be written.
        """
        self._send(messages.Trained(batch.number))
        answer = self._receive()
        if not isinstance(answer, messages.Saved):
            raise StreamFailed(_told(answer))
        self._checkpoint = answer.checkpoint

    def compact(self, oldest_trained: int) -> None:
        """Says that no checkpoint with fewer updates is kept any more."""
        self._send(messages.Compact(oldest_trained))

    def _waited_for(self, run: Session) -> Batch:
        with run.section("waiting for rewards") as waiting:
            return self.take(waiting.poll)
        raise AssertionError("a section between two steps is never cut")

    def take(self, poll: Callable[[], None] = lambda: None) -> Batch:
        """The next batch; `poll` is called again and again while it is not there.

        Raises:
            StreamFailed: there will be none.
        """
        asked_at = time.monotonic()
        self._send(messages.Take(self._config.queue.take_seconds))
        answer = self._receive(poll)
        self.waited_seconds = time.monotonic() - asked_at
        if not isinstance(answer, messages.Delivery):
            raise StreamFailed(_told(answer))
        self.last = answer
        return answer.batch

    def _send(self, message: messages.FromTrainer) -> None:
        assert self._frames is not None
        try:
            self._frames.send(message)
        except PeerGone as error:
            raise self._gone(error) from None

    def _receive(self, poll: Callable[[], None] = lambda: None) -> messages.FromPipeline:
        assert self._frames is not None
        while not self._frames.wait(_POLL_SECONDS):
            poll()
        try:
            return self._frames.receive()
        except PeerGone as error:
            raise self._gone(error) from None

    def _gone(self, error: PeerGone) -> StreamFailed:
        assert self._child is not None
        code = self._child.process.poll()
        return StreamFailed(
            f"the pipeline process is gone ({error}; exit code {code}); what it said is above, and "
            "the run goes on from its last checkpoint when it is started again"
        )


def _told(answer: messages.FromPipeline) -> str:
    if isinstance(answer, messages.Failure):
        return answer.why
    if isinstance(answer, messages.End):
        return f"the stream ended after {answer.total} samples, before the run did"
    return f"an answer of the wrong kind: {type(answer).__name__}"
