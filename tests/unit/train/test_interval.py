"""When a save is due, by steps, by seconds and by cost."""

import pytest

from clusterops.train.interval import (
    FIRST_AFTER_SECONDS,
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    SaveInterval,
)


def test_by_steps_only_steps_count() -> None:
    interval = SaveInterval(every_steps=5)
    assert not interval.is_due(4, 1e9)
    assert interval.is_due(5, 0.0)


def test_by_seconds_only_seconds_count() -> None:
    interval = SaveInterval(every_seconds=30.0)
    assert not interval.is_due(1000, 29.9)
    assert interval.is_due(1, 30.0)


def test_the_first_save_comes_early_and_measures_the_cost() -> None:
    interval = SaveInterval()
    assert interval.is_due(1, FIRST_AFTER_SECONDS)
    interval.cost_seconds = 1.0
    assert not interval.is_due(1, FIRST_AFTER_SECONDS)


@pytest.mark.parametrize(
    ("cost", "seconds"),
    [(0.0, SHORTEST_SECONDS), (1.0, 207.8), (4.0, 415.7), (1000.0, LONGEST_SECONDS)],
)
def test_by_cost_the_interval_grows_with_its_square_root(cost: float, seconds: float) -> None:
    assert SaveInterval(cost_seconds=cost).seconds() == pytest.approx(seconds, abs=0.1)


def test_without_a_step_there_is_nothing_to_save() -> None:
    assert not SaveInterval(every_seconds=1.0).is_due(0, 100.0)
