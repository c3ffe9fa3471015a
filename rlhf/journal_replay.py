"""From a journal back to the queue: what was finished is kept, what was not is asked again.

A restart comes back to a checkpoint of the weights, which have seen the batches below `trained`.
Batches at or beyond it that were delivered, even trained, in the lost part of the run are
delivered again, the same ones: their samples and rewards are in the journal. Where the stream ends,
whoever resumes says anew: the run may have been given more steps.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlhf.identity import Score, Shape
from rlhf.journal import Disk, ForeignJournal, JournalError, JournalWriter, path_in
from rlhf.journal_frames import Numbered
from rlhf.journal_records import (
    Answered,
    Base,
    Delivered,
    Redrawn,
    Resumed,
    Started,
    Submitted,
    Trained,
)
from rlhf.reward_queue import RewardQueue
from rlhf.reward_queue_state import Entry, Stream
from rlhf.reward_queue_types import Checkpoint, Limits


class Replay:
    """A fold over the records of one run: call `add` with each, then `stream` is what it was.

    Raises:
        ForeignJournal: the journal is of another run, or of other sizes.
        JournalError: it contradicts itself, or the checkpoint.
    """

    def __init__(self, shape: Shape, checkpoint: Checkpoint | None = None) -> None:
        if checkpoint is not None and checkpoint.run_id != shape.run_id:
            raise ForeignJournal(
                f"the checkpoint is of run {checkpoint.run_id}, this is run {shape.run_id}"
            )
        self.shape = shape
        self.checkpoint = checkpoint
        self.trained = checkpoint.trained if checkpoint else 0
        self.stream = Stream(shape)
        self.life = 0
        self.records = 0
        self._last = -1
        self._first_live = self.trained * shape.batch_size
        self._short_end: int | None = None
        """Where the stream ended with a short batch that was trained: it cannot go on."""
        self._by_kind: dict[type, Callable[[Any], None]] = {
            Started: self._started,
            Base: self._base,
            Resumed: self._resumed,
            Submitted: self._submitted,
            Answered: self._answered,
            Redrawn: self._redrawn,
            Delivered: self._delivered,
            Trained: self._trained,
        }

    def add(self, numbered: Numbered) -> None:
        """One more record."""
        self._last, record = numbered
        self.records += 1
        apply = self._by_kind.get(type(record))
        if apply is not None:
            apply(record)

    def finish(self) -> Stream:
        """The stream after the last record.

        Raises:
            JournalError: the journal ends before the checkpoint, or differs from it.
        """
        stream, saved = self.stream, self.checkpoint
        if stream.trained != self.trained or (saved and self._last + 1 < saved.record):
            raise JournalError(
                f"the checkpoint follows {self.trained} updates and record "
                f"{saved.record if saved else 0}; the journal knows {stream.trained} updates and "
                f"{self._last + 1} records: it is not the checkpoint's, or lost what was durable. "
                "Resume from an older checkpoint, or begin a new run"
            )
        if saved and saved.order_digest != stream.digest.value:
            raise JournalError(
                f"the checkpoint's order digest is {saved.order_digest}, the journal's after the "
                f"same {self.trained} updates is {stream.digest.value}: they are of different runs"
            )
        if self._short_end is not None:
            stream.next_seq = stream.total = self._short_end
        return stream

    def _started(self, record: Started) -> None:
        for name in ("run_id", "seed", "batch_size", "group_size", "lag"):
            ours, theirs = getattr(self.shape, name), getattr(record.shape, name)
            if ours != theirs:
                raise ForeignJournal(
                    f"the journal's {name} is {theirs}, this run's is {ours}: begin a new run in a "
                    "folder of its own, or resume with the same settings"
                )

    def _base(self, record: Base) -> None:
        if record.trained > self.trained:
            raise JournalError(
                f"the journal was compacted up to update {record.trained}, the checkpoint follows "
                f"{self.trained}: resume from a newer checkpoint"
            )
        self.life = max(self.life, record.life)
        self.stream.digest.value = record.order_digest
        self.stream.delivered = self.stream.trained = record.trained
        self.stream.next_seq = self.stream.first_of(record.trained)

    def _resumed(self, record: Resumed) -> None:
        self.life = max(self.life, record.life)

    def _submitted(self, record: Submitted) -> None:
        if record.seq < self._first_live:
            return
        entry = self._entry(record.seq, record.draw)
        self.stream.submitted(entry, record.prompt_digest, record.response_digest, record.payload)

    def _answered(self, record: Answered) -> None:
        if record.seq < self._first_live:
            return
        entry = self._entry(record.seq, record.draw)
        if not entry.response_digest or entry.score is not None:
            raise JournalError(
                f"record {self._last} is an answer for {record.seq}, which "
                + ("has one" if entry.score else "has no response")
            )
        entry.attempt, entry.worker = record.attempt, record.worker
        entry.claimed_at, entry.answered_at = record.claimed_at, record.at
        self.stream.scored(entry, Score(record.reward, record.parts))

    def _entry(self, seq: int, draw: int) -> Entry:
        entry = self.stream.entries.get(seq)
        if entry is None:
            entry = self.stream.add(seq)
        if entry.draw != draw:
            raise JournalError(
                f"record {self._last} is about draw {draw} of slot {seq}, which is at {entry.draw}"
            )
        return entry

    def _redrawn(self, record: Redrawn) -> None:
        if record.group_id * self.shape.group_size >= self._first_live:
            self.stream.redraw(record.group_id, record.draw)

    def _delivered(self, record: Delivered) -> None:
        if record.batch >= self.trained:
            # A short one, at the end, may come again longer.
            if record.count == self.shape.batch_size:
                self.stream.promised[record.batch] = record.order_digest
        elif record.batch == self.stream.delivered:
            self.stream.delivered += 1
            self.stream.digest.value = record.order_digest
            end = record.batch * self.shape.batch_size + record.count
            self.stream.next_seq = max(self.stream.next_seq, end)
            if record.count < self.shape.batch_size:
                self._short_end = end

    def _trained(self, record: Trained) -> None:
        if record.batch == self.stream.trained and record.batch < self.trained:
            self.stream.trained += 1


def restore(
    run_folder: Path,
    shape: Shape,
    limits: Limits | None = None,
    *,
    checkpoint: Checkpoint | None = None,
    began: str = "",
    disk: Disk | None = None,
) -> tuple[RewardQueue, JournalWriter]:
    """Opens the journal of a run folder and rebuilds its queue; a new run begins an empty one.

    Without a checkpoint the weights are the initial ones, and every batch is delivered again.
    `began` is the time of day, for people.

    Raises:
        ForeignJournal, JournalError, JournalDamaged, JournalInUse: it cannot be continued.
    """
    replay = Replay(shape, checkpoint)
    journal = JournalWriter(path_in(run_folder), each=replay.add, disk=disk)
    try:
        stream = replay.finish()
        life = replay.life
        if replay.records == 0:
            journal.append(Started(shape, began))
        else:
            life += 1
            torn = journal.tail.torn_bytes
            journal.append(Resumed(stream.trained, life, torn, began))
        journal.sync()
    except BaseException:
        journal.close()
        raise
    return RewardQueue(shape, limits, stream=stream, life=life), journal
