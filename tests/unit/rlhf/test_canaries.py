"""Canaries: rewards known beforehand tell by how much a stream has slipped."""

import struct

import pytest

from rlhf.canaries import CanaryPlan, find_offsets

PLAN = CanaryPlan(seed=5, every=50)


def test_one_slot_in_every_window_is_a_canary_whose_place_the_seed_decides() -> None:
    found = PLAN.among(range(5000))
    assert len(found) == 100
    assert [seq // 50 for seq in found] == list(range(100))
    assert len({seq % 50 for seq in found}) > 20
    assert found != CanaryPlan(6, 50).among(range(5000))


def test_rewards_differ_and_survive_32_bits() -> None:
    rewards = list(PLAN.among(range(50 * 4096)).values())
    assert len(set(rewards)) == 4096
    assert all(struct.unpack("f", struct.pack("f", value))[0] == value for value in rewards)
    assert all(0.3125 <= value < 0.317 for value in rewards)


@pytest.mark.parametrize("shift", [0, 1, -3, 256])
def test_the_distance_of_a_shift_is_found_exactly(shift) -> None:
    expected = PLAN.among(range(2000))
    rewards = {seq: expected.get(seq, 1.0) for seq in range(2000)}
    received = {seq: rewards.get(seq - shift, 0.0) for seq in range(2000)}
    inner = {seq: value for seq, value in expected.items() if 300 <= seq < 1700}
    assert {each.offset for each in find_offsets(inner, received, 512)} == {shift}


def test_a_reward_that_is_nowhere_near_is_said_to_be_lost() -> None:
    expected = PLAN.among(range(100))
    (finding, *_) = find_offsets(expected, dict.fromkeys(range(100), 1.0), 50)
    assert (finding.offset, finding.received) == (None, 1.0)
