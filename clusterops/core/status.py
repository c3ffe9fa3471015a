"""The job's status as a value: each function returns the status that follows from one step.

Counting is exact because an attempt's end and the sums it enters are one write.
"""

from datetime import datetime

import msgspec

from clusterops.api.reasons import Cause, Phase, WaitReason
from clusterops.api.text import printable
from clusterops.core import exits, failure_policy, progress
from clusterops.core.actions import Action, DeletePod
from clusterops.core.conditions import seconds_since, to_milliseconds, with_condition
from clusterops.core.notice import faulty_nodes, gang_size, window_seconds
from clusterops.core.observed import Attempt, Counts, JobStatus, Observed, TrainingJob
from clusterops.core.settings import Settings
from clusterops.core.waiting import Why
from clusterops.core.workload import gpus_per_pod

_replace = msgspec.structs.replace
_FINAL_CONDITION = {
    Phase.SUCCEEDED: "Succeeded",
    Phase.FAILED: "Failed",
    Phase.CANCELLED: "Cancelled",
}


def waiting(job: TrainingJob, phase: Phase, why: Why, now: datetime) -> JobStatus:
    """Between attempts: nothing runs, and why."""
    status = _replace(
        job.status,
        phase=phase,
        reason=why.reason,
        message=why.message,
        gpus=job.spec.replicas * gpus_per_pod(job),
        grace_deadline=None,
    )
    return _conditions(job, status, admitted=False, running=False, now=now)


def between_attempts(job: TrainingJob) -> Phase:
    """Pending before the first attempt, Requeued after it."""
    return Phase.REQUEUED if job.status.attempt else Phase.PENDING


def begun(job: TrainingJob, observed: Observed, now: datetime, settings: Settings) -> JobStatus:
    """A new attempt: written before the first of its pods exists."""
    number = job.status.attempt + 1
    kept = job.status.attempts[-(settings.kept_attempts - 1) :]
    status = _replace(
        job.status,
        phase=Phase.ADMITTED,
        reason=WaitReason.WAITING_FOR_PODS,
        message=WaitReason.WAITING_FOR_PODS.sentence,
        gpus=gang_size(job, observed.workload) * gpus_per_pod(job),
        attempt=number,
        attempts=(*kept, Attempt(number)),
        attempt_begun_at=to_milliseconds(now),
        master_port=observed.offered_port if settings.runtime == "processes" else None,
        backoff_until=None,
        grace_deadline=None,
        counts=_one_more(job.status.counts),
    )
    return _conditions(job, status, admitted=True, running=False, now=now)


def under_way(
    job: TrainingJob, observed: Observed, phase: Phase, why: Why, now: datetime
) -> JobStatus:
    """The open attempt in one of its phases, with what its ranks reported folded in."""
    attempt = _open(job)
    attempt = progress.with_steps(attempt, job, observed.reports)
    problem = _problem(observed) if phase is Phase.RUNNING else ""
    if phase is Phase.RUNNING and attempt.started_at is None:
        own = sorted(
            (pod for pod in observed.pods if pod.attempt == attempt.number),
            key=lambda pod: pod.rank,
        )
        nodes = tuple(pod.spec.node_name for pod in own)
        attempt = _replace(
            attempt, started_at=to_milliseconds(now), nodes=nodes if all(nodes) else None
        )
    status = _replace(
        job.status,
        phase=phase,
        reason=why.reason,
        message="; ".join(filter(None, (why.message, problem))),
        progress=progress.observed_progress(job, observed, now),
        attempts=(*job.status.attempts[:-1], attempt),
    )
    running = phase in (Phase.RUNNING, Phase.CHECKPOINTING) and attempt.started_at is not None
    return _conditions(job, status, admitted=True, running=running, now=now)


def noticed(
    job: TrainingJob, observed: Observed, ending: exits.Ending, now: datetime, settings: Settings
) -> JobStatus:
    """The open attempt is to end: cause and deadline, durable before anybody is told."""
    window = window_seconds(job, ending.cause, observed, settings)
    deadline = now.timestamp() + window
    status = under_way(
        job,
        observed,
        Phase.CHECKPOINTING,
        Why.of(WaitReason.SAVING_BEFORE_RELEASE, ending.message),
        now,
    )
    attempt = _replace(status.attempts[-1], cause=ending.cause, message=ending.message)
    if ending.cause is Cause.NODE_FAULT:
        faulty = tuple(node.metadata.name for node in faulty_nodes(job, observed))
        attempt = _replace(attempt, faulty_nodes=faulty or None)
    return _replace(
        status,
        attempts=(*status.attempts[:-1], attempt),
        grace_deadline=to_milliseconds(datetime.fromtimestamp(deadline, tz=now.tzinfo)),
    )


def blamed_on_node(job: TrainingJob, deletions: list[Action]) -> JobStatus:
    """The open attempt ends for a lost node after all, not for an error of the user's."""
    whys = [deletion.why for deletion in deletions if isinstance(deletion, DeletePod)]
    attempt = _replace(_open(job), cause=Cause.NODE_LOST, message="; ".join(dict.fromkeys(whys)))
    return _replace(job.status, attempts=(*job.status.attempts[:-1], attempt))


def blamed_on_fault(job: TrainingJob, faulty: tuple[str, ...]) -> JobStatus:
    """The open attempt ends for a fault of its nodes after all, not for an error of the user's."""
    message = f"a rank failed and a fault was found on {', '.join(faulty)}"
    attempt = _replace(_open(job), cause=Cause.NODE_FAULT, message=message, faulty_nodes=faulty)
    return _replace(job.status, attempts=(*job.status.attempts[:-1], attempt))


