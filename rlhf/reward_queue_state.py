"""The durable half of the reward queue: what a journal can rebuild.

Everything here is a function of the records alone: no claims, deadlines or workers. The live queue
and the replay of a journal change it through the same methods, so they cannot drift apart.
"""

import heapq

from rlhf.identity import OrderDigest, Score, Shape
from rlhf.journal_records import Ignored


class StreamError(Exception):
    """The stream was told something that cannot be: a step out of order, a contradiction."""


# Most slots have one attempt or none and miss nothing: these stand for their empty dictionaries, and
# are replaced, never written to.
NONE_LIVE: dict[int, tuple[float, str, bool]] = {}
NONE_MISSED: dict[str, int] = {}


class Entry:
    """One slot under way. Digests are empty until there is a response, `score` until graded.

    `live` are the attempts under way: since when, by whom, and whether as a hedge. `attempt` is the
    one whose answer was taken, `worker` who gave it.
    """

    __slots__ = (
        "answered_at",
        "attempt",
        "attempts",
        "claimed_at",
        "dispatched_at",
        "dispatches",
        "draw",
        "live",
        "missed",
        "payload",
        "prompt_digest",
        "response_digest",
        "rolling",
        "score",
        "seq",
        "submitted_at",
        "worker",
    )

    def __init__(self, seq: int, draw: int) -> None:
        self.seq = seq
        self.dispatches = self.attempts = 0
        self.begin(draw)

    def begin(self, draw: int) -> None:
        """Empties the slot for a draw; its numbers of attempts go on."""
        self.draw = draw
        self.prompt_digest = self.response_digest = self.worker = ""
        self.payload = b""
        self.score: Score | None = None
        self.rolling = False
        self.attempt = 0
        self.dispatched_at = self.submitted_at = self.claimed_at = self.answered_at = 0.0
        self.live: dict[int, tuple[float, str, bool]] = NONE_LIVE
        self.missed: dict[str, int] = NONE_MISSED


class Stream:
    """Slots from the first untrained batch on, and how far the stream is."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.entries: dict[int, Entry] = {}
        self.draws: dict[int, int] = {}
        """The draw of each group that was drawn again."""
        self.next_seq = 0
        self.delivered = 0
        self.trained = 0
        self.total: int | None = None
        self.digest = OrderDigest()
        self.graded: dict[int, int] = {}
        """How many samples of each batch have a score."""
        self.complete: dict[int, None] = {}
        """Batches of which all samples have one, by the time when that came about."""
        self.promised: dict[int, str] = {}
        """Order digests of batches that were delivered in an earlier life and come again."""

    def expected(self, batch: int) -> int:
        """How many samples a batch has: fewer than its size only at the end of the stream."""
        size = self.shape.batch_size
        if self.total is None:
            return size
        return max(0, min(size, self.total - batch * size))

    def add(self, seq: int) -> Entry:
        """A slot comes under way."""
        entry = Entry(seq, self.draws.get(seq // self.shape.group_size, 0))
        self.entries[seq] = entry
        if seq >= self.next_seq:
            self.next_seq = seq + 1
        return entry

    def submitted(self, entry: Entry, prompt: str, response: str, payload: bytes) -> None:
        """A slot has its response."""
        entry.prompt_digest = prompt
        entry.response_digest = response
        entry.payload = payload
        entry.rolling = False

    def scored(self, entry: Entry, score: Score) -> None:
        """A sample has its reward."""
        entry.score = score
        entry.live = NONE_LIVE
        batch = entry.seq // self.shape.batch_size
        graded = self.graded[batch] = self.graded.get(batch, 0) + 1
        if graded == self.shape.batch_size or self.total is not None:
            self._count(batch)

    def _count(self, batch: int) -> None:
        expected = self.expected(batch)
        if expected and self.graded.get(batch, 0) == expected:
            self.complete[batch] = None

    def redraw(self, group: int, draw: int) -> list[Entry]:
        """A group begins anew in its own slots; returns those that were under way."""
        self.draws[group] = draw
        size = self.shape.group_size
        again = []
        for seq in range(group * size, (group + 1) * size):
            entry = self.entries.get(seq)
            if entry is None:
                continue
            if entry.score is not None:
                self.graded[self.shape.batch_of(seq)] -= 1
            entry.begin(draw)
            again.append(entry)
        return again

    def batch_entries(self, batch: int) -> list[Entry]:
        """The slots of a complete batch, by sequence."""
        first = batch * self.shape.batch_size
        return [self.entries[seq] for seq in range(first, first + self.expected(batch))]

    def deliver(self, batch: int, entries: list[Entry]) -> str:
        """The batch goes to the trainer; returns the order digest that includes it.

        Raises:
            StreamError: it is not the batch that was delivered under this number before.
        """
        version = self.shape.version_of(batch)
        self.complete.pop(batch, None)
        digest = self.digest.extend(
            [(each.seq, each.draw, version, each.prompt_digest, each.response_digest)
             for each in entries]
        )  # fmt: skip
        promised = self.promised.pop(batch, digest)
        if promised != digest:
            raise StreamError(
                f"batch {batch} has order digest {digest}, and had {promised} when it was delivered "
                "before the restart: the journal and the samples do not belong together"
            )
        self.delivered = batch + 1
        return digest

    def drop(self, batch: int) -> None:
        """The update with the batch is made: its slots are forgotten."""
        first = batch * self.shape.batch_size
        for seq in range(first, first + self.shape.batch_size):
            self.entries.pop(seq, None)
        if self.draws:
            for group in range(
                self.shape.group_of(first), self.shape.group_of(self.first_of(batch + 1))
            ):
                self.draws.pop(group, None)
        self.graded.pop(batch, None)
        self.trained = batch + 1

    def first_of(self, batch: int) -> int:
        """The first slot of a batch."""
        return batch * self.shape.batch_size

    def end(self, total: int) -> None:
        """The stream has `total` slots."""
        self.total = total
        for batch in range(self.delivered, self.shape.batch_of(max(0, total - 1)) + 1):
            if batch not in self.complete:
                self._count(batch)

    def past_or_unknown(self, seq: int, draw: int) -> Ignored:
        """Why nothing can be handed in for a slot and draw: it is over, or it never began."""
        entry = self.entries.get(seq)
        done = 0 <= seq < self.first_of(self.trained)
        return Ignored.LATE if done or (entry and draw < entry.draw) else Ignored.UNKNOWN

    def unfilled(self) -> list[int]:
        """Slots up to the newest one that have no response, as a heap: to be sampled again."""
        found = [
            seq
            for seq in range(self.first_of(self.delivered), self.next_seq)
            if seq not in self.entries or not self.entries[seq].response_digest
        ]
        heapq.heapify(found)
        return found
