"""Redraws: the same slot, batch and policy version, another prompt and response, the whole group."""

import pytest
from support.rlhf_stream import digests_of, fill, grade, mispaired, reward_for, run, shape

from rlhf.identity import Score
from rlhf.journal_records import Failed, Redrawn
from rlhf.missing import Missing, Reason
from rlhf.reward_queue import RewardQueue
from rlhf.reward_queue_types import Outcome, RunFailure

REFUSED = Missing(Reason.REFUSED, "no")


def refuse(queue: RewardQueue, seq: int) -> None:
    """Answers all that waits; refuses one slot."""
    while (claim := queue.claim(0.0, "g")) is not None:
        one = claim.envelope
        queue.answer(one, REFUSED if one.seq == seq else reward_for(one), 0.0)


def test_a_redraw_keeps_slot_batch_and_policy_version() -> None:
    queue = RewardQueue(shape())
    run(queue, 2)
    before = {slot.seq: slot for slot in fill(queue)}
    refuse(queue, 13)
    again = fill(queue)
    assert [slot.seq for slot in again] == [12, 13], "the whole group, nobody else"
    assert [slot.draw for slot in again] == [1, 1]
    for slot in again:
        assert slot._replace(draw=0) == before[slot.seq]._replace(draw=0)
        assert digests_of(slot) != digests_of(before[slot.seq])
    grade(queue)
    queue.mark_trained(queue.take(0.0).number, 0.0)
    batch = queue.take(0.0)
    assert [each.envelope.seq for each in batch.samples] == [12, 13, 14, 15]
    assert [each.envelope.draw for each in batch.samples] == [1, 1, 0, 0]
    assert mispaired(batch) == []


def test_the_prompt_of_a_redraw_is_shared_by_its_group() -> None:
    queue = RewardQueue(shape())
    fill(queue)
    refuse(queue, 0)
    first, second = fill(queue)
    assert digests_of(first).prompt == digests_of(second).prompt


def test_what_was_under_way_for_the_draw_before_is_late() -> None:
    queue = RewardQueue(shape())
    slots = [queue.dispatch(0.0) for _ in range(4)]
    queue.submit(slots[0], *digests_of(slots[0]), 0.0)
    queue.submit(slots[2], *digests_of(slots[2]), 0.0)
    queue.submit(slots[3], *digests_of(slots[3]), 0.0)
    zero = queue.claim(0.0, "g").envelope
    queue.answer(zero, REFUSED, 0.0)
    # Slot 1, of the same group, was still being sampled: that response is of no use any more.
    assert queue.submit(slots[1], *digests_of(slots[1]), 0.0) is Outcome.LATE
    assert queue.answer(zero, Score(1.0), 0.0) is Outcome.LATE


def test_a_group_is_redrawn_also_where_it_was_not_yet_dispatched() -> None:
    queue = RewardQueue(shape(group_size=4))
    slot = queue.dispatch(0.0)
    queue.submit(slot, *digests_of(slot), 0.0)
    queue.answer(queue.claim(0.0, "g").envelope, REFUSED, 0.0)
    assert [(slot.seq, slot.draw) for slot in fill(queue)[:5]] == [
        (0, 1), (1, 1), (2, 1), (3, 1), (4, 0),
    ]  # fmt: skip


def test_a_graded_sibling_loses_its_reward_with_the_draw() -> None:
    queue = RewardQueue(shape())
    fill(queue)
    refuse(queue, 1)
    assert queue.stream.graded[0] == 2
    assert queue.take(0.0) is None


def test_a_redraw_is_journalled_with_its_reason() -> None:
    queue = RewardQueue(shape())
    fill(queue)
    refuse(queue, 2)
    (record,) = [each for each in queue.records if isinstance(each, Redrawn)]
    assert (record.group_id, record.draw, record.reason) == (1, 1, Reason.REFUSED)


def test_after_the_last_draw_the_run_fails_and_names_the_slot() -> None:
    queue = RewardQueue(shape(max_draws=2))
    fill(queue)
    refuse(queue, 3)
    fill(queue)
    assert queue.take(0.0) is None
    refuse(queue, 3)
    failure = queue.take(0.0)
    assert isinstance(failure, RunFailure)
    assert failure.sample == (3, 1)
    assert "s3/draw 1 of batch 0" in failure.why
    assert failure.why.endswith("Refused in the last of 2 draws: no"), "why, in the grader's words"
    assert [each.seq for each in queue.records if isinstance(each, Failed)] == [3]


@pytest.mark.parametrize("seq", [0, 5, 11])
def test_other_slots_are_those_of_the_undisturbed_run(seq) -> None:
    undisturbed = [each for batch in run(RewardQueue(shape()), 3) for each in batch.samples]
    queue, taken = RewardQueue(shape()), []
    refused = False
    while len(taken) < 12:
        fill(queue)
        refuse(queue, -1 if refused else seq)
        refused = refused or queue.counts.get("Redrawn", 0) > 0
        if (batch := queue.take(0.0)) is not None:
            taken += batch.samples
            queue.mark_trained(batch.number, 0.0)
    for ours, theirs in zip(taken, undisturbed, strict=True):
        same_group = ours.envelope.group_id == seq // 2
        assert (ours.envelope.draw == 1) == same_group
        assert ours.envelope.policy_version == theirs.envelope.policy_version
        if not same_group:
            assert ours.envelope.digests == theirs.envelope.digests
