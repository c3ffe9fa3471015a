"""The controller of TrainingJobs: observe one, decide, apply; and which changes concern which job."""

import logging
from collections.abc import Callable

import msgspec

from clusterops.core.actions import needs_certainty
from clusterops.core.lifecycle import decide
from clusterops.core.observed import TrainingJob, Workload
from clusterops.core.observed_pods import Node, Pod
from clusterops.core.settings import Settings
from clusterops.kube.client import Client
from clusterops.kube.errors import BadRequest, Forbidden, Invalid
from clusterops.kube.store import Key
from clusterops.operator.actions import Applier
from clusterops.operator.batch import NameTaken
from clusterops.operator.clock import SteadyClock
from clusterops.operator.observation import Observation, preemptor_uid

log = logging.getLogger(__name__)

# Failing the same way again is all that a repetition of these would do.
_REFUSALS = (Forbidden, Invalid, BadRequest, NameTaken)
REFUSAL_RETRY_SECONDS = 60.0

Enqueue = Callable[[Key], None]


class TrainingJobs:
    """Reconciles one job at a time; keys are (namespace, name)."""

    def __init__(
        self,
        client: Client,
        observation: Observation,
        applier: Applier,
        settings: Settings,
        clock: SteadyClock,
        enqueue: Enqueue,
    ) -> None:
        self._client = client
        self._observation = observation
        self._applier = applier
        self._settings = settings
        self._clock = clock
        self._enqueue = enqueue

    async def reconcile(self, key: Key) -> float | None:
        """Brings one job a step further; returns when to look again without a change.

        A decision that starts pods, frees quota or follows from something being absent is taken
        once more on objects read at this moment: stores may be old, each in its own way.
        """
        job = self._observation.stores.jobs.get(key)
        if job is None:
            self._observation.forget(key)
            return None
        observed = self._observation.observe(job)
        decided = decide(job, observed, self._clock.now(), self._settings)
        if needs_certainty(decided):
            fresh = await self._observation.read(self._client, key)
            if fresh is None:
                return None
            job, observed = fresh
            decided = decide(job, observed, self._clock.now(), self._settings)
        if job.status.phase.final:
            self._observation.forget(key, job.metadata.uid)
        if decided:
            log.debug("%s/%s: %s", *key, decided)
        try:
            return await self._applier.apply(job, observed, decided, self._clock.now())
        except _REFUSALS as error:
            return await self._refused(key, str(error))

    async def _refused(self, key: Key, message: str) -> float:
        """The server will not have what the job needs: people must read that in its status.

        Decided and applied once more with the refusal in view. It is not remembered: the next
        reconcile tries again, in case somebody has mended the cause.
        """
        fresh = await self._observation.read(self._client, key)
        if fresh is not None:
            job, observed = fresh
            observed = msgspec.structs.replace(observed, refused=message)
            decided = decide(job, observed, self._clock.now(), self._settings)
            await self._applier.apply(job, observed, decided, self._clock.now())
        return REFUSAL_RETRY_SECONDS

    # Which changes concern which jobs

    def watch(self) -> None:
        """Has every change in the stores enqueue the jobs it may matter to."""
        stores = self._observation.stores
        stores.jobs.subscribe(self._job_changed)
        stores.workloads.subscribe(self._workload_changed)
        stores.pods.subscribe(self._pod_changed)
        stores.nodes.subscribe(self._node_changed)
        stores.local_queues.subscribe(self._local_queue_changed)
        stores.priorities.subscribe(self._priority_class_changed)
        stores.cluster_queues.subscribe(self._quota_changed)
        stores.cohorts.subscribe(self._quota_changed)

    def _job_changed(self, key: Key, before: TrainingJob | None, after: TrainingJob | None) -> None:
        if after is None and before is not None:
            self._observation.forget(key, before.metadata.uid)
        self._enqueue(key)
        if before is None or before.status.open_attempt is None:
            return
        if after is None or after.status.open_attempt is None:
            owned = self._observation.stores.workloads.by_index("owner", before.metadata.uid)
            for workload in owned:  # fellow victims waited for this one
                self._enqueue_all(self._observation.fellow_keys(workload))

    def _workload_changed(self, key: Key, before: Workload | None, after: Workload | None) -> None:
        del key
        changed = [item for item in (before, after) if item is not None]
        self._enqueue_all(self._observation.job_keys(changed))
        # Its victims: does it still need their quota?
        workloads = self._observation.stores.workloads
        for uid in dict.fromkeys(item.metadata.uid for item in changed):
            self._enqueue_all(self._observation.job_keys(workloads.by_index("preemptor", uid)))
        # Its fellow victims: a new one joins the barrier, or one has left it.
        for uid in dict.fromkeys(preemptor_uid(item) for item in changed):
            if uid:
                self._enqueue_all(self._observation.job_keys(workloads.by_index("preemptor", uid)))

    def _pod_changed(self, key: Key, before: Pod | None, after: Pod | None) -> None:
        del key
        changed = [item for item in (before, after) if item is not None]
        self._enqueue_all(self._observation.job_keys(changed))

    def _node_changed(self, key: Key, before: Node | None, after: Node | None) -> None:
        """Heartbeats of kubelets change nodes all the time; readiness and health rarely do."""
        if before is not None and after is not None:
            same = (before.unready_since, before.faulty) == (after.unready_since, after.faulty)
            if same:
                return
        pods = self._observation.stores.pods.by_index("node", key[1])
        self._enqueue_all(self._observation.job_keys(pods))

    def _local_queue_changed(self, key: Key, *change: object) -> None:
        del change
        self._enqueue_all(self._observation.stores.jobs.keys_by_index("queue", key))

    def _priority_class_changed(self, key: Key, *change: object) -> None:
        del change
        self._enqueue_all(self._observation.stores.jobs.keys_by_index("priority-class", key[1]))

    def _quota_changed(self, key: Key, *change: object) -> None:
        """A ClusterQueue or cohort changed: every job without an attempt may fit or not fit now."""
        del key, change
        for waiting, job in self._observation.stores.jobs.items():
            if job.status.open_attempt is None and not job.status.phase.final:
                self._enqueue(waiting)

    def _enqueue_all(self, keys: list[Key]) -> None:
        for key in keys:
            self._enqueue(key)
