"""When a heartbeat makes the operator look at its job."""

from datetime import timedelta
from typing import Any

from support.operator_builders import NOW, job, running

from clusterops.core.observed import JobStatus, Progress
from clusterops.core.settings import Settings
from clusterops.operator.heartbeats import News
from clusterops.operator.progress import ProgressFeed

STEP = News(first=False, durable=False, finished=False, step=True)
SAVED = News(first=False, durable=True, finished=False, step=True)


class _Clock:
    def monotonic(self) -> float:
        return 100.0

    def now(self) -> Any:
        return NOW + timedelta(seconds=1)


def looks(status: JobStatus, *news: News) -> list[float]:
    """Seconds after which the job is looked at, 0 = at once."""
    found: list[float] = []
    feed = ProgressFeed(
        lambda _: found.append(0.0),
        lambda _, seconds: found.append(seconds),
        Settings(progress_seconds=60),
        _Clock(),  # type: ignore[arg-type]
    )
    for each in news:
        feed.reported(job(status), each)
    return found


def test_the_first_step_of_an_attempt_is_looked_at_within_a_second_or_two() -> None:
    heard = running(first_step=0, progress=Progress(0, updated_at=NOW))
    assert looks(heard, STEP, STEP) == [1.0]


def test_the_first_save_of_an_attempt_is_looked_at_at_once_though_a_look_is_planted() -> None:
    unsaved = running(first_step=0, progress=Progress(5, 9, None, 2.0, updated_at=NOW))
    assert looks(unsaved, STEP, SAVED)[-1] == 0.0


def test_later_steps_and_saves_wait_for_their_minute() -> None:
    known = running(first_step=0, durable_step=5, progress=Progress(6, 9, 5, 2.0, updated_at=NOW))
    (look,) = looks(known, STEP, SAVED)
    assert look >= 59
