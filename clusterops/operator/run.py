"""The operator as a process: reflectors, the controller, the endpoint, and the lease that guards them.

The endpoint answers from the first moment; until this process leads and knows all jobs it says 503.
Only the holder of the lease watches and writes, through a transport that refuses writes once the
lease may be another's.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from clusterops.api import names
from clusterops.core import observed as views
from clusterops.core.observed import TrainingJob
from clusterops.core.settings import Settings
from clusterops.core.transitions import Told
from clusterops.kube import connect
from clusterops.kube.client import Client
from clusterops.kube.controller import Controller, run_until
from clusterops.kube.events import EventRecorder
from clusterops.kube.lease import LeaderElection
from clusterops.kube.reflector import Reflector
from clusterops.kube.store import Key
from clusterops.kube.workqueue import QueueState, WorkQueue
from clusterops.operator import failpoints, tokens
from clusterops.operator import nodes_view as node_views
from clusterops.operator.actions import Applier
from clusterops.operator.batch import Identity
from clusterops.operator.clock import SteadyClock
from clusterops.operator.endpoint import Endpoint
from clusterops.operator.heartbeats import HeartbeatTable
from clusterops.operator.metrics import Metrics
from clusterops.operator.nodes import Nodes, RemediationConfig
from clusterops.operator.nodes_metrics import NodeMetrics
from clusterops.operator.observation import Observation, Stores
from clusterops.operator.ports import PortBook
from clusterops.operator.progress import ProgressFeed
from clusterops.operator.scraping import Scrapers
from clusterops.operator.serving import bind, refuse_open_plaintext, served
from clusterops.operator.training_jobs import TrainingJobs
from clusterops.scheduling import parse

log = logging.getLogger(__name__)

COMPONENT = "clusterops-operator"


@dataclass(frozen=True)
class OperatorConfig:
    """How to run the operator. Times are seconds."""

    kubeconfig: Path | None = None
    """None: as kubectl finds it, or the pod's service account."""
    runtime: Literal["containers", "processes"] | str = "containers"
    """`processes`: pods are process groups that share this machine's loopback."""
    endpoint_host: str = "127.0.0.1"
    endpoint_port: int = 8443
    """0 takes a free one; then running jobs do not find a restarted operator."""
    endpoint_url: str | None = None
    """As jobs see it; None: https://HOST:PORT of the listening socket."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    ca_file: Path | None = None
    """What jobs trust; given to them with their token."""
    key_file: Path | None = None
    """Secret of the tokens; created when missing. None: a new one each start."""
    identity: str = "operator"
    """Must differ between two live operators; one that is the same after a restart leads at once."""
    lease_namespace: str = "default"
    lease_name: str = "clusterops-operator"
    lease_seconds: float = 15.0
    workers: int = 8
    master_ports: tuple[int, int] = (29_400, 29_999)
    """Rendezvous ports for runtime `processes`, first and last."""
    settings: Settings = field(default_factory=Settings)
    """Runtime and agent URL in it are set from the fields above."""
    remediation: RemediationConfig = field(default_factory=RemediationConfig)
    """What is done about nodes with faults: as shipped, nothing is reset or rebooted."""

    def __post_init__(self) -> None:
        if self.runtime not in ("containers", "processes"):
            raise ValueError(f"runtime must be containers or processes, not {self.runtime!r}")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("a TLS certificate needs its key, and a key its certificate")


async def serve(config: OperatorConfig, stop: asyncio.Event) -> None:
    """Runs until `stop` is set. Raises ConfigError, CannotServe or ValueError for bad configuration."""
    refuse_open_plaintext(config.endpoint_host, config.tls_certificate)
    key = tokens.read_or_create_key(config.key_file)
    ca_pem = config.ca_file.read_bytes() if config.ca_file is not None else b""
    failpoint = failpoints.from_environment()
    connection = connect.load(config.kubeconfig)
    listener = bind(config.endpoint_host, config.endpoint_port)
    try:
        settings = _settings(config, listener.getsockname()[1])
        operator = Operator(config, settings, connection.client(), key, ca_pem, failpoint)
        async with served(operator.endpoint, listener, config.tls_certificate, config.tls_key):
            await operator.run(stop)
    finally:
        listener.close()
        await connection.close()


def _settings(config: OperatorConfig, port: int) -> Settings:
    scheme = "https" if config.tls_certificate is not None else "http"
    url = config.endpoint_url or f"{scheme}://{config.endpoint_host}:{port}"
    return msgspec.structs.replace(config.settings, runtime=config.runtime, agent_url=url)


class Operator:
    """Everything that works together, wired; `run` competes for the lease and works under it."""

    def __init__(
        self,
        config: OperatorConfig,
        settings: Settings,
        client: Client,
        key: bytes,
        ca_pem: bytes,
        failpoint: failpoints.Failpoint,
    ) -> None:
        self._config = config
        self._clock = SteadyClock()
        self._synced = False
        self._election = LeaderElection(
            client,
            namespace=config.lease_namespace,
            name=config.lease_name,
            identity=config.identity,
            lease_seconds=config.lease_seconds,
            renew_deadline_seconds=config.lease_seconds * 2 / 3,
            retry_seconds=config.lease_seconds * 2 / 15,
        )
        self._client = Client(self._election.fenced(client.transport))
        self.stores = Stores()
        self.heartbeats = HeartbeatTable()
        self._queue: WorkQueue[Key] = WorkQueue()
        ports = PortBook(*config.master_ports)
        observation = Observation(
            self.stores, self.heartbeats, ports, settings, self._clock.monotonic
        )
        self.metrics = Metrics(self.stores.jobs.values)
        self._recorder = EventRecorder(self._client, COMPONENT, instance=config.identity)
        identity = Identity(lambda uid, attempt: tokens.issue(key, uid, attempt), ca_pem)
        applier = Applier(self._client, identity, self._tell, failpoint=failpoint)
        self._jobs = TrainingJobs(
            self._client, observation, applier, settings, self._clock, self._enqueue
        )
        self._jobs.watch()
        self._node_queue: WorkQueue[Key] = WorkQueue()
        self._nodes = Nodes(
            self._client,
            config.remediation,
            lambda: self._clock.now().timestamp(),
            lambda key: self._node_queue.add(key),
            NodeMetrics(self.metrics.registry),
        )
        self._progress = ProgressFeed(self._enqueue, self._enqueue_after, settings, self._clock)
        self.stores.jobs.subscribe(self._job_changed)
        self.endpoint = Endpoint(
            key,
            self.stores.jobs,
            self.heartbeats,
            self._clock,
            self.metrics,
            self._progress.reported,
            lambda: self.leading,
            # Also while another leads, and so not through the fenced client.
            Scrapers(client, self._clock.monotonic).status,
        )
        self._add_gauges()

    @property
    def leading(self) -> bool:
        """True while this process holds the lease and knows all jobs."""
        return self._synced and self._election.is_leader

    def queue_state(self) -> QueueState:
        """How many jobs wait for a decision."""
        return self._queue.state()

    def look_at_all(self) -> None:
        """Has every job decided anew, as after a long absence."""
        for key in self.stores.jobs:
            self._queue.add(key)

    async def run(self, stop: asyncio.Event) -> None:
        """Competes, works while leading, and gives the lease back when `stop` is set."""
        competing = asyncio.create_task(
            self._election.run(lambda: self._lead(stop)), name="leader-election"
        )
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([competing, stopping], return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set() and self._election.is_leader:
                # The work ends by itself when it sees `stop`; then the lease is released.
                await asyncio.wait([competing], timeout=30.0)
            if competing.done():
                await competing
        finally:
            stopping.cancel()
            competing.cancel()
            await asyncio.gather(competing, stopping, return_exceptions=True)

    async def _lead(self, stop: asyncio.Event) -> None:
        # Everything anew for each term: what was seen before may be long outdated.
        self._queue, self._node_queue = WorkQueue(), WorkQueue()
        # One worker: what one node begins is in the budgets that the next one asks.
        nodes = Controller("nodes", self._node_queue, self._nodes.reconcile, workers=1)
        controller = Controller(
            "training-jobs", self._queue, self._reconcile, workers=self._config.workers
        )
        reflectors = self._reflectors()
        recording = asyncio.create_task(self._recorder.run(), name="events")
        announcing = asyncio.create_task(self._announce(reflectors), name="synced")
        try:
            await run_until(stop, reflectors=reflectors, controllers=[controller, nodes])
            await self._recorder.flush(2.0)
        finally:
            self._synced = False
            await self._nodes.close()
            for task in (recording, announcing):
                task.cancel()
            await asyncio.gather(recording, announcing, return_exceptions=True)

    async def _announce(self, reflectors: list[Reflector[Any]]) -> None:
        started = time.monotonic()
        for reflector in reflectors:
            await reflector.wait_synced(600.0)
        self._synced = True
        log.info(
            "leading with %d jobs after %.2f s", len(self.stores.jobs), time.monotonic() - started
        )

    async def _reconcile(self, key: Key) -> float | None:
        with self.metrics.reconcile_seconds.time():
            return await self._jobs.reconcile(key)

    def _reflectors(self) -> list[Reflector[Any]]:
        client, stores = self._client, self.stores
        return [
            Reflector(client, names.WORKLOAD_PRIORITY_CLASSES, stores.priorities, _priority_value),
            Reflector(client, names.RESOURCE_FLAVORS, stores.flavors, views.flavor),
            Reflector(client, names.COHORTS, stores.cohorts, parse.cohort),
            Reflector(client, names.CLUSTER_QUEUES, stores.cluster_queues, parse.cluster_queue),
            Reflector(client, names.LOCAL_QUEUES, stores.local_queues, parse.local_queue),
            Reflector(client, names.NODES, stores.nodes, views.node),
            Reflector(client, names.PODS, stores.pods, views.pod, label_selector=names.LABEL_JOB),
            Reflector(client, names.WORKLOADS, stores.workloads, views.workload),
            Reflector(client, names.TRAINING_JOBS, stores.jobs, views.training_job),
            Reflector(
                client,
                names.NODE_HEALTHS,
                self.stores.healths,
                node_views.word,
                self._health_changed,
            ),
        ]

    def _enqueue(self, key: Key) -> None:
        self._queue.add(key)

    def _health_changed(self, key: Key) -> None:
        """Signs of life of healthy nodes are most of the changes; at the start all are looked at."""
        word = self.stores.healths.get(key)
        if not self._synced or word is None or word.faulty or word.under_way:
            self._node_queue.add(key)

    def _enqueue_after(self, key: Key, seconds: float) -> None:
        self._queue.add_after(key, seconds)

    def _job_changed(self, key: Key, before: TrainingJob | None, after: TrainingJob | None) -> None:
        del key
        self.metrics.job_changed(before, after, self._clock.monotonic())
        if before is not None and (after is None or after.status.phase.final):
            self._progress.forget(before.metadata.uid)

    def _tell(self, job: TrainingJob, told: Told) -> None:
        self.metrics.told(told)
        metadata = {
            "namespace": job.metadata.namespace,
            "name": job.metadata.name,
            "uid": job.metadata.uid,
            "resourceVersion": job.metadata.resource_version,
        }
        about = {
            "apiVersion": names.TRAINING_JOBS.api_version,
            "kind": names.TRAINING_JOBS.kind,
            "metadata": metadata,
        }
        self._recorder.record(about, told.type, told.reason, told.message)

    def _add_gauges(self) -> None:
        gauge = self.metrics.gauge
        gauge("clusterops_operator_leading", "1 while this process leads.", lambda: self.leading)
        gauge(
            "clusterops_operator_queue_length",
            "Jobs that wait for a reconcile.",
            lambda: self._queue.state().ready,
        )
        gauge(
            "clusterops_operator_reporting_ranks",
            "Ranks whose heartbeats are known.",
            self.heartbeats.ranks,
        )
        gauge(
            "clusterops_operator_overdue_windows",
            "Jobs whose grace deadline has passed and that still hold GPUs: alarm when it stays.",
            self._overdue,
        )
        gauge(
            "clusterops_remediation_nodes",
            "Nodes that are out of use for a remediation.",
            lambda: len(self._nodes.under_way),
        )
        gauge(
            "clusterops_remediation_nodes_waiting",
            "Nodes with a fault whose remediation the budgets do not allow yet.",
            lambda: len(self._nodes.refused),
        )

    def _overdue(self) -> float:
        now = self._clock.now()
        deadlines = (job.status.grace_deadline for job in self.stores.jobs.values())
        return sum(1 for deadline in deadlines if deadline is not None and deadline < now)


def _priority_value(raw: dict[str, Any]) -> int:
    return int(raw.get("value") or 0)
