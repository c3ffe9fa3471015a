"""What is done, what is durable, what is lost."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from support.operator_builders import NOW, ago, job, report, running

from clusterops.api.reasons import Cause
from clusterops.core import progress, status
from clusterops.core.observed import Attempt, Counts, Observed, Progress
from clusterops.core.settings import Settings


def test_a_save_is_acknowledged_only_when_it_holds_the_last_step() -> None:
    of = job(running())
    assert progress.saved(of, (report(0, 10, 10), report(1, 10)))
    assert not progress.saved(of, (report(0, 10, 10), report(1, 11)))
    assert not progress.saved(of, (report(0, 10),))


def test_silence_acknowledges_nothing() -> None:
    of = job(running(progress=Progress(5, None, 5), last_step=5, durable_step=5))
    assert not progress.saved(of, ())


def test_a_job_that_began_anew_does_not_count_what_an_earlier_attempt_saved() -> None:
    fresh = job(running(progress=Progress(50, None, 50), first_step=0))
    assert progress.newest_durable(fresh, (report(0, 3),)) == 0
    resumed = job(running(progress=Progress(50, None, 50), first_step=50))
    assert progress.newest_durable(resumed, (report(0, 53),)) == 50


def test_an_attempt_loses_the_steps_after_its_newest_checkpoint() -> None:
    attempt = Attempt(
        1, ago(100), cause=Cause.PREEMPTED, first_step=0, last_step=80, durable_step=50
    )
    lost = progress.with_losses(attempt, 4, NOW, 1.0)
    assert lost.lost_steps == 30
    assert lost.lost_gpu_seconds == 30 * 4


def test_a_completed_attempt_loses_nothing_and_a_silent_one_everything() -> None:
    done = Attempt(1, ago(100), cause=Cause.COMPLETED, first_step=0, last_step=80)
    assert progress.with_losses(done, 4, NOW, 1.0).lost_steps == 0
    silent = progress.with_losses(Attempt(1, ago(100), cause=Cause.PREEMPTED), 4, NOW, None)
    assert silent.lost_gpu_seconds == 400


def test_how_many_steps_a_silent_attempt_lost_is_unknown_unless_its_job_reports_steps() -> None:
    silent = Attempt(1, ago(100), cause=Cause.EVICTED)
    assert progress.with_losses(silent, 4, NOW, None).lost_steps is None
    assert progress.with_losses(silent, 4, NOW, None, reports=True).lost_steps == 0
    never_ran = Attempt(1, cause=Cause.START_FAILED)
    assert progress.with_losses(never_ran, 4, NOW, None).lost_steps == 0


def test_a_sum_with_an_unknown_loss_stays_unknown() -> None:
    none_yet = Counts(attempts=1, lost_steps=0)
    seven = Attempt(1, ago(100), cause=Cause.EVICTED, lost_steps=7)
    assert status.counted(none_yet, seven).lost_steps == 7
    silent = Attempt(2, ago(50), cause=Cause.EVICTED, lost_gpu_seconds=200.0)
    unknown = status.counted(status.counted(none_yet, seven), silent)
    assert (unknown.lost_steps, unknown.lost_gpu_seconds) == (None, 200.0)
    assert status.counted(unknown, seven).lost_steps is None


@given(
    last=st.integers(0, 10**6),
    durable=st.none() | st.integers(0, 10**6),
    first=st.integers(0, 10**6),
    rate=st.none() | st.floats(1e-3, 1e4),
)
def test_losses_are_never_negative_nor_more_than_the_attempt(
    last: int, durable: int | None, first: int, rate: float | None
) -> None:
    attempt = Attempt(
        1, ago(100), cause=Cause.EVICTED, first_step=first, last_step=last, durable_step=durable
    )
    lost = progress.with_losses(attempt, 4, NOW, rate)
    assert lost.lost_steps is not None
    assert 0 <= lost.lost_steps <= last
    assert lost.lost_gpu_seconds is not None
    assert 0 <= lost.lost_gpu_seconds <= 400.1


def test_progress_is_the_slowest_rank_and_unchanged_reports_are_no_news() -> None:
    of = job(running())
    first = progress.observed_progress(of, Observed(reports=(report(0, 7, 5), report(1, 6))), NOW)
    assert first is not None
    assert (first.step, first.durable_step) == (6, 5)
    later = job(running(progress=first))
    same = progress.observed_progress(
        later, Observed(reports=(report(0, 7, 5), report(1, 6))), NOW + timedelta(seconds=9)
    )
    assert same is first


def test_progress_alone_is_due_once_a_minute_and_a_little_later_for_some() -> None:
    settings = Settings(progress_seconds=60)
    of = job(running(progress=Progress(1, updated_at=NOW)))
    assert 60 <= progress.seconds_until_due(of, NOW, settings) <= 72
    assert progress.seconds_until_due(of, NOW + timedelta(seconds=73), settings) == 0
    assert progress.seconds_until_due(job(running()), NOW, settings) == 0


def test_the_first_step_save_and_rate_of_an_attempt_are_news_and_later_ones_are_not() -> None:
    heard = running(first_step=50, last_step=50, durable_step=50, progress=Progress(50, None, 50))
    moved = running(first_step=50, last_step=51, durable_step=50, progress=Progress(51, None, 50))
    rated = running(
        first_step=50, last_step=52, durable_step=50, progress=Progress(52, 99, 50, 2.0)
    )
    saved = running(
        first_step=50, last_step=60, durable_step=60, progress=Progress(60, 99, 60, 2.0)
    )
    later = running(
        first_step=50, last_step=70, durable_step=70, progress=Progress(70, 99, 70, 2.1)
    )
    statuses = [heard, moved, rated, saved]
    for before, after in zip(statuses, [*statuses[1:], later], strict=True):
        assert progress.is_news(before, after) is (after is not later)
    assert not progress.is_news(saved, saved)


def test_what_is_awaited_of_an_attempt_is_looked_for_soon_and_then_more_rarely() -> None:
    settings = Settings(progress_seconds=60)
    of = job(running(first_step=0, progress=Progress(0, updated_at=NOW)))
    looks = [
        progress.seconds_until_look(of, NOW + timedelta(seconds=after), settings)
        for after in (0, 2, 4, 8)
    ]
    assert looks == [1, 2, 4, 8]
    known = running(first_step=0, durable_step=5, progress=Progress(5, 9, 5, 2.0, updated_at=NOW))
    assert progress.seconds_until_look(job(known), NOW, settings) >= 60
