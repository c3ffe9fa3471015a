"""The ordered reward queue: a pure state machine from dispatched slots to batches in order.

    dispatch -> submit -> claim -> answer -> take -> mark_trained

A slot's number, batch and policy version are fixed when it is dispatched, so the same seed gives
the same batches however workers are timed. Rewards are bound by slot, draw and token digests,
never by position. `take` is the only place where a batch is made. Nothing here waits, reads a
clock, or does input or output: `now` is handed in (monotonic seconds), and what happened is
appended to `records`, which the owner writes to the journal before acting on it.
"""

import heapq

from rlhf.identity import Envelope, SampleId, Score, Shape
from rlhf.journal_records import (
    Delivered,
    Ended,
    Failed,
    Ignored,
    Record,
    Redrawn,
    Stalled,
    Submitted,
    Trained,
)
from rlhf.missing import Missing, Reason, Then
from rlhf.reward_queue_deadlines import Pending
from rlhf.reward_queue_grading import Grading
from rlhf.reward_queue_log import Log
from rlhf.reward_queue_state import Entry, Stream, StreamError
from rlhf.reward_queue_types import (
    Batch,
    Claim,
    EndOfStream,
    Graded,
    Limits,
    Outcome,
    RunFailure,
    Slot,
    Stall,
    Tick,
    Wait,
)
from rlhf.reward_queue_waits import waits_of


