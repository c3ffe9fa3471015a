"""Progress of a job from the reports of its ranks, and what an attempt lost."""

import hashlib
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from clusterops.api.reasons import Cause
from clusterops.core.conditions import seconds_since, to_milliseconds
from clusterops.core.observed import Attempt, JobStatus, Observed, Progress, RankReport, TrainingJob
from clusterops.core.settings import Settings


def newest_durable(job: TrainingJob, reports: tuple[RankReport, ...]) -> int | None:
    """The newest step of this attempt's lineage that is known to be safely on disk.

    What an earlier attempt saved counts as far as this one went on from it: a job that began anew
    although a checkpoint existed has nothing saved.
    """
    known = job.status.progress.durable_step if job.status.progress is not None else None
    attempt = job.status.open_attempt
    if attempt is None:
        return known
    first = attempt.first_step
    if first is None and reports:
        first = min(report.step for report in reports)
    steps = [report.durable_step for report in reports if report.durable_step is not None]
    if attempt.durable_step is not None:
        steps.append(attempt.durable_step)
    if known is not None:
        steps.append(known if first is None else min(known, first))
    return max(steps, default=None)


def furthest_step(job: TrainingJob, reports: tuple[RankReport, ...]) -> int | None:
    """The last step that any rank of the current attempt completed, as far as is known.

    Status remembers what a restarted operator has not heard again.
    """
    attempt = job.status.open_attempt
    steps = [report.step for report in reports]
    if attempt is not None and attempt.last_step is not None:
        steps.append(attempt.last_step)
    return max(steps, default=None)


def saved(job: TrainingJob, reports: tuple[RankReport, ...]) -> bool:
    """True when nothing would be lost now: the newest checkpoint holds the last completed step.

    Silence acknowledges nothing: at least one rank must have reported to this operator.
    """
    furthest = furthest_step(job, reports)
    if not reports or furthest is None:
        return False
    return (newest_durable(job, reports) or 0) >= furthest


def observed_progress(job: TrainingJob, observed: Observed, now: datetime) -> Progress | None:
    """Progress with the newest reports folded in; the same value when they say nothing new."""
    before = job.status.progress
    reports = observed.reports
    if not reports:
        return before
    totals = [report.total_steps for report in reports if report.total_steps is not None]
    after = Progress(
        step=min(report.step for report in reports),
        total_steps=max(totals) if totals else (before.total_steps if before else None),
        durable_step=newest_durable(job, reports),
        steps_per_second=observed.steps_per_second
        if observed.steps_per_second is not None
        else (before.steps_per_second if before else None),
        updated_at=before.updated_at if before else None,
    )
    if before is not None and _steps(after) == _steps(before):
        return before
    return msgspec.structs.replace(after, updated_at=to_milliseconds(now))


class Milestones(NamedTuple):
    """What a status holds of its open attempt: a step done in it, one saved in it, its rate."""

    moved: bool
    saved: bool
    rated: bool

    @property
    def all_known(self) -> bool:
        """True when nothing is left that is worth a write of its own."""
        return all(self)


def milestones(status: JobStatus) -> Milestones:
    """What the status already says about its open attempt."""
    attempt, progress = status.open_attempt, status.progress
    if attempt is None or attempt.first_step is None or progress is None:
        return Milestones(False, False, False)
    moved = progress.step is not None and progress.step > attempt.first_step
    saved = attempt.durable_step is not None and attempt.durable_step > attempt.first_step
    return Milestones(moved, saved, moved and progress.steps_per_second is not None)


def is_news(before: JobStatus, after: JobStatus) -> bool:
    """True when `after` has the first step, the first save or the first rate of an attempt: people
    wait for these to see that all is well, and each comes but once.
    """
    pairs = zip(milestones(before), milestones(after), strict=True)
    return any(now and not was for was, now in pairs)


def seconds_until_look(job: TrainingJob, now: datetime, settings: Settings) -> float:
    """How long after a report of steps the job is to be looked at. While a milestone of the attempt
    is still to come that is soon, and later and later the longer it does not come.
    """
    due = seconds_until_due(job, now, settings)
    progress = job.status.progress
    if not milestones(job.status).all_known:
        due = min(due, seconds_since(progress.updated_at if progress else None, now))
    return max(1.0, due)


def seconds_until_due(job: TrainingJob, now: datetime, settings: Settings) -> float:
    """How long progress alone must still wait to be written; spread by the job's uid."""
    progress = job.status.progress
    if progress is None or progress.updated_at is None:
        return 0.0
    spread = hashlib.sha256(job.metadata.uid.encode()).digest()[0] / 255.0
    due = progress.updated_at + timedelta(seconds=settings.progress_seconds * (1.0 + 0.2 * spread))
    return max(0.0, (due - now).total_seconds())


def with_steps(attempt: Attempt, job: TrainingJob, reports: tuple[RankReport, ...]) -> Attempt:
    """The attempt with first, last and durable step as far as they are known."""
    if not reports:
        return attempt
    first = attempt.first_step
    return msgspec.structs.replace(
        attempt,
        first_step=min(report.step for report in reports) if first is None else first,
        last_step=furthest_step(job, reports),
        durable_step=newest_durable(job, reports),
    )


def with_losses(
    attempt: Attempt, gpus: int, now: datetime, rate: float | None, *, reports: bool = False
) -> Attempt:
    """The ended attempt with the work that must be done again.

    A completed one lost nothing, nor did one that never ran. One that reported steps lost those
    after its newest checkpoint. One that never reported is charged from its start: an unknown
    checkpoint counts as none. How many steps it lost is unknown, unless its job `reports` steps in
    other attempts: then it ended before its first one.
    """
    if attempt.cause is Cause.COMPLETED:
        return msgspec.structs.replace(attempt, lost_steps=0, lost_gpu_seconds=0.0)
    ran = seconds_since(attempt.started_at, now)
    if attempt.last_step is None:
        known = reports or attempt.started_at is None
        return msgspec.structs.replace(
            attempt,
            lost_steps=0 if known else None,
            lost_gpu_seconds=round(ran * gpus, 1),
        )
    lost = max(0, attempt.last_step - (attempt.durable_step or 0))
    own = attempt.last_step - (attempt.first_step or 0)
    if rate is None and own > 0 and ran > 0:
        rate = own / ran
    seconds = min(lost / rate, ran) if rate else (ran if lost else 0.0)
    return msgspec.structs.replace(
        attempt, lost_steps=lost, lost_gpu_seconds=round(seconds * gpus, 1)
    )


def _steps(progress: Progress) -> tuple[int | None, int | None, int | None]:
    return (progress.step, progress.total_steps, progress.durable_step)
