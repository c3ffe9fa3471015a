"""From a journal back to the queue: what is kept, what is asked again, what is refused."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.rlhf_stream import fill, grade, mispaired, reward_for, run, shape

from rlhf.identity import Shape
from rlhf.journal import ForeignJournal, JournalError
from rlhf.journal_replay import restore
from rlhf.missing import Missing, Reason
from rlhf.reward_queue import RewardQueue
from rlhf.reward_queue_state import StreamError
from rlhf.reward_queue_types import Checkpoint, EndOfStream, Outcome


@dataclass
class Life:
    """A queue with its journal."""

    queue: RewardQueue
    folder: Path
    writer: object
    ended: bool = False

    def save(self) -> Checkpoint:
        self.writer.extend(self.queue.drain())
        record = self.writer.sync()
        return Checkpoint("run", record, self.queue.trained, self.queue.order_digest)

    def end(self) -> None:
        self.writer.extend(self.queue.drain())
        self.writer.close()
        self.ended = True


@pytest.fixture
def born():
    """Begins lives of a run; those still open at the end of the test are ended."""
    lives = []

    def begin(
        folder: Path, checkpoint: Checkpoint | None = None, stream: Shape | None = None
    ) -> Life:
        queue, writer = restore(folder, stream or shape(), checkpoint=checkpoint)
        lives.append(Life(queue, folder, writer))
        return lives[-1]

    yield begin
    for life in lives:
        if not life.ended:
            life.end()


def whole(batches: int) -> RewardQueue:
    queue = RewardQueue(shape())
    run(queue, batches)
    return queue


def test_what_was_finished_is_kept_and_what_was_not_is_asked_again(tmp_path, born) -> None:
    life = born(tmp_path)
    fill(life.queue)
    for _ in range(3):
        envelope = life.queue.claim(0.0, "g").envelope
        life.queue.answer(envelope, reward_for(envelope), 0.0)
    life.end()
    again = born(tmp_path).queue
    assert again.dispatch(0.0) is None, "all eight have their responses"
    assert [envelope.seq for envelope in grade(again)] == [3, 4, 5, 6, 7]
    assert mispaired(again.take(0.0)) == []


def test_attempts_of_another_life_have_other_numbers(tmp_path, born) -> None:
    life = born(tmp_path)
    fill(life.queue)
    before = life.queue.claim(0.0, "g").envelope
    life.end()
    again = born(tmp_path).queue
    after = again.claim(0.0, "g").envelope
    assert (before.attempt, after.attempt) == (1, 1001)
    assert again.answer(before, reward_for(before), 0.0) is Outcome.LATE


def test_slots_without_a_response_are_sampled_again(tmp_path, born) -> None:
    life = born(tmp_path)
    slots = [life.queue.dispatch(0.0) for _ in range(6)]
    life.queue.submit(slots[4], "a" * 32, "b" * 32, 0.0)
    life.end()
    again = born(tmp_path).queue
    assert [slot.seq for slot in fill(again)] == [0, 1, 2, 3, 5, 6, 7]


def test_batches_after_the_checkpoint_are_delivered_again_the_same(tmp_path, born) -> None:
    life = born(tmp_path)
    run(life.queue, 2)
    saved = life.save()
    lost = run(life.queue, 3)
    life.end()
    again = born(tmp_path, saved)
    assert (again.queue.trained, again.queue.order_digest) == (2, saved.order_digest)
    repeated = run(again.queue, 3)
    assert [batch.number for batch in repeated] == [2, 3, 4]
    assert [batch.order_digest for batch in repeated] == [batch.order_digest for batch in lost]
    run(again.queue, 2)
    assert again.queue.order_digest == whole(7).order_digest


def test_no_batch_is_repeated_that_the_weights_have_seen(tmp_path, born) -> None:
    life = born(tmp_path)
    run(life.queue, 3)
    saved = life.save()
    life.end()
    again = born(tmp_path, saved)
    assert run(again.queue, 1)[0].number == 3


def test_redraws_and_their_draws_are_remembered(tmp_path, born) -> None:
    life = born(tmp_path)
    fill(life.queue)
    life.queue.answer(life.queue.claim(0.0, "g").envelope, Missing(Reason.REFUSED), 0.0)
    first, second = (life.queue.dispatch(0.0) for _ in range(2))
    life.queue.submit(first, "c" * 32, "d" * 32, 0.0)
    life.end()
    again = born(tmp_path).queue
    assert again.dispatch(0.0) == second
    envelope = again.claim(0.0, "g").envelope
    assert (envelope.draw, envelope.prompt_digest) == (1, "c" * 32)


def test_who_resumes_says_anew_where_the_stream_ends(tmp_path, born) -> None:
    life = born(tmp_path)
    life.queue.end(0.0, 8)
    run(life.queue, 2)
    saved = life.save()
    life.end()
    again = born(tmp_path, saved)
    assert again.queue.take(0.0) is None
    again.queue.end(0.0, 12)
    run(again.queue, 1)
    assert again.queue.take(0.0) == EndOfStream(12)


def test_a_stream_that_ended_in_a_short_batch_is_over(tmp_path, born) -> None:
    life = born(tmp_path)
    life.queue.end(0.0, 6)
    run(life.queue, 2)
    saved = life.save()
    life.end()
    again = born(tmp_path, saved)
    assert again.queue.take(0.0) == EndOfStream(6)
    assert again.queue.dispatch(0.0) is None
    with pytest.raises(StreamError, match="it ended at 6"):
        again.queue.end(0.0, 12)


@pytest.mark.parametrize(
    "changes",
    [{"run_id": "other"}, {"seed": 8}, {"batch_size": 8}, {"group_size": 4}, {"lag": 2}],
)
def test_the_journal_of_another_run_is_refused_by_name(tmp_path, changes, born) -> None:
    born(tmp_path).end()
    (name,) = changes
    with pytest.raises(ForeignJournal, match=f"the journal's {name} is"):
        restore(tmp_path, shape(**changes))


def test_more_draws_may_be_allowed_when_resuming(tmp_path, born) -> None:
    born(tmp_path).end()
    born(tmp_path, stream=shape(max_draws=9)).end()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"run_id": "other"}, "the checkpoint is of run other"),
        ({"trained": 4}, "follows 4 updates"),
        ({"record": 10_000}, "lost what was durable"),
        ({"order_digest": "f" * 32}, "they are of different runs"),
    ],
)
def test_a_checkpoint_that_is_not_the_journals_is_refused(tmp_path, changes, words, born) -> None:
    life = born(tmp_path)
    run(life.queue, 3)
    saved = life.save()
    life.end()
    with pytest.raises(JournalError, match=words):
        restore(tmp_path, shape(), checkpoint=replace(saved, **changes))


def test_a_checkpoint_older_than_the_compacted_journal_is_refused(tmp_path, born) -> None:
    life = born(tmp_path)
    run(life.queue, 1)
    early = life.save()
    run(life.queue, 3)
    life.save()
    life.writer.flush()
    life.writer.compact(3)
    life.end()
    with pytest.raises(JournalError, match="compacted up to update 3"):
        restore(tmp_path, shape(), checkpoint=early)


def test_a_batch_that_comes_again_must_be_the_one_that_was_delivered(tmp_path, born) -> None:
    life = born(tmp_path)
    fill(life.queue)
    grade(life.queue)
    life.queue.take(0.0)
    life.end()
    again = born(tmp_path).queue
    again.stream.entries[0].response_digest = "f" * 32
    with pytest.raises(StreamError, match="do not belong together"):
        again.take(0.0)
