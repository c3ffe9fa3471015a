"""The reward queue in an event loop: waiting, deadlines, the journal, graders."""

from rlhf.identity import Envelope, Score
from rlhf.missing import Missing
from rlhf.reward_queue_types import Batch, Checkpoint, Claim, EndOfStream, Outcome, Slot


class QueueShell:
    """Waits on behalf of the state machine, and writes its journal. One event loop, no threads.

    Use as `async with await QueueShell.open(folder, shape, limits, resume=checkpoint) as queue:`.
    """

    async def dispatch(self, worker: str = "") -> Slot | EndOfStream:
        """The next slot, when there is room and its policy exists. Raises RunFailed."""
        raise NotImplementedError

    def submit(
        self, slot: Slot, prompt_ids: list[int], response_ids: list[int], payload: bytes = b""
    ) -> Outcome:
        """Hands in a response; digests are made here."""
        raise NotImplementedError

    def abandon(self, slot: Slot, missing: Missing) -> Outcome:
        """The response of a slot will not come."""
        raise NotImplementedError

    async def claim(self, worker: str) -> Claim | None:
        """The next sample to grade; None at the end of the stream."""
        raise NotImplementedError

    def answer(self, envelope: Envelope, answer: Score | Missing) -> Outcome:
        """A grader's answer."""
        raise NotImplementedError

    async def take(self, timeout_seconds: float) -> Batch | EndOfStream:
        """The next batch, once it is durable. Raises RunFailed, or TimeoutError naming the ids."""
        raise NotImplementedError

    def mark_trained(self, batch: int) -> None:
        """The update with a batch is made and its policy snapshot published."""
        raise NotImplementedError

    async def checkpoint(self) -> Checkpoint:
        """A durable place in the journal, to be saved beside the weights after `mark_trained`."""
        raise NotImplementedError

    async def compact(self, oldest_trained: int) -> None:
        """Drops what no retained checkpoint needs."""
        raise NotImplementedError
