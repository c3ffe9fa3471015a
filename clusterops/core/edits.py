"""What of a job was edited while an attempt runs, and so waits for the next one.

Pods and a reserved Workload keep what they were made with. What an edit does at once (priority,
suspend, stop, limits of time) is not told here.
"""

from collections.abc import Sequence

from clusterops.api import names
from clusterops.api.text import listed
from clusterops.core.notice import gang_size
from clusterops.core.observed import TrainingJob, Workload
from clusterops.core.observed_pods import Pod
from clusterops.core.workload import ANNOTATION_POD_SETS, gpus_per_pod, pod_sets_digest


def waiting_for_next_attempt(
    job: TrainingJob, workload: Workload | None, pods: Sequence[Pod]
) -> str:
    """One sentence that names the fields; empty when the attempt, whose pods these are, has all."""
    changed: list[str] = []
    if workload is not None and workload.reserved:
        if workload.spec.queue_name != job.spec.queue_name:
            changed.append(f"queueName (still in {workload.spec.queue_name})")
        made_with = workload.metadata.annotation(ANNOTATION_POD_SETS)
        if made_with and made_with != pod_sets_digest(job):
            changed += _of_pods(job, workload)
    if any(_saves_elsewhere(job, pod) for pod in pods):
        changed.append("checkpoint.directory")
    if not changed:
        return ""
    return f"edited since it began: {listed(changed, 'and')}; takes effect at the next attempt"


def _of_pods(job: TrainingJob, workload: Workload) -> list[str]:
    count = gang_size(job, workload)
    fields = []
    if job.spec.min_replicas is None and count != job.spec.replicas:
        fields.append(f"replicas (still {count})")
    if job.status.gpus != count * gpus_per_pod(job):
        fields.append(f"GPUs of a pod (still {job.status.gpus} in all)")
    return fields or ["replicas, minReplicas or the template"]


def _saves_elsewhere(job: TrainingJob, pod: Pod) -> bool:
    """Whether the pod was told another checkpoint directory; one made before pods bore it says no."""
    told = (pod.metadata.annotations or {}).get(names.ANNOTATION_CHECKPOINT_DIR)
    return told is not None and told != (job.spec.checkpoint.directory or "")
