"""What the operator has seen of the cluster, and the view of one job that decisions are made on.

`observe` reads the stores that reflectors fill: cheap, and a moment old. `read` asks the server for
the job, its Workload and its pods, for decisions that would do harm on an outdated view.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from clusterops.api import names
from clusterops.core import observed as views
from clusterops.core import workload as workloads
from clusterops.core.observed import (
    FellowVictim,
    Flavor,
    HealthWord,
    Observed,
    Preemptor,
    TrainingJob,
    Workload,
)
from clusterops.core.observed_pods import Node, Pod
from clusterops.core.settings import Settings
from clusterops.kube.client import Client
from clusterops.kube.store import Key, Store
from clusterops.operator.heartbeats import HeartbeatTable
from clusterops.operator.ports import PortBook
from clusterops.operator.queues import Queues
from clusterops.scheduling.objects import ClusterQueue, Cohort, LocalQueue

_PREEMPTOR_UID = re.compile(r"\(UID: ([^,)\s]+)")


def preemptor_uid(workload: Workload) -> str:
    """The Workload that an evicted one must make room for, as Kueue's message names it."""
    if not workload.evicted:
        return ""
    preempted = workload.condition("Preempted")
    if preempted is None or not preempted.true:
        return ""
    found = _PREEMPTOR_UID.search(preempted.message)
    return found.group(1) if found else ""


def _one(value: str) -> list[Hashable]:
    return [value] if value else []


class Stores:
    """Projections of every kind that decisions read."""

    def __init__(self) -> None:
        self.jobs: Store[TrainingJob] = Store(
            {
                "uid": lambda job: _one(job.metadata.uid),
                "queue": lambda job: [(job.metadata.namespace, job.spec.queue_name)],
                "priority-class": lambda job: _one(job.spec.priority_class_name or ""),
                "live-port": _live_port,
            }
        )
        self.workloads: Store[Workload] = Store(
            {
                "owner": lambda workload: _one(workload.metadata.owner_uid),
                "uid": lambda workload: _one(workload.metadata.uid),
                "preemptor": lambda workload: _one(preemptor_uid(workload)),
            }
        )
        self.pods: Store[Pod] = Store(
            {
                "owner": lambda pod: _one(pod.metadata.owner_uid),
                "node": lambda pod: _one(pod.spec.node_name),
            }
        )
        self.nodes: Store[Node] = Store()
        self.flavors: Store[Flavor] = Store()
        self.priorities: Store[int] = Store()
        self.local_queues: Store[LocalQueue] = Store()
        self.cluster_queues: Store[ClusterQueue] = Store()
        self.cohorts: Store[Cohort] = Store()
        self.healths: Store[HealthWord] = Store()


