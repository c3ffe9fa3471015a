"""The reward queue: what is dispatched when, and what is delivered in which order."""

import random

import pytest
from support.rlhf_stream import digests_of, fill, grade, mispaired, reward_for, run, shape

from rlhf.missing import Missing, Reason
from rlhf.reward_queue import RewardQueue
from rlhf.reward_queue_state import StreamError
from rlhf.reward_queue_types import Batch, EndOfStream, Outcome, RunFailure


def test_number_batch_group_and_version_are_fixed_when_a_slot_is_dispatched() -> None:
    queue = RewardQueue(shape(batch_size=4, group_size=2, lag=1))
    slots = fill(queue)
    assert [slot.seq for slot in slots] == list(range(8))
    assert [slot.batch for slot in slots] == [0] * 4 + [1] * 4
    assert [slot.group_id for slot in slots] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [slot.first_seq for slot in slots] == [0, 0, 2, 2, 4, 4, 6, 6]
    assert {slot.policy_version for slot in slots} == {0}


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_no_more_than_lag_plus_one_batches_are_under_way(lag) -> None:
    queue = RewardQueue(shape(lag=lag))
    assert len(fill(queue)) == (lag + 1) * 4
    grade(queue)
    assert queue.dispatch(0.0) is None
    batch = queue.take(0.0)
    assert queue.dispatch(0.0) is None, "delivered is not trained: its policy does not exist yet"
    queue.mark_trained(batch.number, 0.0)
    slots = fill(queue)
    assert len(slots) == 4
    assert {slot.policy_version for slot in slots} == {1}
    assert queue.depth == (lag + 1) * 4


def test_answers_in_any_order_are_delivered_by_sequence() -> None:
    chance = random.Random(3)
    queue = RewardQueue(shape(batch_size=8, group_size=2, lag=2))
    digests = []
    for number in range(6):
        fill(queue)
        claims = []
        while (claim := queue.claim(0.0, "g")) is not None:
            claims.append(claim.envelope)
        chance.shuffle(claims)
        for envelope in claims:
            queue.answer(envelope, reward_for(envelope), 0.0)
        batch = queue.take(0.0)
        assert [each.envelope.seq for each in batch.samples] == list(
            range(number * 8, number * 8 + 8)
        )
        assert mispaired(batch) == []
        digests.append(batch.order_digest)
        queue.mark_trained(number, 0.0)
    in_order = RewardQueue(shape(batch_size=8, group_size=2, lag=2))
    assert [batch.order_digest for batch in run(in_order, 6)] == digests


def test_a_later_batch_that_is_complete_waits_for_the_one_before() -> None:
    queue = RewardQueue(shape())
    fill(queue)
    claims = [queue.claim(0.0, "g").envelope for _ in range(8)]
    for envelope in claims[4:]:
        queue.answer(envelope, reward_for(envelope), 0.0)
    assert queue.take(0.0) is None
    for envelope in claims[:4]:
        queue.answer(envelope, reward_for(envelope), 0.0)
    assert [queue.take(0.0).number, queue.take(0.0).number] == [0, 1]


def test_a_second_response_for_a_slot_is_not_taken() -> None:
    queue = RewardQueue(shape())
    slot = queue.dispatch(0.0)
    assert queue.submit(slot, *digests_of(slot), 0.0) is Outcome.APPLIED
    assert queue.submit(slot, *digests_of(slot), 0.0) is Outcome.DUPLICATE
    assert queue.submit(slot, "0" * 32, "1" * 32, 0.0) is Outcome.CONFLICT
    assert queue.claim(0.0, "g").envelope.digests == digests_of(slot)
    assert queue.counts == {"Duplicate": 1, "Conflict": 1}


def test_a_response_for_a_slot_that_was_never_dispatched_is_counted() -> None:
    queue = RewardQueue(shape())
    slot = queue.dispatch(0.0)
    assert queue.submit(slot._replace(seq=99), "0", "1", 0.0) is Outcome.UNKNOWN
    assert queue.submit(slot._replace(draw=1), "0", "1", 0.0) is Outcome.UNKNOWN


def test_the_end_comes_behind_the_last_batch_also_a_short_one() -> None:
    queue = RewardQueue(shape())
    queue.end(0.0, 6)
    assert len(fill(queue)) == 6
    grade(queue)
    first, last = queue.take(0.0), queue.take(0.0)
    assert [len(first.samples), len(last.samples)] == [4, 2]
    assert queue.take(0.0) == EndOfStream(6)
    assert queue.take(0.0) == EndOfStream(6)


def test_an_end_that_comes_late_completes_the_short_batch() -> None:
    queue = RewardQueue(shape())
    for _ in range(6):
        slot = queue.dispatch(0.0)
        queue.submit(slot, *digests_of(slot), 0.0)
    grade(queue)
    assert isinstance(queue.take(0.0), Batch)
    assert queue.take(0.0) is None
    queue.end(0.0)
    assert len(queue.take(0.0).samples) == 2


@pytest.mark.parametrize("total", [2, 7])
def test_an_end_within_what_is_under_way_or_within_a_group_is_refused(total) -> None:
    queue = RewardQueue(shape())
    for _ in range(4):
        queue.dispatch(0.0)
    with pytest.raises(StreamError, match="cannot end at"):
        queue.end(0.0, total)


def test_an_empty_stream_ends_at_once() -> None:
    queue = RewardQueue(shape())
    queue.end(0.0)
    assert queue.dispatch(0.0) is None
    assert queue.take(0.0) == EndOfStream(0)


def test_a_failure_is_told_to_whoever_takes() -> None:
    queue = RewardQueue(shape())
    fill(queue)
    queue.fail("the disk is full", 0.0)
    assert queue.take(0.0) == RunFailure("the disk is full")
    assert queue.dispatch(0.0) is None
    assert queue.claim(0.0, "g") is None


@pytest.mark.parametrize("batch", [0, 1, -1])
def test_only_the_delivered_batch_whose_turn_it_is_can_be_trained(batch) -> None:
    queue = RewardQueue(shape())
    fill(queue)
    with pytest.raises(StreamError, match="cannot be marked as trained"):
        queue.mark_trained(batch, 0.0)


def test_a_policy_is_needed_until_its_last_batch_is_delivered() -> None:
    queue = RewardQueue(shape(lag=1))
    assert list(queue.needed_versions()) == [0]
    run(queue, 3)
    assert list(queue.needed_versions()) == [2, 3]
    fill(queue)
    grade(queue)
    queue.take(0.0)
    assert list(queue.needed_versions()) == [3]


def test_memory_holds_what_is_under_way_and_nothing_else() -> None:
    queue = RewardQueue(shape())
    for batches in (5, 200):
        run(queue, batches)
        queue.drain()
        stream = queue.stream
        assert queue.depth <= 4
        assert len(stream.graded) + len(stream.complete) + len(stream.draws) <= 2
        assert len(queue.grading._ready) <= 4


def test_a_rollout_that_fails_is_tried_again_in_its_slot() -> None:
    queue = RewardQueue(shape())
    first = queue.dispatch(0.0)
    other = queue.dispatch(0.0)
    assert queue.abandon(first, Missing(Reason.NO_RESPONSE, "engine died"), 1.0) is Outcome.MISSING
    assert queue.dispatch(1.0) == first
    assert queue.submit(other, *digests_of(other), 1.0) is Outcome.APPLIED
    assert queue.submit(first, *digests_of(first), 1.0) is Outcome.APPLIED
    assert queue.abandon(first, Missing(Reason.NO_RESPONSE), 1.0) is not Outcome.MISSING
