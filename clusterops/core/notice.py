"""The window between the notice that quota is wanted and its release.

A notice is two facts in status: the open attempt's `cause`, and `graceDeadline`. From these, the
pods and the heartbeats follows what to do at any instant, also for an operator that was just
restarted: ask to save, TERM, KILL, or release together with the other victims.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from clusterops.api.heartbeat import SaveRequest
from clusterops.api.reasons import Cause, WaitReason
from clusterops.core.exits import left_as_asked
from clusterops.core.observed import Attempt, Observed, TrainingJob, Workload
from clusterops.core.observed_pods import Node
from clusterops.core.progress import saved
from clusterops.core.settings import Settings

# Ended by TERM at once: nothing is left that could be saved together.
_BROKEN = (Cause.USER_ERROR, Cause.START_FAILED, Cause.NODE_LOST)
# These notices may be taken back while the pods are untouched.
WITHDRAWABLE = (Cause.PREEMPTED, Cause.EVICTED, Cause.SUSPENDED, Cause.CANCELLED)

PREEMPTION_CANCELLED = "PreemptionCancelled"
EVICTION_CANCELLED = "EvictionCancelled"


class Plan(NamedTuple):
    """What the window asks for now. `terminate_grace` is the KILL delay in seconds for pods that
    are to get TERM now, None to leave them alone. `recheck_seconds` is when this may change.
    """

    reason: WaitReason
    terminate_grace: int | None
    recheck_seconds: float
    why: str


def window_seconds(job: TrainingJob, cause: Cause, observed: Observed, settings: Settings) -> float:
    """How long a job may take from the notice to its pods' end."""
    grace = min(float(job.spec.checkpoint.grace_period_seconds), settings.longest_grace_seconds)
    if not any(pod.alive for pod in observed.pods):
        return 0.0
    if cause in _BROKEN or job.spec.stop == "Now":
        return min(grace, settings.short_grace_seconds)
    if cause is Cause.NODE_FAULT:
        told = [node.notice_seconds for node in faulty_nodes(job, observed)]
        return min([grace, *(seconds for seconds in told if seconds is not None)])
    return grace


def faulty_nodes(job: TrainingJob, observed: Observed) -> tuple[Node, ...]:
    """The nodes of the job's current attempt that have a fault, by name."""
    found = [observed.nodes.get(name) for name in _used_nodes(job, observed)]
    return tuple(node for node in found if node is not None and node.faulty)


def blamed_nodes(job: TrainingJob, observed: Observed) -> tuple[str, ...]:
    """The nodes of the attempt whose fault explains a rank's failure: also those that the budgets
    still keep in use.
    """
    tainted = {node.metadata.name for node in faulty_nodes(job, observed)}
    used = _used_nodes(job, observed)
    told = {name for name in used if name in observed.words and observed.words[name].faulty}
    return tuple(sorted(tainted | told))


def _used_nodes(job: TrainingJob, observed: Observed) -> list[str]:
    return sorted(
        {
            pod.spec.node_name
            for pod in observed.pods
            if pod.attempt == job.status.attempt and pod.spec.node_name
        }
    )


def margin_seconds(window: float) -> float:
    """How long before the deadline a job that has not saved gets TERM all the same."""
    return min(15.0, window / 4.0)


def plan(
    job: TrainingJob, attempt: Attempt, observed: Observed, now: datetime, settings: Settings
) -> Plan:
    """What to do with the living pods of an attempt that is being ended."""
    deadline = job.status.grace_deadline or now
    left = (deadline - now).total_seconds()
    kill_after = max(1, round(left))
    broken = _broken(job, attempt, observed)
    if broken:
        return Plan(WaitReason.WAITING_FOR_PODS_TO_END, kill_after, max(left, 1.0), broken)
    if attempt.first_step is None and not observed.reports:
        return Plan(
            WaitReason.WAITING_FOR_PODS_TO_END,
            kill_after,
            max(left, 1.0),
            "it never sent a heartbeat, so TERM is the only notice it understands",
        )
    window = window_seconds(job, attempt.cause or Cause.EVICTED, observed, settings)
    until_term = left - margin_seconds(window)
    if saved(job, observed.reports):
        age = min((r.durable_age_seconds for r in observed.reports), default=0.0)
        leaving = settings.leave_seconds - age
        if leaving > 0 and until_term > 0:
            wait = min(leaving, until_term)
            return Plan(WaitReason.WAITING_FOR_PODS_TO_END, None, wait, "its save is durable")
        return Plan(
            WaitReason.WAITING_FOR_PODS_TO_END, kill_after, max(left, 1.0), "its save is durable"
        )
    if until_term > 0:
        return Plan(WaitReason.SAVING_BEFORE_RELEASE, None, until_term, "it may still be saving")
    return Plan(
        WaitReason.WAITING_FOR_PODS_TO_END,
        kill_after,
        max(left, 1.0),
        "the end of its window is near and it has not saved",
    )


