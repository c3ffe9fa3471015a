"""Histograms and the stopwatch."""

import random

import pytest

from rlhf.engine_stats import STAGES, Histogram, Stopwatch


def test_percentiles_are_right_within_a_bucket() -> None:
    chance = random.Random(0)
    values = [chance.lognormvariate(-6, 2) for _ in range(5000)]
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    summary = histogram.summary()
    values.sort()
    assert summary.times == 5000
    assert summary.total == pytest.approx(sum(values))
    assert summary.p50 == pytest.approx(values[2499], rel=0.13)
    assert summary.p99 == pytest.approx(values[4949], rel=0.13)
    assert summary.maximum == values[-1]


def test_nothing_and_zero_are_no_trouble() -> None:
    histogram = Histogram()
    assert histogram.summary() == (0, 0.0, 0.0, 0.0, 0.0)
    histogram.add(0.0)
    assert histogram.summary() == (1, 0.0, 0.0, 0.0, 0.0)


def test_a_stage_is_timed_also_when_it_fails() -> None:
    ticks = iter([1.0, 3.0, 10.0, 14.0])
    watch = Stopwatch(lambda: next(ticks))
    with watch.stage("forward"):
        pass
    with pytest.raises(RuntimeError), watch.stage("forward"):
        raise RuntimeError
    summaries = watch.summaries()
    assert list(summaries) == list(STAGES)
    assert (summaries["forward"].times, summaries["forward"].total) == (2, 6.0)
    assert summaries["draw"].times == 0
