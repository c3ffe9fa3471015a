"""A job whose phase is final: free its quota, let go of its objects, delete it after its TTL."""

from clusterops.api import names
from clusterops.api.reasons import Phase
from clusterops.core import actions, status
from clusterops.core.conditions import seconds_since
from clusterops.core.view import View

_FINISHED_REASON = {Phase.SUCCEEDED: "Succeeded", Phase.FAILED: "Failed", Phase.CANCELLED: "Failed"}


def decide(view: View) -> list[actions.Action]:
    """What is left to do for a job that has ended."""
    job = view.job
    forgotten = view.forget_lost()
    if view.alive:
        grace = max(1, round(view.settings.short_grace_seconds))
        ending: list[actions.Action] = [
            actions.DeletePod(pod.name, pod.metadata.uid, grace, "its job has ended")
            for pod in view.alive
            if not pod.metadata.deleting
        ]
        recheck = view.until_node_lost() or view.settings.short_grace_seconds
        return [*forgotten, *ending, actions.Wake(recheck, "its last pods end")]
    steps = _let_go_of_workload(view)
    if job.metadata.deleting:
        return [*steps, actions.RemoveJobFinalizer()]
    return [*steps, *_outlived(view)]


def _let_go_of_workload(view: View) -> list[actions.Action]:
    workload = view.observed.workload
    if workload is None:
        return []
    steps: list[actions.Action] = []
    if not workload.finished and not workload.metadata.deleting:
        reason = _FINISHED_REASON[view.job.status.phase]
        steps.append(actions.FinishWorkload(reason, view.job.status.message))
    if names.FINALIZER_PODS_GONE in (workload.metadata.finalizers or ()):
        steps.append(actions.RemoveWorkloadFinalizer())
    return steps


def _outlived(view: View) -> list[actions.Action]:
    ttl = view.job.spec.ttl_seconds_after_finished
    if ttl is None:
        return []
    left = ttl - seconds_since(status.ended_at(view.job.status), view.now)
    if left <= 0:
        return [actions.DeleteJob()]
    return [actions.Wake(left + 0.05, "its ttlSecondsAfterFinished")]