class Observation:
    """Builds the view of a job from stores, heartbeats and, on demand, the server."""

    def __init__(
        self,
        stores: Stores,
        heartbeats: HeartbeatTable,
        ports: PortBook,
        settings: Settings,
        monotonic: Callable[[], float],
    ) -> None:
        self.stores = stores
        self._heartbeats = heartbeats
        self._ports = ports
        self._settings = settings
        self._monotonic = monotonic
        self._queues: Queues | None = None
        for store in (stores.local_queues, stores.cluster_queues, stores.cohorts):
            store.subscribe(self._queues_changed)

    def observe(self, job: TrainingJob) -> Observed:
        """The job's surroundings as the stores have them."""
        uid = job.metadata.uid
        owned = self.stores.workloads.by_index("owner", uid)
        name = workloads.workload_name(job)
        workload = next((found for found in owned if found.metadata.name == name), None)
        return self._assemble(job, workload, tuple(self.stores.pods.by_index("owner", uid)))

    async def read(self, client: Client, key: Key) -> tuple[TrainingJob, Observed] | None:
        """The job and its surroundings as the server has them now; None when it is gone.

        Pods are read last: what ends the others' meaning (a pod that still lives) is the newest.
        Raises KubeError.
        """
        namespace, name = key
        raw = await client.find(names.TRAINING_JOBS, namespace, name)
        if raw is None:
            return None
        job = views.training_job(raw)
        found = await client.find(names.WORKLOADS, namespace, workloads.workload_name(job))
        workload = views.workload(found) if found is not None else None
        if workload is not None and workload.metadata.owner_uid != job.metadata.uid:
            workload = None
        selector = f"{names.LABEL_JOB}={name}"
        listed, _ = await client.list(names.PODS, namespace, label_selector=selector)
        pods = tuple(views.pod(item) for item in listed)
        own = tuple(pod for pod in pods if pod.metadata.owner_uid == job.metadata.uid)
        return job, self._assemble(job, workload, own)

    def queues(self) -> Queues:
        """All queues as they are now."""
        if self._queues is None:
            self._queues = Queues(
                self.stores.local_queues.values(),
                self.stores.cluster_queues.values(),
                self.stores.cohorts.values(),
            )
        return self._queues

    def forget(self, key: Key, uid: str = "") -> None:
        """Drops what is remembered of a job that is gone or final."""
        self._ports.settle(key)
        if uid:
            self._heartbeats.forget(uid)

    def fellow_keys(self, workload: Workload | None) -> list[Key]:
        """The jobs that wait with this one for a common release."""
        uid = preemptor_uid(workload) if workload is not None else ""
        return self.job_keys(self.stores.workloads.by_index("preemptor", uid)) if uid else []

    def job_keys(self, owned: Iterable[Workload | Pod]) -> list[Key]:
        """The jobs that own the given objects."""
        keys: dict[Key, None] = {}
        for item in owned:
            keys.update(
                dict.fromkeys(self.stores.jobs.keys_by_index("uid", item.metadata.owner_uid))
            )
        return list(keys)

    def _assemble(
        self, job: TrainingJob, workload: Workload | None, pods: tuple[Pod, ...]
    ) -> Observed:
        uid, attempt = job.metadata.uid, job.status.attempt
        evicted_by = preemptor_uid(workload) if workload is not None else ""
        return Observed(
            workload=workload,
            pods=pods,
            nodes=self._nodes(pods),
            reports=self._heartbeats.reports(uid, attempt, self._monotonic()),
            steps_per_second=self._heartbeats.steps_per_second(uid, attempt),
            queue=self.queues().view(job),
            priority=self._priority(job),
            flavors=self._flavors(workload),
            preemptor=self._preemptor(evicted_by, uid),
            fellow_victims=self._fellows(evicted_by, uid),
            offered_port=self._port(job, workload),
            words=self._words(pods),
        )

    def _nodes(self, pods: tuple[Pod, ...]) -> Mapping[str, Node]:
        wanted = dict.fromkeys(pod.spec.node_name for pod in pods if pod.spec.node_name)
        found = {name: self.stores.nodes.get(("", name)) for name in wanted}
        return {name: node for name, node in found.items() if node is not None}

    def _words(self, pods: tuple[Pod, ...]) -> Mapping[str, HealthWord]:
        wanted = dict.fromkeys(pod.spec.node_name for pod in pods if pod.spec.node_name)
        found = {name: self.stores.healths.get(("", name)) for name in wanted}
        return {name: word for name, word in found.items() if word is not None}

    def _priority(self, job: TrainingJob) -> int | None:
        name = job.spec.priority_class_name
        return 0 if name is None else self.stores.priorities.get(("", name))

    def _flavors(self, workload: Workload | None) -> Mapping[str, Flavor]:
        admission = workload.status.admission if workload is not None else None
        if admission is None:
            return {}
        wanted = dict.fromkeys(
            name
            for assigned in admission.pod_set_assignments
            for name in (assigned.flavors or {}).values()
        )
        found = {name: self.stores.flavors.get(("", name)) for name in wanted}
        return {name: flavor for name, flavor in found.items() if flavor is not None}

    def _preemptor(self, uid: str, victim_uid: str) -> Preemptor | None:
        """Who evicted the job. It is gone only if the store has seen as far as the eviction."""
        if not uid:
            return None
        seen = self.stores.workloads.by_index("owner", victim_uid)
        if not any(preemptor_uid(workload) == uid for workload in seen):
            return Preemptor(uid)
        found = self.stores.workloads.by_index("uid", uid)
        if not found:
            return Preemptor(uid, waiting=False)
        workload = found[0]
        waiting = (
            workload.active
            and not workload.reserved
            and not workload.finished
            and not workload.metadata.deleting
        )
        owners = self.stores.jobs.by_index("uid", workload.metadata.owner_uid)
        named = (owners[0] if owners else workload).metadata
        return Preemptor(uid, f"{named.namespace}/{named.name}", waiting)

    def _fellows(self, evicted_by: str, own_uid: str) -> tuple[FellowVictim, ...]:
        if not evicted_by:
            return ()
        fellows: list[FellowVictim] = []
        for workload in self.stores.workloads.by_index("preemptor", evicted_by):
            owner = workload.metadata.owner_uid
            if owner == own_uid:
                continue
            owners = self.stores.jobs.by_index("uid", owner)
            fellows.extend(self._fellow(job, workload) for job in owners)
        return tuple(fellows)

    def _fellow(self, job: TrainingJob, workload: Workload) -> FellowVictim:
        alive = any(pod.alive for pod in self.stores.pods.by_index("owner", job.metadata.uid))
        deadline = job.status.grace_deadline or self._latest_deadline(job, workload)
        name = f"{job.metadata.namespace}/{job.metadata.name}"
        return FellowVictim(name, job.status.open_attempt is None and not alive, deadline)

    def _latest_deadline(self, job: TrainingJob, workload: Workload) -> datetime:
        """The deadline that the notice will have, for one that is not given yet."""
        evicted = workload.condition("Evicted")
        since = evicted.last_transition_time if evicted is not None else None
        if since is None:
            since = workload.metadata.creation_timestamp
        assert since is not None, "an API server sets creationTimestamp"
        grace = min(
            float(job.spec.checkpoint.grace_period_seconds), self._settings.longest_grace_seconds
        )
        return since + timedelta(seconds=grace)

    def _port(self, job: TrainingJob, workload: Workload | None) -> int | None:
        if self._settings.runtime != "processes":
            return None
        waits = job.status.open_attempt is None and not job.status.phase.final
        if not waits or workload is None or not workload.admitted:
            self._ports.settle(job.key)
            return None
        used = [int(str(port)) for port in self.stores.jobs.index_values("live-port")]
        return self._ports.offer(job.key, used)

    def _queues_changed(self, *change: Any) -> None:
        del change
        self._queues = None


def _live_port(job: TrainingJob) -> list[Hashable]:
    port = job.status.master_port
    return [port] if port is not None and job.status.open_attempt is not None else []
