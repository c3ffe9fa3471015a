"""A job's queue as its lifecycle sees it: does it exist, is it stopped, could it ever have so much."""

from collections.abc import Iterable, Mapping

from clusterops.core.observed import QueueView, TrainingJob
from clusterops.scheduling import quantities, quota
from clusterops.scheduling.objects import ClusterQueue, Cohort, FlavorResource, LocalQueue
from clusterops.scheduling.parse import pod_requests


class Queues:
    """All queues at one moment. Immutable; made anew when one of them changes."""

    def __init__(
        self,
        local_queues: Iterable[LocalQueue],
        cluster_queues: Iterable[ClusterQueue],
        cohorts: Iterable[Cohort],
    ) -> None:
        self._local = {(queue.namespace, queue.name): queue for queue in local_queues}
        self._cluster = {queue.name: queue for queue in cluster_queues}
        self._tree = quota.build(self._cluster.values(), cohorts)
        self._most: dict[str, dict[str, int]] = {}

    def view(self, job: TrainingJob) -> QueueView:
        """What the job needs to know of its queue."""
        name = job.spec.queue_name
        local = self._local.get((job.metadata.namespace, name))
        if local is None:
            missing = f"there is no LocalQueue {name} in namespace {job.metadata.namespace}"
            return QueueView(found=False, missing=missing)
        cluster = self._cluster.get(local.cluster_queue)
        if cluster is None:
            missing = f"LocalQueue {name} points to ClusterQueue {local.cluster_queue}, which does not exist"
            return QueueView(found=False, missing=missing)
        stopped = ""
        if local.stop != "None":
            stopped = f"LocalQueue {name} has stopPolicy {local.stop}"
        elif cluster.stop != "None":
            stopped = f"ClusterQueue {cluster.name} has stopPolicy {cluster.stop}"
        return QueueView(stopped=stopped, never_fits=self._never_fits(job, cluster))

    def _never_fits(self, job: TrainingJob, queue: ClusterQueue) -> str:
        """Which resource the queue can never have enough of; empty when it may fit one day."""
        pods = job.spec.min_replicas or job.spec.replicas
        try:
            requests = pod_requests(job.spec.template.get("spec") or {})
        except quantities.InvalidQuantity as wrong:
            return str(wrong)
        most = self._potential(queue)
        for resource, each in sorted(requests.items()):
            wanted = each * pods
            if wanted == 0:
                continue
            if resource not in most:
                # Resources that no group covers are not Kueue's to count, unless it knows GPUs only
                # by another name; then it refuses them itself and says so.
                continue
            if wanted > most[resource]:
                asked = quantities.show(resource, wanted)
                limit = quantities.show(resource, most[resource])
                return (
                    f"it asks for {asked} {resource}, ClusterQueue {queue.name} can have "
                    f"at most {limit}"
                )
        return ""

    def _potential(self, queue: ClusterQueue) -> Mapping[str, int]:
        """The most of each resource that the queue could get from any one flavor."""
        known = self._most.get(queue.name)
        if known is None:
            known = {}
            key = quota.queue_key(queue.name)
            for group in queue.groups:
                for resource in group.covered:
                    known[resource] = max(
                        (
                            self._tree.potential(key, FlavorResource(flavor, resource))
                            for flavor in group.flavors
                        ),
                        default=0,
                    )
            self._most[queue.name] = known
        return known
