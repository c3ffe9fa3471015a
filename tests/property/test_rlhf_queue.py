"""The reward queue as a state machine against a model: any order of calls, restarts included."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.rlhf_stream import digests_of, fill, grade, mispaired, reward_for, shape

from rlhf.identity import Envelope, Score
from rlhf.journal_frames import Numbered
from rlhf.journal_records import Resumed, Started
from rlhf.journal_replay import Replay
from rlhf.missing import Missing, MissingPolicy, Reason, Rule
from rlhf.reward_queue import RewardQueue
from rlhf.reward_queue_types import Batch, Checkpoint, Limits, Outcome, Slot

STREAM = shape(batch_size=4, group_size=2, lag=1, max_draws=50)
POLICY = MissingPolicy(timed_out=Rule(1), grader_error=Rule(1), refused=Rule(0))
LIMITS = Limits(grading_seconds=10.0, rollout_seconds=20.0, missing=POLICY)


class Queue(RuleBasedStateMachine):
    """Everything that workers, graders and the trainer may do, whenever they like."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = RewardQueue(STREAM, LIMITS)
        self.journal = [Started(STREAM)]
        self.now = 0.0
        self.slots: list[Slot] = []
        self.envelopes: list[Envelope] = []
        self.delivered: list[Batch] = []

    @rule()
    def dispatch(self) -> None:
        if (slot := self.queue.dispatch(self.now, "r")) is not None:
            assert slot.policy_version == STREAM.version_of(slot.batch) <= self.queue.trained
            self.slots.append(slot)

    @precondition(lambda self: self.slots)
    @rule(place=st.integers(0, 100), failed=st.booleans())
    def respond(self, place: int, failed: bool) -> None:
        """The response of any slot ever dispatched: the first time, again, or too late."""
        slot = self.slots[place % len(self.slots)]
        if failed:
            self.queue.abandon(slot, Missing(Reason.NO_RESPONSE), self.now)
        else:
            self.queue.submit(slot, *digests_of(slot), self.now)

    @rule()
    def claim(self) -> None:
        if (claim := self.queue.claim(self.now, "g")) is not None:
            assert claim.envelope not in self.envelopes, "attempts have numbers of their own"
            self.envelopes.append(claim.envelope)

    @precondition(lambda self: self.envelopes)
    @rule(
        place=st.integers(0, 100),
        outcome=st.sampled_from(["right", "nan", "error", "refused", "neighbour"]),
    )
    def answer(self, place: int, outcome: str) -> None:
        """An answer to any attempt ever made."""
        envelope = self.envelopes[place % len(self.envelopes)]
        answers = {
            "right": reward_for(envelope),
            "nan": Score(float("nan")),
            "error": Missing(Reason.GRADER_ERROR),
            "refused": Missing(Reason.REFUSED),
            "neighbour": reward_for(self.envelopes[(place + 1) % len(self.envelopes)]),
        }
        if outcome == "neighbour":
            other = self.envelopes[(place + 1) % len(self.envelopes)]
            envelope = Envelope(
                envelope.run_id, envelope.seq, envelope.draw, envelope.group_id,
                envelope.attempt, envelope.policy_version,
                other.prompt_digest, other.response_digest,
            )  # fmt: skip
        applied = self.queue.answer(envelope, answers[outcome], self.now)
        if outcome in ("nan", "error", "refused"):
            assert applied is not Outcome.APPLIED

    @rule()
    def respond_to_all(self) -> None:
        self.slots += fill(self.queue, self.now)

    @rule()
    def grade_all(self) -> None:
        self.envelopes += grade(self.queue, self.now)

    @rule()
    def take(self) -> None:
        taken = self.queue.take(self.now)
        if isinstance(taken, Batch):
            assert taken.number == len(self.delivered)
            first = taken.number * 4
            assert [each.envelope.seq for each in taken.samples] == list(range(first, first + 4))
            assert mispaired(taken) == []
            self.delivered.append(taken)

    @precondition(lambda self: self.queue.delivered > self.queue.trained)
    @rule()
    def train(self) -> None:
        self.queue.mark_trained(self.queue.trained, self.now)

    @rule(seconds=st.floats(0.1, 25.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.queue.tick(self.now)

    @precondition(lambda self: self.queue.delivered == self.queue.trained)
    @rule()
    def restart(self) -> None:
        """The process dies after a checkpoint and comes back from its journal."""
        self._write()
        checkpoint = Checkpoint(
            "run", len(self.journal), self.queue.trained, self.queue.order_digest
        )
        life = self.queue.life + 1
        graded = {s: e.score for s, e in self.queue.stream.entries.items() if e.score is not None}
        stream = self._replayed(checkpoint)
        assert {s: e.score for s, e in stream.entries.items() if e.score is not None} == graded
        self.queue = RewardQueue(STREAM, LIMITS, stream=stream, life=life)
        self.journal.append(Resumed(self.queue.trained, life))
        self.now = 0.0

    def _replayed(self, checkpoint: Checkpoint | None):
        replay = Replay(STREAM, checkpoint)
        for number, record in enumerate(self.journal):
            replay.add(Numbered(number, record))
        return replay.finish()

    def _write(self) -> None:
        self.journal += self.queue.drain()

    @invariant()
    def no_more_is_under_way_than_the_bound_allows(self) -> None:
        assert self.queue.depth <= STREAM.capacity

    @invariant()
    def what_is_graded_is_counted(self) -> None:
        stream = self.queue.stream
        for batch in range(stream.delivered, stream.delivered + 3):
            members = [e for e in stream.entries.values() if e.seq // 4 == batch]
            assert stream.graded.get(batch, 0) == sum(e.score is not None for e in members)

    def teardown(self) -> None:
        """From the first record on, the journal gives the same batches again."""
        self._write()
        again = RewardQueue(STREAM, LIMITS, stream=self._replayed(None))
        for batch in self.delivered:
            taken = again.take(0.0)
            assert isinstance(taken, Batch)
            assert taken.order_digest == batch.order_digest
            assert [each.score for each in taken.samples] == [each.score for each in batch.samples]
            again.mark_trained(batch.number, 0.0)


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
