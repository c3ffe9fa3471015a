"""TERM for the pods of an attempt that ends: in place where that is possible, so that they stay."""

from clusterops.core import actions
from clusterops.core.conditions import seconds_since
from clusterops.core.observed_pods import Pod
from clusterops.core.view import View


def terminate(view: View, alive: list[Pod], grace: int, why: str) -> list[actions.Action]:
    """TERM for those that have not got it, in place where that is possible: a pod that stays can
    still be asked what it printed. Those that outlive their deadline all the same are deleted.
    """
    late = seconds_since(view.job.status.grace_deadline, view.now)
    steps: list[actions.Action] = []
    for pod in alive:
        name, uid = pod.name, pod.metadata.uid
        if not pod.told_to_end and _ends_in_place(view, pod, grace):
            steps.append(actions.EndPod(name, uid, grace, why))
        elif not pod.told_to_end or late > view.settings.stubborn_seconds:
            steps.append(actions.DeletePod(name, uid, grace, why))
    return steps


def _ends_in_place(view: View, pod: Pod, grace: int) -> bool:
    """Whether the pod's node can end it and give it as long as it is to have."""
    if not pod.spec.node_name:
        return False
    ours = view.settings.runtime == "processes"
    return ours or pod.spec.termination_grace_period_seconds >= grace
