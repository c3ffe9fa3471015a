"""A whole run on a virtual clock, with faults by seed: rollouts, graders and a trainer that crash.

Messages (responses, requests for rewards, answers) are delayed, reordered, doubled and lost; graders
crash, hang, and answer for other samples; the whole process dies, loses what was not synced, and
comes back from its last checkpoint. The trainer's `weights` are the samples it has seen.
"""

import heapq
import random
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from support.rlhf_disk import ForgetfulDisk
from support.rlhf_stream import digests_of, reward_for

from rlhf.identity import Envelope, OrderDigest, Score, Shape
from rlhf.journal import path_in
from rlhf.journal_replay import restore
from rlhf.missing import Missing, MissingPolicy, Reason, Rule
from rlhf.reward_queue_types import (
    Batch,
    Checkpoint,
    Claim,
    EndOfStream,
    Hedge,
    Limits,
    RunFailure,
    Slot,
)


class Faults(NamedTuple):
    """How often things go wrong, as probabilities; seconds are virtual."""

    lost: float = 0.0
    doubled: float = 0.0
    crashed: float = 0.0
    refused: float = 0.0
    misaddressed: float = 0.0
    not_finite: float = 0.0
    slow: float = 0.0
    restarts_every: int = 0
    """Messages between two deaths of the process; 0 = it does not die."""


NONE = Faults()
STORM = Faults(
    lost=0.02,
    doubled=0.05,
    crashed=0.02,
    misaddressed=0.01,
    not_finite=0.01,
    slow=0.05,
    restarts_every=2500,
)
PATIENT = MissingPolicy(
    timed_out=Rule(retries=50),
    grader_error=Rule(retries=50),
    refused=Rule(retries=50),
    invalid_answer=Rule(retries=50),
    no_response=Rule(retries=50),
)
"""Asks so often that no slot is ever drawn again."""