def save_request(job: TrainingJob, now: datetime) -> SaveRequest | None:
    """What a rank of the current attempt is asked in the answer to its heartbeat."""
    attempt = job.status.open_attempt
    deadline = job.status.grace_deadline
    if attempt is None or attempt.cause is None or deadline is None:
        return None
    if attempt.cause in _BROKEN or job.spec.stop == "Now":
        return None
    if attempt.cause is Cause.NODE_FAULT and deadline <= now:
        return None  # what a fault may have spoilt is not saved
    return SaveRequest(
        id=f"{attempt.number}-{attempt.cause}-{int(deadline.timestamp() * 1000)}",
        reason=str(attempt.cause),
        remaining_seconds=max(0.0, (deadline - now).total_seconds()),
        then_exit=True,
    )


def withdrawn(job: TrainingJob, attempt: Attempt, observed: Observed) -> str:
    """Why the notice no longer holds, in words; empty while it does.

    Only a whole and untouched gang can go on: once a rank has left or got TERM it is too late.
    """
    if attempt.cause not in WITHDRAWABLE or not _untouched(job, observed):
        return ""
    workload = observed.workload
    if workload is None or workload.metadata.deleting or not workload.admitted:
        return ""
    if job.metadata.deleting or job.spec.stop is not None or job.spec.suspend:
        return ""
    if attempt.cause in (Cause.SUSPENDED, Cause.CANCELLED):
        return "its user took it back"
    if not workload.evicted:
        return "the queue took it back"
    preemptor = observed.preemptor
    if attempt.cause is Cause.PREEMPTED and preemptor is not None and not preemptor.waiting:
        return f"{preemptor.name or preemptor.uid} no longer needs the quota"
    return ""


def barrier(observed: Observed, now: datetime, settings: Settings) -> tuple[str, float]:
    """The fellow victims that are still waited for, in words, and seconds until that ends.

    Freed one by one the quota could be stolen before the preemptor has all of it. Each fellow is
    waited for until its own deadline and some slack.
    """
    if observed.preemptor is None or not observed.preemptor.waiting:
        return "", 0.0
    slack = timedelta(seconds=settings.barrier_slack_seconds)
    late = [f for f in observed.fellow_victims if not f.ready and now < f.deadline + slack]
    if not late:
        return "", 0.0
    names = ", ".join(sorted(fellow.name for fellow in late)[:5])
    last = max(fellow.deadline + slack for fellow in late)
    return f"waits for {names}", max(0.1, (last - now).total_seconds())


def _broken(job: TrainingJob, attempt: Attempt, observed: Observed) -> str:
    """Why the ranks cannot save together any more, in words; empty while they can."""
    if job.spec.stop == "Now":
        return "stop: Now"
    if attempt.cause in _BROKEN:
        return "its ranks cannot go on without the one that failed"
    own = [pod for pod in observed.pods if pod.attempt == attempt.number]
    if any(pod.status.phase == "Failed" and not left_as_asked(pod) for pod in own):
        return "a rank has failed"
    if any(pod.alive and pod.told_to_end for pod in own):
        return "a rank is being ended"
    if len({pod.rank for pod in own}) < gang_size(job, observed.workload):
        return "a rank is gone"
    return ""


def _untouched(job: TrainingJob, observed: Observed) -> bool:
    attempt = job.status.attempt
    own = [pod for pod in observed.pods if pod.attempt == attempt]
    whole = len(own) >= gang_size(job, observed.workload)
    return whole and all(pod.alive and not pod.told_to_end for pod in own)


def gang_size(job: TrainingJob, workload: Workload | None) -> int:
    """How many pods the attempt has: what was admitted, which may be fewer than asked for."""
    admission = workload.status.admission if workload is not None else None
    if admission is not None and admission.pod_set_assignments:
        return admission.pod_set_assignments[0].count or job.spec.replicas
    return job.spec.replicas
