"""The reward queue in an event loop: waiting, deadlines, the journal.

    async with await QueueShell.open(folder, shape, limits, checkpoint=saved) as queue:
        slot = await queue.dispatch("rollout-0")
        queue.submit(slot, response)
        batch = await queue.take(timeout_seconds=600)
        queue.mark_trained(batch.number)

All decisions are the state machine's. One event loop, no threads but for the disk.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from rlhf.identity import Envelope, SampleId, Score, Shape
from rlhf.journal import Disk, JournalError, JournalWriter
from rlhf.journal_replay import restore
from rlhf.missing import Missing
from rlhf.responses import Response, pack
from rlhf.reward_queue import RewardQueue
from rlhf.reward_queue_types import (
    Batch,
    Checkpoint,
    Claim,
    EndOfStream,
    Expired,
    Limits,
    Outcome,
    RunFailure,
    Slot,
    Stall,
    Tick,
    Wait,
)

_LONGEST_TICK_SECONDS = 0.25
_SHOWN_WAITS = 8


class RunFailed(Exception):
    """The run cannot go on; names the slot, when one is to blame."""

    def __init__(self, failure: RunFailure) -> None:
        super().__init__(failure.why)
        self.sample: SampleId | None = failure.sample


class QueueShell:
    """Waits on behalf of the state machine, and writes its journal.

    `on_stall` is called when nothing moves, and returns the stack in which the holder was found (or
    nothing); those in `on_expired` when an attempt's deadline has passed, to stop who works on it.
    """

    def __init__(
        self,
        queue: RewardQueue,
        journal: JournalWriter,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.queue = queue
        self.journal = journal
        self.on_stall: Callable[[Stall], str] = lambda _: ""
        self.on_expired: list[Callable[[Expired], None]] = []
        self._clock = clock
        self._began = clock()
        self._slot_waiters: deque[asyncio.Future[None]] = deque()
        self._claim_waiters: deque[asyncio.Future[None]] = deque()
        self._batch_waiters: deque[asyncio.Future[None]] = deque()
        self._disk_turn = asyncio.Lock()
        self._in_hand: Batch | None = None
        self._closing = asyncio.Event()
        self._ticker: asyncio.Task[None] | None = None
        self._syncing: asyncio.Task[int] | None = None

    @classmethod
    async def open(
        cls,
        run_folder: Path,
        shape: Shape,
        limits: Limits | None = None,
        *,
        checkpoint: Checkpoint | None = None,
        began: str = "",
        disk: Disk | None = None,
    ) -> Self:
        """The queue of a run folder: a new one, or the one that its journal remembers.

        Raises:
            ForeignJournal, JournalError, JournalDamaged, JournalInUse: see `journal_replay.restore`.
        """
        queue, journal = await asyncio.to_thread(
            restore, run_folder, shape, limits, checkpoint=checkpoint, began=began, disk=disk
        )
        return cls(queue, journal)

    async def __aenter__(self) -> Self:
        self._ticker = asyncio.create_task(self._keep_time(), name="reward queue: deadlines")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        if self._ticker is not None:
            await self._ticker
        async with self._disk_turn:
            self.journal.extend(self.queue.drain())
            self.journal.close()

    def now(self) -> float:
        """Seconds since this life of the process began."""
        return self._clock() - self._began

    # Filling slots.

    async def dispatch(self, worker: str = "") -> Slot | EndOfStream:
        """The next slot, once there is room and its policy exists; the end once all is delivered.

        Even after the last slot a redraw may come, so a producer stays until the end.

        Raises:
            RunFailed: the run cannot go on.
        """
        while True:
            slot = self.queue.dispatch(self.now(), worker)
            if slot is not None:
                return slot
            if over := self._over():
                return over
            await self._turn(self._slot_waiters)

    def submit(self, slot: Slot, response: Response) -> Outcome:
        """Hands in the response of a slot. Its digests are made here, once.

        Raises:
            InvalidTokens: it holds token ids that no vocabulary has.
        """
        prompt, answer = response.digests()
        outcome = self.queue.submit(slot, prompt, answer, self.now(), pack(response))
        if outcome is Outcome.APPLIED:
            _wake_one(self._claim_waiters)
        return outcome

    def abandon(self, slot: Slot, missing: Missing) -> Outcome:
        """The response of a slot will not come."""
        outcome = self.queue.abandon(slot, missing, self.now())
        self._after_missing()
        return outcome

    # Grading.

    async def claim(self, worker: str) -> Claim | None:
        """The next sample to grade; None at the end of the stream.

        Raises:
            RunFailed: the run cannot go on.
        """
        while True:
            claim = self.queue.claim(self.now(), worker)
            if claim is not None:
                return claim
            if self._over():
                return None
            await self._turn(self._claim_waiters)

    def claim_now(self, worker: str) -> Claim | None:
        """The next sample to grade if one waits: to fill up a batch for a grader."""
        return self.queue.claim(self.now(), worker)

    def answer(self, envelope: Envelope, answer: Score | Missing) -> Outcome:
        """A grader's answer to an attempt, with its echo of the envelope."""
        outcome = self.queue.answer(envelope, answer, self.now())
        if outcome is Outcome.APPLIED:
            if self._batch_waiters and self.queue.stream.complete:
                _wake_all(self._batch_waiters)
        else:
            self._after_missing()
        return outcome

    # Delivery.

    async def take(self, timeout_seconds: float) -> Batch | EndOfStream:
        """The next batch, once all of it is graded and on the disk.

        Raises:
            RunFailed: the run cannot go on.
            TimeoutError: it names the samples that are waited for, and who holds them.
            OSError, JournalError: the disk refuses.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while self._in_hand is None:
                    taken = self.queue.take(self.now())
                    if isinstance(taken, RunFailure):
                        raise RunFailed(taken)
                    if isinstance(taken, EndOfStream):
                        self._wake_everybody()
                        return taken
                    self._in_hand = taken
                    if taken is None:
                        await self._turn(self._batch_waiters)
                    elif self._over():
                        self._wake_everybody()
        except TimeoutError:
            raise TimeoutError(self._waiting_words(timeout_seconds)) from None
        batch = self._in_hand
        # A batch that nobody could restore must not change the weights.
        await self._sync()
        self._in_hand = None
        return batch

    def mark_trained(self, batch: int) -> None:
        """The update with a batch is made, and the snapshot of policy version batch + 1 published.

        Raises:
            StreamError: it is not this batch's turn.
        """
        self.queue.mark_trained(batch, self.now())
        _wake_all(self._slot_waiters)

    def end(self, total: int | None = None) -> None:
        """No slot at or beyond `total` (by default: the next one) will be dispatched.

        Raises:
            StreamError: slots beyond it are under way, or a group would be cut.
        """
        self.queue.end(self.now(), total)
        self._wake_everybody()

    def fail(self, why: str) -> None:
        """The run cannot go on; everybody who waits is told."""
        self.queue.fail(why, self.now())
        self._wake_everybody()

    async def checkpoint(self) -> Checkpoint:
        """A durable place in the journal, to be kept beside the weights after `mark_trained`.

        Only right between two updates: no batch is delivered and not yet marked as trained.
        """
        if self.queue.delivered != self.queue.trained:
            raise ValueError(
                f"batch {self.queue.trained} is with the trainer: take a checkpoint after "
                "mark_trained, so that weights and journal tell the same"
            )
        trained, digest = self.queue.trained, self.queue.order_digest
        record = await self._sync()
        return Checkpoint(self.queue.shape.run_id, record, trained, digest)

    async def compact(self, oldest_trained: int) -> None:
        """Drops from the journal what no checkpoint with `oldest_trained` updates or more needs.

        Raises:
            CannotCompact: those batches were not trained.
        """
        async with self._disk_turn:
            self.journal.extend(self.queue.drain())
            self.journal.flush()
            await asyncio.to_thread(self.journal.compact, oldest_trained)

    # Waiting.

    def waits(self) -> list[Wait]:
        """What is waited for, oldest first."""
        return self.queue.waits()

    def _over(self) -> EndOfStream | None:
        queue = self.queue
        if queue.failure is not None:
            raise RunFailed(queue.failure)
        total = queue.stream.total
        if total is None or queue.stream.expected(queue.delivered):
            return None
        return EndOfStream(total)

    async def _turn(self, waiters: deque[asyncio.Future[None]]) -> None:
        turn = asyncio.get_running_loop().create_future()
        waiters.append(turn)
        try:
            await turn
        finally:
            if turn in waiters:
                waiters.remove(turn)

    def _after_missing(self) -> None:
        """A slot may be there to fill again, a sample to grade again, or the run may have failed."""
        _wake_all(self._slot_waiters)
        _wake_all(self._claim_waiters)
        if self.queue.failure is not None:
            _wake_all(self._batch_waiters)

    def _wake_everybody(self) -> None:
        for waiters in (self._slot_waiters, self._claim_waiters, self._batch_waiters):
            _wake_all(waiters)

    def _waiting_words(self, seconds: float) -> str:
        now, batch = self.now(), self.queue.delivered
        waits = [each.sentence(now) for each in self.queue.waits(batch) if each.stage != "order"]
        more = [f"and {len(waits) - _SHOWN_WAITS} more"] if len(waits) > _SHOWN_WAITS else []
        told = "; ".join(waits[:_SHOWN_WAITS] + more) or "nobody has begun it"
        return f"batch {batch} is not complete after {seconds:g} s: {told}"

    # Time and disk.

    async def _keep_time(self) -> None:
        try:
            while not self._closing.is_set():
                until_next = self._until(self._tick())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(until_next):
                        await self._closing.wait()
        except (OSError, JournalError) as error:
            self.fail(f"the journal cannot be written: {error}")

    def _tick(self) -> Tick:
        tick = self.queue.tick(self.now())
        for expired in tick.expired:
            for told in self.on_expired:
                told(expired)
        if tick.stall is not None:
            self.queue.note_stall(tick.stall, self.now(), self.on_stall(tick.stall))
        self._after_missing()
        if not self._disk_turn.locked():
            self.journal.extend(self.queue.drain())
            self.journal.flush()
        return tick

    def _until(self, tick: Tick) -> float:
        if tick.next_at is None:
            return _LONGEST_TICK_SECONDS
        return min(_LONGEST_TICK_SECONDS, max(0.001, tick.next_at - self.now()))

    async def _sync(self) -> int:
        # Whoever waits may be cancelled; the disk is not, and keeps its turn until it is done.
        self._syncing = asyncio.create_task(self._sync_to_the_end())
        return await asyncio.shield(self._syncing)

    async def _sync_to_the_end(self) -> int:
        async with self._disk_turn:
            self.journal.extend(self.queue.drain())
            upto = self.journal.flush()
            await asyncio.to_thread(self.journal.force)
            self.journal.mark(upto)
            return upto


def _wake_one(waiters: deque[asyncio.Future[None]]) -> None:
    while waiters:
        turn = waiters.popleft()
        if not turn.done():
            turn.set_result(None)
            return


def _wake_all(waiters: deque[asyncio.Future[None]]) -> None:
    while waiters:
        _wake_one(waiters)