class World:
    """One run. `run()` goes on until all batches are trained; then look at the public fields."""

    def __init__(
        self,
        folder: Path,
        shape: Shape,
        batches: int,
        *,
        faults: Faults = NONE,
        seed: int = 0,
        missing: MissingPolicy = PATIENT,
        graders: int = 16,
        checkpoint_every: int = 3,
        compact: bool = True,
    ) -> None:
        self.folder, self.shape, self.batches, self.faults = folder, shape, batches, faults
        self.limits = Limits(
            grading_seconds=5.0, rollout_seconds=20.0, stall_seconds=1000.0,
            hedge=Hedge(0.9, 32, 0.2), missing=missing,
        )  # fmt: skip
        self.chance = random.Random(seed)
        self.graders, self.checkpoint_every, self.compact = graders, checkpoint_every, compact
        self.disk = ForgetfulDisk()
        self.now = 0.0
        self.messages = self.restarts = self.mispaired = 0
        self.weights: list[tuple[int, int, float]] = []
        self.outcomes: Counter[str] = Counter()
        self.largest_depth = 0
        self.counts: Counter[str] = Counter()
        self.failure: RunFailure | None = None
        self._saved: tuple[Checkpoint | None, int] = (None, 0)
        self._older_trained = 0
        self._die_at = self._next_death()
        self._born()

    def _born(self) -> None:
        """The process begins, with nothing but what is on the disk."""
        checkpoint, length = self._saved
        self.queue, self.journal = restore(
            self.folder, self.shape, self.limits, checkpoint=checkpoint, disk=self.disk
        )
        self.began = self.now
        del self.weights[length:]
        self._events: list[tuple[float, int, str, Any]] = []
        self._number = 0
        self._busy: dict[Envelope, float] = {}
        """What the graders are at, and since when; each gives up by itself at the deadline."""
        self._training: Batch | None = None
        self.queue.end(0.0, self.batches * self.shape.batch_size)

    @property
    def life_now(self) -> float:
        return self.now - self.began

    def run(self) -> "World":
        """Runs to the end."""
        while not self._step():
            pass
        self.journal.extend(self.queue.drain())
        self.journal.sync()
        self.journal.close()
        return self

    def _step(self) -> bool:
        self._fill()
        self._ask()
        if self._deliver():
            return True
        tick = self.queue.tick(self.life_now)
        for expired in tick.expired:
            self._busy.pop(expired.envelope, None)
        self.largest_depth = max(self.largest_depth, self.queue.depth)
        if not self._events:
            assert tick.next_at is not None, f"nothing can happen any more: {self.queue.waits()}"
            self.now = max(self.now + 1e-3, self.began + tick.next_at)
            return False
        at, _, kind, what = heapq.heappop(self._events)
        if tick.next_at is not None and self.began + tick.next_at < at:
            heapq.heappush(self._events, (at, self._count(), kind, what))
            self.now = max(self.now, self.began + tick.next_at) + 1e-6
            return False
        self.now = max(self.now, at)
        self._happen(kind, what)
        if self._die_at and self.messages >= self._die_at:
            self._die()
        return False

    def _happen(self, kind: str, what: Any) -> None:
        self.messages += 1
        if kind == "response":
            slot, payload = what
            self.queue.submit(slot, *digests_of(slot), self.life_now, payload)
        elif kind == "answer":
            self._answered(*what)
        else:
            self._trained(what)

    # Rollout, graders, trainer.

    def _fill(self) -> None:
        while (slot := self.queue.dispatch(self.life_now, "rollout")) is not None:
            self._send("response", (slot, b"p" * 8), self._seconds(0.5))

    def _ask(self) -> None:
        while self._busy:
            oldest, since = next(iter(self._busy.items()))
            if self.now - since < self.limits.grading_seconds:
                break
            del self._busy[oldest]
        while len(self._busy) < self.graders:
            claim = self.queue.claim(self.life_now, f"grader-{len(self._busy)}")
            if claim is None:
                return
            self._busy[claim.envelope] = self.now
            self._grade(claim)

    def _grade(self, claim: Claim) -> None:
        faults, draw = self.faults, self.chance.random()
        envelope, answer = claim.envelope, reward_for(claim.envelope)
        if draw < faults.crashed:
            self._send("answer", (envelope, Missing(Reason.GRADER_ERROR, "crashed")), 0.1)
            return
        if draw < faults.crashed + faults.refused:
            self._send("answer", (envelope, Missing(Reason.REFUSED, "not this one")), 0.1)
            return
        if self.chance.random() < faults.misaddressed:
            self._send("answer", (self._another(envelope), answer), 0.2)
        if self.chance.random() < faults.not_finite:
            answer = Score(float(self.chance.choice(["nan", "inf", "-inf"])))
        slow = self.chance.random() < faults.slow
        self._send("answer", (envelope, answer), self._seconds(4.0 if slow else 0.3))

    def _another(self, envelope: Envelope) -> Envelope:
        """The envelope of a neighbour, as a grader that has lost count would answer for."""
        entry = self.queue.stream.entries.get(envelope.seq + self.chance.choice([-1, 1]))
        if entry is None:
            return envelope
        return Envelope(
            envelope.run_id, entry.seq, entry.draw, entry.seq // self.shape.group_size,
            envelope.attempt, envelope.policy_version,
            envelope.prompt_digest, envelope.response_digest,
        )  # fmt: skip

    def _answered(self, envelope: Envelope, answer: Score | Missing) -> None:
        outcome = self.queue.answer(envelope, answer, self.life_now)
        self.outcomes[outcome] += 1
        self._busy.pop(envelope, None)

    def _deliver(self) -> bool:
        if self._training is not None:
            return False
        taken = self.queue.take(self.life_now)
        if isinstance(taken, EndOfStream):
            return True
        if isinstance(taken, RunFailure):
            self.failure = taken
            return True
        if taken is not None:
            self.journal.extend(self.queue.drain())
            self.journal.sync()
            self.mispaired += sum(each.score != reward_for(each.envelope) for each in taken.samples)
            self._training = taken
            self._send("trained", taken, 0.5, reliable=True)
        return False

    def _trained(self, batch: Batch) -> None:
        self.weights += [(s.envelope.seq, s.envelope.draw, s.score.reward) for s in batch.samples]
        self.queue.mark_trained(batch.number, self.life_now)
        self._training = None
        if self.queue.trained % self.checkpoint_every == 0:
            self._checkpoint()

    def _checkpoint(self) -> None:
        self.journal.extend(self.queue.drain())
        record = self.journal.sync()
        saved = Checkpoint(self.shape.run_id, record, self.queue.trained, self.queue.order_digest)
        # The one before stays readable, as a checkpoint's retention has it.
        if self.compact and self._older_trained:
            self.journal.flush()
            self.journal.compact(self._older_trained)
        self._older_trained = saved.trained
        self._saved = (saved, len(self.weights))

    # Faults.

    def _send(self, kind: str, what: Any, seconds: float, *, reliable: bool = False) -> None:
        copies = 1
        if not reliable:
            copies = 0 if self.chance.random() < self.faults.lost else 1
            copies += self.chance.random() < self.faults.doubled
        for _ in range(copies):
            heapq.heappush(self._events, (self.now + seconds, self._count(), kind, what))
            seconds += self._seconds(0.5)

    def _seconds(self, mean: float) -> float:
        return self.chance.expovariate(1 / mean)

    def _count(self) -> int:
        self._number += 1
        return self._number

    def _next_death(self) -> int:
        every = self.faults.restarts_every
        return self.messages + self.chance.randint(every // 2, every) if every else 0

    def _die(self) -> None:
        """The process is killed; of what was not synced, some is on the disk, torn anywhere."""
        self.journal.extend(self.queue.drain())
        if self.chance.random() < 0.7:
            self.journal.flush()
        self.journal._pending.clear()
        self.journal.close()
        self.disk.crash(path_in(self.folder), self.chance)
        self.restarts += 1
        self._die_at = self._next_death()
        self._born()


def run(folder: Path, shape: Shape, batches: int, **options: Any) -> World:
    """A run to its end."""
    return World(folder, shape, batches, **options).run()


def exactly_once(world: World) -> bool:
    """Whether the trainer has seen every slot once, by sequence."""
    return [seq for seq, _, _ in world.weights] == list(
        range(world.batches * world.shape.batch_size)
    )


def digest_of_trained(world: World) -> str:
    """The order digest made from what the trainer saw, not from the queue's own books."""
    digest = OrderDigest()
    size, shape = world.shape.batch_size, world.shape
    for batch in range(world.batches):
        version = shape.version_of(batch)
        rows = []
        for seq, draw, _ in world.weights[batch * size : (batch + 1) * size]:
            group = seq // shape.group_size
            slot = Slot(seq, draw, batch, group, group * shape.group_size, version)
            rows.append((seq, draw, version, *digests_of(slot)))
        digest.extend(rows)
    return digest.value
