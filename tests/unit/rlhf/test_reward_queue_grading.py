"""Claims and answers: bound by identity, applied at most once, never a number for what is missing."""

import math

import pytest
from msgspec.structs import replace
from support.rlhf_stream import digests_of, fill, grade, reward_for, run, shape

from rlhf.identity import Score
from rlhf.journal_records import Answered, IgnoredAnswer, Missed
from rlhf.missing import Missing, MissingPolicy, Reason, Rule, Then
from rlhf.reward_queue import RewardQueue
from rlhf.reward_queue_types import Limits, Outcome, RunFailure


@pytest.fixture
def queue() -> RewardQueue:
    queue = RewardQueue(shape())
    fill(queue)
    return queue


def records(queue: RewardQueue, kind: type) -> list:
    return [each for each in queue.records if isinstance(each, kind)]


def test_samples_are_claimed_by_sequence_with_their_envelope(queue) -> None:
    envelopes = [queue.claim(0.0, "g").envelope for _ in range(8)]
    assert [each.seq for each in envelopes] == list(range(8))
    assert {(each.run_id, each.draw, each.attempt) for each in envelopes} == {("run", 0, 1)}
    assert queue.claim(0.0, "g") is None


def test_the_same_answer_again_changes_nothing(queue) -> None:
    envelope = queue.claim(0.0, "g").envelope
    assert queue.answer(envelope, Score(1.0), 0.0) is Outcome.APPLIED
    assert queue.answer(envelope, Score(1.0), 0.0) is Outcome.DUPLICATE
    assert len(records(queue, Answered)) == 1


def test_another_value_for_the_same_tokens_is_a_conflict_and_the_first_stays(queue) -> None:
    envelope = queue.claim(0.0, "g").envelope
    queue.answer(envelope, Score(1.0), 0.0)
    assert queue.answer(envelope, Score(2.0), 0.0) is Outcome.CONFLICT
    grade(queue)
    assert queue.take(0.0).samples[0].score == Score(1.0)


def test_an_attempt_that_was_given_up_is_fenced_off(queue) -> None:
    first = queue.claim(0.0, "g").envelope
    queue.tick(60.0)
    second = queue.claim(60.0, "g").envelope
    assert (second.seq, second.attempt) == (first.seq, 2)
    assert queue.answer(first, Score(1.0), 61.0) is Outcome.LATE
    assert queue.answer(second, Score(2.0), 62.0) is Outcome.APPLIED
    assert queue.counts["Late"] == 1
    (applied,) = records(queue, Answered)
    assert (applied.attempt, applied.reward) == (2, 2.0)


def test_an_answer_after_its_batch_was_trained_is_late() -> None:
    queue = RewardQueue(shape())
    (batch,) = run(queue, 1)
    envelope = batch.samples[0].envelope
    assert queue.answer(envelope, reward_for(envelope), 0.0) is Outcome.LATE


def test_an_answer_of_another_run_is_foreign(queue) -> None:
    envelope = replace(queue.claim(0.0, "g").envelope, run_id="other")
    assert queue.answer(envelope, Score(1.0), 0.0) is Outcome.FOREIGN


@pytest.mark.parametrize("changes", [{"seq": 99}, {"seq": -1}, {"draw": 3}])
def test_an_answer_for_what_was_never_asked_is_unknown(queue, changes) -> None:
    envelope = replace(queue.claim(0.0, "g").envelope, **changes)
    assert queue.answer(envelope, Score(1.0), 0.0) is Outcome.UNKNOWN


@pytest.mark.parametrize("part", ["prompt_digest", "response_digest"])
def test_an_answer_computed_on_other_tokens_is_refused_and_the_sample_asked_again(
    queue, part
) -> None:
    envelope = queue.claim(0.0, "g").envelope
    wrong = replace(envelope, **{part: "f" * 32})
    assert queue.answer(wrong, Score(1.0), 0.0) is Outcome.MISMATCH
    assert queue.answer(envelope, Score(1.0), 0.0) is Outcome.LATE
    again = queue.claim(0.0, "g").envelope
    assert (again.seq, again.attempt) == (0, 2)
    (missed,) = records(queue, Missed)
    assert missed.reason is Reason.INVALID_ANSWER


def test_what_belongs_to_a_neighbour_does_not_reach_this_sample(queue) -> None:
    """The reward of slot 1, sent for slot 0: the stream does not slip by one."""
    zero, one = queue.claim(0.0, "g").envelope, queue.claim(0.0, "g").envelope
    slipped = replace(one, seq=zero.seq, group_id=zero.group_id, attempt=zero.attempt)
    assert queue.answer(slipped, reward_for(one), 0.0) is Outcome.MISMATCH
    assert queue.stream.entries[0].score is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "1.0", True])
def test_what_is_no_finite_number_is_a_missing_reward(queue, value) -> None:
    envelope = queue.claim(0.0, "g").envelope
    assert queue.answer(envelope, Score(value), 0.0) is Outcome.MISSING
    assert queue.stream.entries[0].score is None
    assert queue.counts == {"InvalidAnswer": 1}


def test_a_part_that_is_no_finite_number_makes_the_reward_missing(queue) -> None:
    envelope = queue.claim(0.0, "g").envelope
    assert queue.answer(envelope, Score(1.0, {"x": math.nan}), 0.0) is Outcome.MISSING


def test_retries_are_counted_per_reason() -> None:
    policy = MissingPolicy(grader_error=Rule(1, Then.FAIL), timed_out=Rule(1, Then.FAIL))
    queue = RewardQueue(shape(), Limits(missing=policy))
    fill(queue)
    for reason in (Reason.GRADER_ERROR, Reason.TIMED_OUT):
        queue.answer(queue.claim(0.0, "g").envelope, Missing(reason), 0.0)
        assert queue.failure is None
    queue.answer(queue.claim(0.0, "g").envelope, Missing(Reason.GRADER_ERROR, "boom"), 0.0)
    failure = queue.take(0.0)
    assert isinstance(failure, RunFailure)
    assert failure.sample.seq == 0
    assert failure.why == "slot s0 of batch 0 gets no reward: GraderError: boom"


def test_nothing_is_dropped_without_a_record(queue) -> None:
    envelope = queue.claim(0.0, "g").envelope
    queue.answer(envelope, Missing(Reason.REFUSED, "no"), 0.0)
    queue.answer(envelope, Score(1.0), 0.0)
    (missed,), (ignored,) = records(queue, Missed), records(queue, IgnoredAnswer)
    assert (missed.reason, missed.then, missed.worker, missed.detail) == (
        "Refused", Then.REDRAW, "g", "no",
    )  # fmt: skip
    assert ignored.seq == 0


def test_the_envelope_delivered_names_the_attempt_that_won(queue) -> None:
    first = queue.claim(0.0, "one").envelope
    queue.answer(first, Missing(Reason.GRADER_ERROR), 0.0)
    grade(queue)
    sample = queue.take(0.0).samples[0]
    assert (sample.envelope.attempt, sample.worker) == (2, "grader")
    assert sample.payload == b"payload"


def test_digests_are_set_once_however_often_the_sample_is_asked(queue) -> None:
    first = queue.claim(0.0, "g").envelope
    queue.answer(first, Missing(Reason.GRADER_ERROR), 0.0)
    again = queue.claim(0.0, "g").envelope
    slot = fill(RewardQueue(shape()))[0]
    assert again.digests == first.digests == digests_of(slot)