class RewardQueue:
    """The state machine. Construct it fresh, or by `journal_replay.restore` from a journal."""

    def __init__(
        self,
        shape: Shape,
        limits: Limits | None = None,
        *,
        stream: Stream | None = None,
        life: int = 0,
    ) -> None:
        self.shape = shape
        self.limits = limits or Limits()
        self.stream = stream or Stream(shape)
        self.life = life
        self.failure: RunFailure | None = None
        self._log = Log()
        self.grading = Grading(self.stream, self.limits, life, self._log, self._resolve)
        self._again = self.stream.unfilled()
        # Time begins anew with each life; what an earlier one left behind has waited since then.
        self._progress_at: float | None = 0.0 if self.stream.entries else None
        self._delivered_at = 0.0
        self._told_at = 0.0

    # How far the stream is.

    @property
    def records(self) -> list[Record]:
        """What happened since `drain` was last called."""
        return self._log.records

    def drain(self) -> list[Record]:
        """The records so far, handed over to be written."""
        taken = self._log.records
        self._log.records = []
        return taken

    @property
    def counts(self) -> dict[str, int]:
        """How often each thing but the usual happened: ignored answers, missing rewards, redraws."""
        return self._log.counts

    @property
    def trained(self) -> int:
        """Updates made: the newest policy version."""
        return self.stream.trained

    @property
    def delivered(self) -> int:
        """Batches handed to the trainer."""
        return self.stream.delivered

    @property
    def order_digest(self) -> str:
        """The digest over everything delivered so far."""
        return self.stream.digest.value

    @property
    def depth(self) -> int:
        """Samples under way or waiting for their update."""
        return len(self.stream.entries)

    def needed_versions(self) -> range:
        """Policy versions whose snapshots must be kept: a redraw may still need any of them.

        Who resumes from an older checkpoint needs those of its batches, too.
        """
        return range(self.shape.version_of(self.stream.delivered), self.stream.trained + 1)

    # Filling slots.

    def dispatch(self, now: float, worker: str = "") -> Slot | None:
        """The next slot to fill. None: the bound is reached, its policy is missing, or it ended."""
        stream = self.stream
        if self.failure is not None:
            return None
        if self._again:
            # A redraw keeps its slot, and with it its batch and policy version.
            seq = self._again[0]
            if self._too_early(seq):
                return None
            heapq.heappop(self._again)
            return self._rolls(stream.entries.get(seq) or stream.add(seq), now, worker)
        seq = stream.next_seq
        if self._too_early(seq) or (stream.total is not None and seq >= stream.total):
            return None
        return self._rolls(stream.add(seq), now, worker)

    def _too_early(self, seq: int) -> bool:
        """The bound: batch k needs version k - lag, so at most lag + 1 batches are untrained."""
        return self.shape.version_of(seq // self.shape.batch_size) > self.stream.trained

    def _rolls(self, entry: Entry, now: float, worker: str) -> Slot:
        entry.rolling = True
        entry.dispatched_at = now
        entry.dispatches += 1
        entry.worker = worker
        self.grading.deadlines.rollout(Pending(now, entry.seq, entry.draw, entry.dispatches))
        if self._progress_at is None:
            self._progress_at = now
        shape, seq = self.shape, entry.seq
        batch, group = seq // shape.batch_size, seq // shape.group_size
        first = group * shape.group_size
        return Slot(seq, entry.draw, batch, group, first, shape.version_of(batch))

    def submit(
        self, slot: Slot, prompt_digest: str, response_digest: str, now: float, payload: bytes = b""
    ) -> Outcome:
        """The response of a slot. Its digests are set once: a second response is not taken."""
        entry = self.stream.entries.get(slot.seq)
        why = self._unwanted(entry, slot, prompt_digest, response_digest)
        if entry is None or why is not None:
            why = why or Ignored.UNKNOWN
            return self._log.ignored(slot.seq, slot.draw, 0, why, now, "response")
        self.stream.submitted(entry, prompt_digest, response_digest, payload)
        entry.submitted_at = self._progress_at = now
        self.grading.offer(entry)
        seq, draw, began = entry.seq, entry.draw, entry.dispatched_at
        self._log.records.append(
            Submitted(seq, draw, prompt_digest, response_digest, began, now, payload)
        )
        return Outcome.APPLIED

    def _unwanted(
        self, entry: Entry | None, slot: Slot, prompt: str, response: str
    ) -> Ignored | None:
        """Why a response is not for a slot that is being filled; None when it is."""
        if entry is None or slot.draw != entry.draw:
            return self.stream.past_or_unknown(slot.seq, slot.draw)
        if entry.response_digest:
            same = (entry.prompt_digest, entry.response_digest) == (prompt, response)
            return Ignored.DUPLICATE if same else Ignored.CONFLICT
        return None if entry.rolling else Ignored.LATE

    def abandon(self, slot: Slot, missing: Missing, now: float) -> Outcome:
        """The response of a slot will not come; what follows is the policy's for its reason."""
        entry = self.stream.entries.get(slot.seq)
        if entry is None or slot.draw != entry.draw or not entry.rolling:
            why = self.stream.past_or_unknown(slot.seq, slot.draw)
            return self._log.ignored(slot.seq, slot.draw, 0, why, now, "response")
        self.grading.miss(entry, 0, missing, entry.dispatched_at, entry.worker, now)
        return Outcome.MISSING

    # Grading.

    def claim(self, now: float, worker: str) -> Claim | None:
        """The first sample that waits for a grader; slow ones, asked a second time, come first."""
        return None if self.failure else self.grading.claim(now, worker)

    def answer(self, envelope: Envelope, answer: Score | Missing, now: float) -> Outcome:
        """A grader's answer to an attempt; the envelope is its echo. Applied at most once."""
        outcome = self.grading.answer(envelope, answer, now)
        if outcome is Outcome.APPLIED:
            self._progress_at = now
        return outcome

    def _resolve(self, entry: Entry, missing: Missing, then: Then, now: float) -> None:
        """What follows a missing reward when the same response is not asked about again."""
        if then is Then.RETRY:
            entry.rolling = False
            heapq.heappush(self._again, entry.seq)
        elif then is Then.REDRAW:
            self._redraw(entry, missing, now)
        else:
            self._give_up(entry, missing.reason, missing.detail, now)

    def _redraw(self, entry: Entry, missing: Missing, now: float) -> None:
        """The slot's whole group is drawn again, in its own slots."""
        draw, reason = entry.draw + 1, missing.reason
        if draw >= self.shape.max_draws:
            told = f"{reason} in the last of {self.shape.max_draws} draws"
            self._give_up(entry, told, missing.detail, now)
            return
        group = self.shape.group_of(entry.seq)
        waiting = frozenset(self._again)
        for each in self.stream.redraw(group, draw):
            if each.seq not in waiting:
                heapq.heappush(self._again, each.seq)
        self._log.counted("Redrawn")
        self._log.records.append(Redrawn(group, draw, reason, now))

    def _give_up(self, entry: Entry, reason: str, detail: str, now: float) -> None:
        why = f"{reason}: {detail}" if detail else reason
        slot = SampleId(entry.seq, entry.draw)
        batch = self.shape.batch_of(entry.seq)
        self._fail(RunFailure(f"slot {slot} of batch {batch} gets no reward: {why}", slot), now)

    def fail(self, why: str, now: float) -> None:
        """The run cannot go on; whoever waits is told."""
        self._fail(RunFailure(why), now)

    def _fail(self, failure: RunFailure, now: float) -> None:
        if self.failure is None:
            self.failure = failure
            slot = failure.sample or SampleId(-1, 0)
            self._log.records.append(Failed(slot.seq, slot.draw, failure.why, now))

    # Delivery.

    def take(self, now: float) -> Batch | EndOfStream | RunFailure | None:
        """The batch whose turn it is, when all of it is graded; or how the stream ended."""
        if self.failure is not None:
            return self.failure
        stream = self.stream
        batch = self._deliverable()
        if batch is None:
            over = stream.total is not None and not stream.expected(stream.delivered)
            return EndOfStream(stream.total or 0) if over else None
        entries = stream.batch_entries(batch)
        samples = [self._graded(each) for each in entries]
        version = self.shape.version_of(batch)
        digest = stream.deliver(batch, entries)
        self._progress_at = self._delivered_at = now
        self._log.records.append(Delivered(batch, len(samples), version, digest, now))
        return Batch(batch, version, samples, digest)

    def _deliverable(self) -> int | None:
        for batch in self.stream.complete:
            if batch != self.stream.delivered:  # strict order: those before it come first
                continue
            return batch
        return None

    def _graded(self, entry: Entry) -> Graded:
        assert entry.score is not None, "only complete batches are delivered"
        envelope = self.grading.envelope(entry, entry.attempt)
        times = entry.claimed_at, entry.answered_at
        return Graded(envelope, entry.score, entry.payload, entry.worker, *times)

    def mark_trained(self, batch: int, now: float) -> None:
        """The update with a delivered batch is made, and its policy version, batch + 1, exists.

        Raises:
            StreamError: the batch was not delivered, or is not the next one.
        """
        stream = self.stream
        if batch != stream.trained or batch >= stream.delivered:
            raise StreamError(
                f"batch {batch} cannot be marked as trained: the next one is {stream.trained}, "
                f"and {stream.delivered} were delivered"
            )
        stream.drop(batch)
        self._progress_at = now
        self._log.records.append(Trained(batch, now))

    def end(self, now: float, total: int | None = None) -> None:
        """No slot at or beyond `total` (by default: the next one) will be dispatched.

        Raises:
            StreamError: slots beyond `total` are under way, or a group would be cut.
        """
        begun = self.stream.next_seq
        total = begun if total is None else total
        if total < begun:
            raise StreamError(
                f"the stream cannot end at {total}: slots up to {begun} are under way"
            )
        if total % self.shape.group_size:
            size = self.shape.group_size
            raise StreamError(f"the stream cannot end at {total}: that cuts a group of {size}")
        if self.stream.total != total:
            if self.stream.total is not None and not self.stream.expected(self.stream.delivered):
                raise StreamError(f"the stream is over: it ended at {self.stream.total}")
            self.stream.end(total)
            self._log.records.append(Ended(total, now))

    # Time.

    def tick(self, now: float) -> Tick:
        """Applies what time has brought about: deadlines, hedges, the watchdog."""
        for pending in self.grading.deadlines.overdue_rollouts(now):
            if self._rolls_still(pending):
                entry = self.stream.entries[pending.seq]
                late = Missing(Reason.NO_RESPONSE, f"no response in {now - pending.since:.1f} s")
                self.grading.miss(entry, 0, late, pending.since, entry.worker, now)
        expired = self.grading.overdue(now)
        self.grading.hedge(now)
        return Tick(expired, self._stall(now), self._next_at())

    def _rolls_still(self, pending: Pending) -> bool:
        entry = self.stream.entries.get(pending.seq)
        if entry is None or not entry.rolling:
            return False
        return (entry.draw, entry.dispatches) == (pending.draw, pending.number)

    def _next_at(self) -> float | None:
        deadlines = self.grading.deadlines
        deadlines.forget_done(self._rolls_still, self.grading.under_way)
        times = (deadlines.next_at(), self._stalls_at())
        return min((each for each in times if each is not None), default=None)

    def _stalls_at(self) -> float | None:
        if self._progress_at is None or not self.stream.entries or self.failure is not None:
            return None
        return max(self._progress_at, self._told_at) + self.limits.stall_seconds

    def _stall(self, now: float) -> Stall | None:
        at = self._stalls_at()
        if at is None or now < at or self._progress_at is None:
            return None
        self._told_at = now
        self._log.counted("Stalled")
        return Stall(self._progress_at, tuple(self.waits()))

    def note_stall(self, stall: Stall, now: float, stack: str = "") -> None:
        """Writes a stall down, with the stack in which its holder was found."""
        told = [each.sentence(now) for each in stall.waits[:20]]
        self._log.records.append(Stalled(stall.since, now, told, stack[:8000]))

    def waits(self, batch: int | None = None) -> list[Wait]:
        """What is waited for, oldest first: by one batch, or by all."""
        return waits_of(self.stream, self._delivered_at, batch=batch)
