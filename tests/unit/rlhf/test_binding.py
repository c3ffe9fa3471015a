"""The check at the place of use: no reward for any tokens but its own."""

import random

import pytest
from support.rlhf_stream import fill, grade, reward_for, shape, tokens

from rlhf.binding import BindingError, BoundRewards
from rlhf.reward_queue import RewardQueue


@pytest.fixture
def rows() -> dict[int, tuple[list[int], list[int]]]:
    return {slot.seq: tokens(slot) for slot in fill(RewardQueue(shape()))[:4]}


@pytest.fixture
def rewards() -> BoundRewards:
    queue = RewardQueue(shape())
    fill(queue)
    grade(queue)
    return BoundRewards(queue.take(0.0))


def test_each_row_gets_its_own_reward_in_any_order_and_epoch(rewards, rows) -> None:
    for epoch in range(3):
        order = list(rows)
        random.Random(epoch).shuffle(order)
        for seq in order:
            graded = rewards.fetch(seq, *rows[seq])
            assert graded.score == reward_for(graded.envelope)


def test_a_row_that_carries_anothers_number_is_refused_with_both_paths(rewards, rows) -> None:
    with pytest.raises(BindingError) as refused:
        rewards.fetch(0, *rows[1], path=("sorted by length", "row 7"))
    error, text = refused.value, str(refused.value)
    assert error.seq == 0
    assert "tokens in the loss are those of s1" in text
    assert error.row.response in text
    assert error.reward.response in text
    assert "sorted by length -> row 7" in text
    assert "attempt 1 -> graded by grader in 0.000 s" in text
    assert "policy version 0" in text


def test_a_stream_shifted_by_one_is_refused_at_the_first_row(rewards, rows) -> None:
    for seq in (1, 2, 3):
        with pytest.raises(BindingError, match=f"those of s{seq - 1}"):
            rewards.fetch(seq, *rows[seq - 1])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda prompt, response: (prompt, response[:-1]),
        lambda prompt, response: (prompt, [*response, 0]),
        lambda prompt, response: (prompt, response[::-1]),
    ],
    ids=["cut", "padded", "reversed"],
)
def test_a_response_that_is_not_the_rewarded_one_is_refused(rewards, rows, spoil) -> None:
    with pytest.raises(BindingError, match="not the one that was rewarded"):
        rewards.fetch(0, *spoil(*rows[0]))


def test_tokens_of_no_sample_are_refused(rewards, rows) -> None:
    prompt, response = rows[0]
    with pytest.raises(BindingError, match="of no sample of this batch"):
        rewards.fetch(0, [*prompt, 5], response)


def test_a_number_of_another_batch_is_refused(rewards, rows) -> None:
    with pytest.raises(BindingError, match="batch 0 has no reward for it"):
        rewards.fetch(4, *rows[0])


def test_samples_that_no_row_asked_for_are_named(rewards, rows) -> None:
    for seq in (0, 2):
        rewards.fetch(seq, *rows[seq])
    assert rewards.unused() == [1, 3]


def test_a_batch_that_holds_a_slot_twice_is_refused(rewards) -> None:
    rewards.batch.samples[1] = rewards.batch.samples[0]
    with pytest.raises(ValueError, match="holds a slot twice"):
        BoundRewards(rewards.batch)
