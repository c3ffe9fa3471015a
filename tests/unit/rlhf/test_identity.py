"""Who a sample is: digests, envelopes, the shape of a stream."""

import struct
from hashlib import blake2b

import pytest
from support.rlhf_stream import shape

from rlhf.identity import (
    Envelope,
    Impossible,
    InvalidTokens,
    OrderDigest,
    SampleId,
    Score,
    digests,
    reserve_key,
    sampling_seed,
)


def test_equal_tokens_have_equal_digests_and_any_other_token_another() -> None:
    assert digests([1, 2], [3]) == digests((1, 2), (3,))
    different = [([1, 2], [4]), ([2, 1], [3]), ([1], [2, 3]), ([1, 2, 3], []), ([], [1, 2, 3])]
    assert len({digests(*each) for each in [([1, 2], [3]), *different]}) == 6


def test_a_prompt_is_not_confused_with_a_response_of_the_same_tokens() -> None:
    both = digests([7, 8], [7, 8])
    assert both.prompt != both.response


def test_digests_are_the_same_on_every_machine() -> None:
    """Token ids as little-endian 32-bit numbers, whatever the machine's own order."""
    prompt = blake2b(struct.pack("<3I", 1, 2, 3), digest_size=16, person=b"clusterops/p")
    response = blake2b(struct.pack("<2I", 50_000, 0), digest_size=16, person=b"clusterops/r")
    assert digests([1, 2, 3], [50_000, 0]) == (prompt.hexdigest(), response.hexdigest())


@pytest.mark.parametrize("ids", [[-1], [2**32], [1.5], ["a"], [None]])
def test_what_no_vocabulary_has_is_refused(ids) -> None:
    with pytest.raises(InvalidTokens):
        digests(ids, [1])


def test_an_envelope_does_not_change() -> None:
    envelope = Envelope("run", 1, 0, 0, 1, 0, "p", "r")
    with pytest.raises(AttributeError):
        envelope.seq = 2
    assert envelope.sample_id == SampleId(1, 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch_size": 6, "group_size": 4}, "no multiple"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"lag": -1}, "lag is -1"),
        ({"max_draws": 0}, "max_draws is 0"),
        ({"run_id": ""}, "run_id is empty"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(changes, words) -> None:
    with pytest.raises(Impossible, match=words):
        shape(**changes)


def test_a_batch_follows_from_the_number_and_its_version_from_the_batch() -> None:
    stream = shape(batch_size=8, group_size=4, lag=2)
    assert [stream.batch_of(seq) for seq in (0, 7, 8, 31)] == [0, 0, 1, 3]
    assert [stream.version_of(batch) for batch in range(5)] == [0, 0, 0, 1, 2]
    assert stream.capacity == 24


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), None, True, "1"])
def test_a_reward_that_is_no_finite_number_is_named(value) -> None:
    assert "not a finite number" in Score(value).fault()
    assert "part 'x'" in Score(0.0, {"x": value}).fault()


def test_streams_of_random_numbers_depend_on_seed_slot_and_draw_alone() -> None:
    numbers = [sampling_seed(*each) for each in [(1, 2, 0), (1, 2, 1), (1, 3, 0), (2, 2, 0)]]
    assert len({*numbers, reserve_key(1, 2, 0)}) == 5
    assert sampling_seed(1, 2, 0) == numbers[0]
    assert all(0 <= number < 2**63 for number in numbers)


def test_the_order_digest_sees_every_exchange() -> None:
    rows = [(0, 0, 0, "a", "b"), (1, 0, 0, "c", "d")]
    inside = OrderDigest().extend(rows)
    assert OrderDigest().extend(rows[::-1]) != inside
    assert OrderDigest().extend([(0, 0, 0, "a", "d"), (1, 0, 0, "c", "b")]) != inside
    assert OrderDigest(inside).extend(rows) != inside