def withdrawn(job: TrainingJob, observed: Observed, why: str, now: datetime) -> JobStatus:
    """The notice is taken back; the attempt goes on as if it had never been given."""
    attempt = _open(job)
    phase = Phase.RUNNING if attempt.started_at is not None else Phase.STARTING
    status = under_way(job, observed, phase, Why(WaitReason.NONE, f"goes on: {why}"), now)
    attempt = _replace(status.attempts[-1], cause=None, message=None)
    return _replace(
        status,
        attempts=(*status.attempts[:-1], attempt),
        grace_deadline=None,
        reprieved_attempt=attempt.number,
    )


def closed(
    job: TrainingJob, observed: Observed, ending: exits.Ending, now: datetime, settings: Settings
) -> JobStatus:
    """The open attempt has ended: its losses, the sums, and what comes next."""
    status = job.status
    attempt = progress.with_steps(_open(job), job, observed.reports)
    attempt = _replace(
        attempt, cause=ending.cause, message=ending.message, ended_at=to_milliseconds(now)
    )
    known = progress.observed_progress(job, observed, now)
    rate = known.steps_per_second if known is not None else None
    reports = known is not None and known.step is not None
    attempt = progress.with_losses(attempt, status.gpus, now, rate, reports=reports)
    counts = counted(status.counts, attempt)
    sequel = failure_policy.sequel(job, attempt, counts.user_errors, now, settings)
    reason: str = WaitReason.NONE
    if sequel.phase is Phase.FAILED:
        reason = ending.cause
    elif sequel.phase is Phase.CANCELLED:
        reason = Cause.CANCELLED
    elif sequel.phase is Phase.SUSPENDED:
        reason = WaitReason.SUSPENDED
    elif sequel.backoff_until is not None:
        reason = WaitReason.BACKING_OFF
    elif not sequel.phase.final:
        reason = WaitReason.WAITING_FOR_QUOTA
    status = _replace(
        status,
        phase=sequel.phase,
        reason=reason,
        message=sequel.message,
        progress=known,
        attempts=(*status.attempts[:-1], attempt),
        counts=counts,
        grace_deadline=None,
        master_port=None,
        backoff_until=sequel.backoff_until and to_milliseconds(sequel.backoff_until),
        ran_seconds=round(status.ran_seconds + seconds_since(attempt.started_at, now), 3),
    )
    return _conditions(job, status, admitted=False, running=False, now=now)


def cancelled(job: TrainingJob, now: datetime) -> JobStatus:
    """The end of a job that was cancelled while no attempt ran."""
    status = _replace(
        job.status,
        phase=Phase.CANCELLED,
        reason=Cause.CANCELLED,
        message=Cause.CANCELLED.sentence,
        grace_deadline=None,
        backoff_until=None,
    )
    return _conditions(job, status, admitted=False, running=False, now=now)


def _one_more(counts: Counts) -> Counts:
    """The sums when an attempt begins; before the first one nothing can have been lost."""
    lost = counts.lost_steps if counts.attempts else 0
    return _replace(counts, attempts=counts.attempts + 1, lost_steps=lost)


def counted(counts: Counts, attempt: Attempt) -> Counts:
    """The sums with one ended attempt. With one whose lost steps are unknown so is their sum."""
    cause = attempt.cause
    unknown = counts.lost_steps is None or attempt.lost_steps is None
    return _replace(
        counts,
        preemptions=counts.preemptions + (cause is Cause.PREEMPTED),
        faults=counts.faults + (cause in (Cause.NODE_FAULT, Cause.NODE_LOST)),
        user_errors=counts.user_errors + (cause is Cause.USER_ERROR),
        lost_steps=None if unknown else (counts.lost_steps or 0) + (attempt.lost_steps or 0),
        lost_gpu_seconds=round(counts.lost_gpu_seconds + (attempt.lost_gpu_seconds or 0.0), 1),
    )


def same_but_progress(before: JobStatus, after: JobStatus) -> bool:
    """True when only steps and rates differ, which are not worth a write of their own.

    The first report of an attempt is: it tells a restarted operator that the job sends heartbeats.
    So are its first step, save and rate: people wait for them.
    """
    if before == after:
        return True
    if progress.is_news(before, after):
        return False
    return _without_progress(before) == _without_progress(after)


def ended_at(status: JobStatus) -> datetime | None:
    """When the job became final."""
    kind = _FINAL_CONDITION.get(status.phase)
    found = status.condition(kind) if kind is not None else None
    return found.last_transition_time if found is not None else None


def _without_progress(status: JobStatus) -> JobStatus:
    attempts = status.attempts
    if attempts:
        attempts = (*attempts[:-1], _replace(attempts[-1], last_step=None, durable_step=None))
    return _replace(status, progress=None, attempts=attempts)


def _problem(observed: Observed) -> str:
    """What a rank says is wrong although it goes on; the first one's word, for all say much the same."""
    problem = next((each.problem for each in observed.reports if each.problem), "")
    return f"it trains on with a problem: {printable(problem)}" if problem else ""


def _open(job: TrainingJob) -> Attempt:
    attempt = job.status.open_attempt
    assert attempt is not None, "only called while an attempt is open"
    return attempt


def _conditions(
    job: TrainingJob, status: JobStatus, *, admitted: bool, running: bool, now: datetime
) -> JobStatus:
    generation = job.metadata.generation
    reason = str(status.reason) or str(status.phase)
    conditions = status.conditions
    for kind, true in (("Admitted", admitted), ("PodsReady", running)):
        conditions = with_condition(
            conditions,
            kind,
            true,
            kind if true else reason,
            "" if true else status.message,
            now,
            generation,
        )
    final = _FINAL_CONDITION.get(status.phase)
    if final is not None:
        conditions = with_condition(
            conditions, final, True, reason, status.message, now, generation
        )
    return _replace(status, conditions=conditions, observed_generation=generation)
