"""Did you mean."""

import pytest

from clusterops.api.spelling import closest, edits, slip_of


@pytest.mark.parametrize(
    ("word", "other", "count"),
    [("abc", "abc", 0), ("abc", "abd", 1), ("abc", "acb", 1), ("abc", "ab", 1), ("ab", "xy", 2)],
)
def test_edits_are_counted(word: str, other: str, count: int) -> None:
    assert edits(word, other, 3) == count


def test_more_edits_than_asked_for_are_not_counted() -> None:
    assert edits("abcdef", "uvwxyz", 2) == 3
    assert edits("a", "abcdef", 2) == 3


def test_the_closest_word_is_found_whatever_its_case() -> None:
    assert closest("REPLICAS", ["queueName", "replicas"]) == "replicas"
    assert closest("xyz", ["queueName", "replicas"]) is None


def test_a_slip_is_told_from_a_new_word() -> None:
    known = ["restartPolicy", "volumeMounts", "env", "args"]
    assert slip_of("restartPolicy", known) is None
    assert slip_of("restartPolicyRules", known) is None
    assert slip_of("volumemounts", known) == "volumeMounts"
    assert slip_of("volumeMuonts", known) == "volumeMounts"
    assert slip_of("envs", known) == "env"
    assert slip_of("end", ["env"]) == "env"
    assert slip_of("tty", known) is None
