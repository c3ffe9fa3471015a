"""Durations as people type them."""

import pytest

from clusterops.cli.durations import seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172_800), ("45", 45), ("1.5h", 5400)],
)
def test_a_duration_is_its_seconds(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "10x", "-5m", "5m ago", "1h 30m", "10m30", "١m"])
def test_what_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        seconds_of(text)
