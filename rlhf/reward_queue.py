"""The ordered reward queue: a pure state machine from dispatched slots to batches in order."""

from rlhf.identity import Envelope, Score, Shape
from rlhf.journal_records import Record
from rlhf.missing import Missing
from rlhf.reward_queue_types import (
    Batch,
    Claim,
    EndOfStream,
    Limits,
    Outcome,
    RunFailure,
    Slot,
    Tick,
    Wait,
)


class RewardQueue:
    """dispatch -> submit -> claim -> answer -> take -> trained. `now` is monotonic seconds.

    Every call appends what happened to `records`; whoever owns the queue writes them down.
    """

    records: list[Record]
    trained: int
    order_digest: str

    def __init__(self, shape: Shape, limits: Limits | None = None) -> None: ...

    def dispatch(self, now: float, worker: str = "") -> Slot | None:
        """The next slot to fill; None = wait (bound reached, policy version missing) or ended."""

    def submit(
        self, slot: Slot, prompt_digest: str, response_digest: str, now: float, payload: bytes = b""
    ) -> Outcome:
        """The response of a slot is there."""

    def abandon(self, slot: Slot, missing: Missing, now: float) -> Outcome:
        """The response of a slot will not come."""

    def claim(self, now: float, worker: str) -> Claim | None:
        """The first sample that waits for a grader."""

    def answer(self, envelope: Envelope, answer: Score | Missing, now: float) -> Outcome:
        """A grader's answer to an attempt; the envelope is the grader's echo."""

    def take(self, now: float) -> Batch | EndOfStream | RunFailure | None:
        """The batch whose turn it is, when all of it is graded."""

    def mark_trained(self, batch: int, now: float) -> None:
        """The update with a delivered batch is made: policy version batch + 1 exists."""

    def end(self, now: float) -> None:
        """No more prompts."""

    def fail(self, why: str, now: float) -> None:
        """The run cannot go on."""

    def tick(self, now: float) -> Tick:
        """Deadlines, hedges, watchdog."""

    def waits(self, now: float) -> list[Wait]:
        """What is waited for, oldest first."""

    def needed_versions(self) -> range:
        """Policy versions whose snapshots must be kept: those of batches not yet delivered."""
