"""A job without an open attempt: into the queue, out of it, and the release of quota."""

from clusterops.api import names
from clusterops.api.reasons import Phase, WaitReason
from clusterops.core import actions, notice, status, waiting
from clusterops.core import workload as workloads
from clusterops.core.observed import JobStatus, Workload
from clusterops.core.view import View
from clusterops.core.waiting import Why

BACKING_OFF = "BackingOff"


def decide(view: View) -> list[actions.Action]:
    """The next step of a job that has no pods and should have none."""
    job = view.job
    if view.alive:
        return _end_strays(view)
    if job.metadata.deleting or job.spec.stop is not None:
        return view.write(status.cancelled(job, view.now))
    workload = view.observed.workload
    if workload is None:
        return _enter(view)
    if workload.metadata.deleting:
        why = Why(WaitReason.QUEUED, "its Workload was deleted and is made anew")
        return [*_wait(view, why), actions.RemoveWorkloadFinalizer()]
    if workload.finished:
        return [actions.RemoveWorkloadFinalizer(), actions.DeleteWorkload()]
    if workload.status.admission is not None:
        return _with_admission(view, workload)
    return _without_admission(view, workload)


def _end_strays(view: View) -> list[actions.Action]:
    """Pods of an attempt that is over, as when a node that was given up comes back."""
    grace = max(1, round(view.settings.short_grace_seconds))
    deletions = view.forget_lost() or [
        actions.DeletePod(pod.name, pod.metadata.uid, grace, "its attempt is over")
        for pod in view.alive
        if not pod.metadata.deleting
    ]
    stray = ", ".join(pod.name for pod in view.alive[:5])
    why = Why.of(WaitReason.WAITING_FOR_PODS_TO_END, stray)
    recheck = view.until_node_lost() or view.settings.short_grace_seconds
    return [*_wait(view, why), *deletions, actions.Wake(recheck, "stray pods end")]


def _enter(view: View) -> list[actions.Action]:
    job = view.job
    if job.spec.suspend:
        return view.write(_suspended(view))
    backoff = _backoff_left(view)
    if backoff > 0:
        why = Why(WaitReason.BACKING_OFF, WaitReason.BACKING_OFF.sentence)
        return [*_wait(view, why), actions.Wake(backoff, "its back-off")]
    blocked = waiting.before_queueing(job, view.observed)
    if blocked is not None:
        return _wait(view, blocked)
    if view.observed.refused:
        return _wait(view, Why.of(WaitReason.STUCK, view.observed.refused))
    assert view.observed.priority is not None, "before_queueing has checked it"
    body = workloads.desired_workload(job, view.observed.priority)
    why = Why.of(WaitReason.QUEUED)
    return [actions.CreateWorkload(body), *_wait(view, why)]


def _with_admission(view: View, workload: Workload) -> list[actions.Action]:
    job = view.job
    if workload.evicted:
        return _release(view, workload)
    if not workload.active:
        return [actions.Wake(5.0, "the queue's word on a deactivated Workload")]
    if job.spec.suspend:
        return [actions.EvictWorkload("Suspended", "suspended by its user")]
    if _backoff_left(view) > 0:
        # Somebody overwrote the hold; the release that follows sets it again.
        return [actions.EvictWorkload(BACKING_OFF, "admitted before its back-off was over")]
    if not workload.admitted:
        return _wait(view, waiting.in_queue(job, view.observed, workload, view.now))
    if view.settings.runtime == "processes" and view.observed.offered_port is None:
        why = Why.of(WaitReason.WAITING_FOR_PODS, "every rendezvous port is in use")
        return [*_wait(view, why), actions.Wake(1.0, "a free rendezvous port")]
    begun = status.begun(job, view.observed, view.now, view.settings)
    return [actions.WriteStatus(begun, certain=False)]


def _release(view: View, workload: Workload) -> list[actions.Action]:
    """Gives the quota back, together with all other victims of the same preemptor."""
    late, seconds = notice.barrier(view.observed, view.now, view.settings)
    if late:
        why = Why.of(WaitReason.WAITING_FOR_OTHER_VICTIMS, late)
        return [*_wait(view, why), actions.Wake(min(seconds, 1.0), "other victims")]
    steps: list[actions.Action] = []
    if workload.metadata.annotation(names.KUEUE_ANNOTATION_PRIORITY_BOOST):
        # Left on a waiting job it would preempt its peers.
        patch = {"metadata": {"annotations": {names.KUEUE_ANNOTATION_PRIORITY_BOOST: None}}}
        steps.append(actions.UpdateWorkload("its boost was for a running job", patch))
    hold = view.job.spec.suspend or _backoff_left(view) > 0
    past = workload.status.accumulated_past_execution_time_seconds or 0
    message = view.job.status.message or "its pods have ended"
    ran = max(0, int(view.job.status.ran_seconds) - past)
    return [*steps, actions.ReleaseQuota(hold, message, ran)]


def _without_admission(view: View, workload: Workload) -> list[actions.Action]:
    job = view.job
    if job.spec.suspend:
        steps = view.write(_suspended(view))
        if workload.active:
            steps.append(
                actions.UpdateWorkload("suspended by its user", {"spec": {"active": False}})
            )
        return steps
    steps = []
    if not workload.active and not waiting.deactivated_by_queue(workload):
        steps.append(actions.UpdateWorkload("resumed by its user", {"spec": {"active": True}}))
    if view.observed.priority is not None:
        patch = workloads.update_patch(job, workload, view.observed.priority)
        if patch:
            steps.append(actions.UpdateWorkload("the job's spec or class changed", patch))
    backoff = _backoff_left(view)
    if backoff > 0:
        steps += [*_hold(view, workload), actions.Wake(backoff, "its back-off")]
    elif workloads.wants_wake(view.observed):
        steps.append(actions.WakeWorkload())
    why = waiting.in_queue(job, view.observed, workload, view.now)
    return [*steps, *_wait(view, why)]


def _hold(view: View, workload: Workload) -> list[actions.Action]:
    reserved = workload.condition("QuotaReserved")
    if reserved is not None and reserved.reason == "OnHold":
        return []
    if view.observed.queue.stopped or not view.observed.queue.found:
        return []  # such a queue admits nothing, and writes its own reason over ours
    return [actions.HoldWorkload("waits before its next attempt")]


def _wait(view: View, why: Why) -> list[actions.Action]:
    phase = status.between_attempts(view.job)
    return view.write(status.waiting(view.job, phase, why, view.now))


def _suspended(view: View) -> JobStatus:
    why = Why(WaitReason.SUSPENDED, WaitReason.SUSPENDED.sentence)
    return status.waiting(view.job, Phase.SUSPENDED, why, view.now)


def _backoff_left(view: View) -> float:
    until = view.job.status.backoff_until
    return max(0.0, (until - view.now).total_seconds()) if until is not None else 0.0
