"""A small cluster in virtual time: the operator's real code against a queue, nodes and training jobs
that behave as the real ones were measured to, and an API server in memory.

Everything random comes from one seed. The operator may be killed before or after any of its writes;
its view of each kind lags behind by its own amount. `Laws` are checked at every single write.
"""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from support.operator_laws import Laws, gpus_of, has_admission, holds_quota, is_pending, is_true
from support.operator_server import FakeClient, FakeServer
from support.operator_trainers import Trainer, TrainingProcesses, gets_term

from clusterops.api import names
from clusterops.core import observed as views
from clusterops.core.settings import Settings
from clusterops.kube.errors import Conflict, KubeError
from clusterops.operator import tokens
from clusterops.operator.actions import Applier
from clusterops.operator.batch import Identity
from clusterops.operator.endpoint import Endpoint
from clusterops.operator.heartbeats import HeartbeatTable
from clusterops.operator.metrics import Metrics
from clusterops.operator.observation import Observation, Stores
from clusterops.operator.ports import PortBook
from clusterops.operator.progress import ProgressFeed
from clusterops.operator.training_jobs import TrainingJobs
from clusterops.scheduling import parse

Json = dict[str, Any]
KEY = b"k" * 32
NAMESPACE = "research"
QUOTA = 8
SETTINGS = Settings(
    runtime="processes",
    agent_url="https://127.0.0.1:8443",
    node_lost_seconds=20.0,
    leave_seconds=3.0,
    start_failed_seconds=10.0,
)


class Crash(BaseException):
    """The operator was killed."""


class WorldClock:
    """Virtual time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 11, 30, 12, 0, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


class World(TrainingProcesses):
    """Everything, driven by `step`."""

    def __init__(self, seed: int, *, crash_rate: float = 0.0, failure_rate: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.clock = WorldClock()
        self.server = FakeServer(self.clock.now)
        self.laws = Laws(self.server)
        self.client = FakeClient(self.server, self.rng, failure_rate)
        self.crash_rate = crash_rate
        self.lag = True
        self.trainers: dict[tuple[str, int], Trainer] = {}
        self.durable: dict[str, int] = {}  # the checkpoint directories
        self.kill_at: dict[str, float] = {}  # uid of a pod that ends in place -> its KILL
        self.plans: dict[str, Json] = {}  # how each job's processes behave
        self.user_errors: dict[str, int] = {}
        self.crashes = 0
        self.closed_in: dict[
            tuple[str, int], int
        ] = {}  # attempt -> the operator's life that closed it
        self.server.on_change.append(self._note_closing)
        self.passages: list[str] = []
        self.crash_at: tuple[str, int] | None = None
        self._cluster()
        self.start_operator()

    def _cluster(self) -> None:
        server = self.server
        server.create("resourceflavors", {"metadata": {"name": "gpu"}, "spec": {}})
        quota = {"name": names.RESOURCE_GPU, "nominalQuota": QUOTA}
        group = {
            "coveredResources": [names.RESOURCE_GPU],
            "flavors": [{"name": "gpu", "resources": [quota]}],
        }
        server.create(
            "clusterqueues", {"metadata": {"name": "cq"}, "spec": {"resourceGroups": [group]}}
        )
        local = {"namespace": NAMESPACE, "name": "research"}
        server.create("localqueues", {"metadata": local, "spec": {"clusterQueue": "cq"}})
        for name, value in (("low", 100), ("high", 1000), ("urgent", 2000)):
            server.create("workloadpriorityclasses", {"metadata": {"name": name}, "value": value})
        for number in range(3):
            node = server.create("nodes", {"metadata": {"name": f"node-{number}"}, "spec": {}})
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": server.stamp()}
            server.replace_status("nodes", {**node, "status": {"conditions": [ready]}})

    def submit(
        self,
        name: str,
        *,
        replicas: int = 2,
        gpus: int = 2,
        priority: str = "low",
        total: int = 40,
        save_seconds: float = 1.0,
        obeys: bool = True,
        heartbeats: bool = True,
        fail_at: dict[int, int] | None = None,
        **spec: Any,
    ) -> None:
        """Creates a job. `fail_at`: attempt -> step at which a rank exits 1."""
        self.plans[name] = {
            "total": total,
            "save_seconds": save_seconds,
            "obeys": obeys,
            "heartbeats": heartbeats,
            "fail_at": fail_at or {},
        }
        container = {
            "name": "train",
            "image": "none",
            "command": ["train"],
            "resources": {"limits": {names.RESOURCE_GPU: gpus}},
        }
        self.server.create(
            "trainingjobs",
            {
                "apiVersion": names.TRAINING_JOBS.api_version,
                "kind": "TrainingJob",
                "metadata": {"namespace": NAMESPACE, "name": name},
                "spec": {
                    "queueName": "research",
                    "priorityClassName": priority,
                    "replicas": replicas,
                    "template": {"spec": {"containers": [container]}},
                    "checkpoint": {"directory": f"/checkpoints/{name}", "gracePeriodSeconds": 20},
                    **spec,
                },
            },
        )

    def edit(self, name: str, **spec: Any) -> None:
        self.server.patch("trainingjobs", NAMESPACE, name, {"spec": spec}, None)

    def delete(self, name: str) -> None:
        self.server.delete("trainingjobs", NAMESPACE, name, None, None)

    def job(self, name: str) -> views.TrainingJob | None:
        raw = self.server.find("trainingjobs", NAMESPACE, name)
        return None if raw is None else views.training_job(raw)

    def workload(self, name: str) -> Json | None:
        found = [
            w
            for w in self.server.all("workloads")
            if w["metadata"]["labels"][names.LABEL_JOB] == name
        ]
        return found[0] if found else None

    def _note_closing(self, plural: str, before: Json | None, after: Json | None) -> None:
        del before
        if plural != "trainingjobs" or after is None:
            return
        for attempt in after.get("status", {}).get("attempts", []):
            if attempt.get("endedAt"):
                key = (after["metadata"]["name"], attempt["number"])
                self.closed_in.setdefault(key, self.crashes)

    # The operator

    def start_operator(self) -> None:
        """A new process: empty memory, everything listed anew."""
        self.stores = Stores()
        self.heartbeats = HeartbeatTable()
        self.cursors = {plural: len(log) for plural, log in self.server.log.items()}
        self.dirty: dict[tuple[str, str], None] = {}
        self.timers: dict[tuple[str, str], float] = {}
        ports = PortBook(29_400, 29_409)
        observation = Observation(
            self.stores, self.heartbeats, ports, SETTINGS, self.clock.monotonic
        )
        identity = Identity(lambda uid, attempt: tokens.issue(KEY, uid, attempt), b"ca")
        applier = Applier(
            self.client,  # type: ignore[arg-type]
            identity,
            lambda *_: None,
            failpoint=self._failpoint,
            concurrency=1,
        )
        self.controller = TrainingJobs(
            self.client,  # type: ignore[arg-type]
            observation,
            applier,
            SETTINGS,
            self.clock,  # type: ignore[arg-type]
            self._enqueue,
        )
        feed = ProgressFeed(self._enqueue, self._enqueue_after, SETTINGS, self.clock)  # type: ignore[arg-type]
        self.endpoint = Endpoint(
            KEY,
            self.stores.jobs,
            self.heartbeats,
            self.clock,  # type: ignore[arg-type]
            Metrics(list),
            feed.reported,
            lambda: True,
            _nobody_scrapes,
        )
        self.controller.watch()
        for plural, objects in self.server.objects.items():
            for key, raw in objects.items():
                self._see(plural, key, raw)
        self.down_until = 0.0

    def _failpoint(self, passage: str) -> None:
        self.passages.append(passage)
        if self.crash_at is not None:
            if passage == self.crash_at[0]:
                left = self.crash_at[1] - 1
                self.crash_at = (passage, left) if left else None
                if not left:
                    raise Crash
        elif self.crash_rate and self.rng.random() < self.crash_rate:
            raise Crash

    def _enqueue(self, key: tuple[str, str]) -> None:
        self.dirty[key] = None

    def _enqueue_after(self, key: tuple[str, str], seconds: float) -> None:
        due = self.clock.seconds + seconds
        self.timers[key] = min(due, self.timers.get(key, due))

    def _see(self, plural: str, key: tuple[str, str], raw: Json | None) -> None:
        projections: dict[str, tuple[Any, Any]] = {
            "trainingjobs": (self.stores.jobs, views.training_job),
            "workloads": (self.stores.workloads, views.workload),
            "pods": (self.stores.pods, views.pod),
            "nodes": (self.stores.nodes, views.node),
            "resourceflavors": (self.stores.flavors, views.flavor),
            "clusterqueues": (self.stores.cluster_queues, parse.cluster_queue),
            "localqueues": (self.stores.local_queues, parse.local_queue),
            "workloadpriorityclasses": (self.stores.priorities, lambda raw: raw["value"]),
        }
        if plural not in projections:
            return
        store, project = projections[plural]
        if raw is None:
            store.remove(key)
        else:
            store.put(key, project(raw), raw["metadata"]["resourceVersion"])

    def _deliver(self) -> None:
        for plural, log in self.server.log.items():
            cursor = self.cursors.get(plural, 0)
            waiting = len(log) - cursor
            count = self.rng.randint(0, waiting) if self.lag else waiting
            for key, raw in log[cursor : cursor + count]:
                self._see(plural, key, raw)
            self.cursors[plural] = cursor + count

    async def _operate(self) -> None:
        if self.clock.seconds < self.down_until:
            return
        self._deliver()
        due = [key for key, at in self.timers.items() if at <= self.clock.seconds]
        for key in due:
            del self.timers[key]
            self.dirty[key] = None
        for key in list(self.dirty):
            del self.dirty[key]
            try:
                again = await self.controller.reconcile(key)
            except Crash:
                self.crashes += 1
                downtime = self.rng.choice([0.0, 0.5, 5.0])
                self.start_operator()
                self.down_until = self.clock.seconds + downtime
                return
            except Conflict:
                self._enqueue_after(key, 0.5)
            except KubeError:
                self._enqueue_after(key, 1.0)
            else:
                if again is not None:
                    self._enqueue_after(key, again)

    # The queue, as Kueue was measured to behave

    def _queue(self) -> None:
        for workload in self.server.peek("workloads"):
            if workload["spec"].get("active") is False and has_admission(workload):
                self._condition(workload, ("Evicted", True, "Deactivated", "deactivated"))
        held = [w for w in self.server.peek("workloads") if holds_quota(w)]
        free = QUOTA - sum(gpus_of(w) for w in held)
        pending = sorted(
            (w for w in self.server.peek("workloads") if is_pending(w)),
            key=lambda w: (
                -w["spec"]["priority"],
                w["metadata"]["creationTimestamp"],
                w["metadata"]["uid"],
            ),
        )
        if not pending:
            return
        head = pending[0]
        for candidate in pending:
            if gpus_of(candidate) <= free:
                self._admit(candidate)
                return
        victims, room = [], free
        for candidate in sorted(
            held, key=lambda w: (not is_true(w, "Evicted"), w["spec"]["priority"])
        ):
            if room >= gpus_of(head) or candidate["spec"]["priority"] >= head["spec"]["priority"]:
                break
            victims.append(candidate)
            room += gpus_of(candidate)
        if room < gpus_of(head):
            return
        for victim in victims:
            if not is_true(victim, "Evicted"):
                uid = head["metadata"]["uid"]
                job_uid = head["metadata"]["labels"][names.KUEUE_LABEL_JOB_UID]
                why = (
                    f"Preempted to accommodate a workload (UID: {uid}, JobUID: {job_uid}) due to "
                    "prioritization in the ClusterQueue; preemptor path: /cq; preemptee path: /cq"
                )
                self._condition(
                    victim,
                    ("Evicted", True, "Preempted", why),
                    ("Preempted", True, "InClusterQueue", why),
                )

    def _admit(self, workload: Json) -> None:
        assignment = {
            "name": "main",
            "flavors": {names.RESOURCE_GPU: "gpu"},
            "count": workload["spec"]["podSets"][0]["count"],
        }
        admission = {"clusterQueue": "cq", "podSetAssignments": [assignment]}
        workload = {**workload, "status": {**workload.get("status", {}), "admission": admission}}
        changes = [
            ("QuotaReserved", True, "QuotaReserved", "Quota reserved"),
            ("Admitted", True, "Admitted", "Admitted"),
        ]
        changes += [(kind, False, "Admitted", "Previously") for kind in ("Evicted", "Preempted")]
        self._condition(workload, *changes)

    def _condition(self, workload: Json, *changes: tuple[str, bool, str, str]) -> None:
        current = self.server.find(
            "workloads", workload["metadata"]["namespace"], workload["metadata"]["name"]
        )
        assert current is not None
        status = dict(current.get("status", {}))
        if "admission" in workload.get("status", {}):
            status["admission"] = workload["status"]["admission"]
        conditions = status.setdefault("conditions", [])
        for kind, true, reason, message in changes:
            found = next((c for c in conditions if c["type"] == kind), None)
            if found is None:
                if not true:
                    continue
                found = {"type": kind}
                conditions.append(found)
            value = "True" if true else "False"
            if found.get("status") != value:
                found["lastTransitionTime"] = self.server.stamp()
            found.update(status=value, reason=reason, message=message)
        self.server.replace_status("workloads", {**current, "status": status})

    # Nodes and processes

    def _nodes(self) -> None:
        for pod in self.server.all("pods"):
            metadata = pod["metadata"]
            namespace, name = metadata["namespace"], metadata["name"]
            if not pod["spec"].get("nodeName"):
                if self._ready_nodes():
                    pod["spec"]["nodeName"] = self.rng.choice(self._ready_nodes())
                    patch = {"spec": {"nodeName": pod["spec"]["nodeName"]}}
                    self.server.patch("pods", namespace, name, patch, None)
                continue
            if pod["spec"]["nodeName"] not in self._ready_nodes():
                continue
            if "killAt" in pod and pod["killAt"] <= self.clock.seconds + _EPOCH:
                self.server.remove("pods", namespace, name)
                continue
            if self._outlives_its_window(pod):
                self._pod_status(pod, "Failed", 137)
                continue
            pending = pod.get("status", {}).get("phase", "Pending") == "Pending"
            if pending and self.rng.random() < 0.7:
                self._pod_status(pod, "Running", None)

    def _outlives_its_window(self, pod: Json) -> bool:
        """Whether a pod that ends in place is due for its KILL."""
        within = pod["metadata"].get("annotations", {}).get(names.ANNOTATION_ENDS_WITHIN)
        if within is None or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return False
        due = self.clock.seconds + float(within)
        return self.kill_at.setdefault(pod["metadata"]["uid"], due) <= self.clock.seconds

    def _ready_nodes(self) -> list[str]:
        return [
            node["metadata"]["name"]
            for node in self.server.peek("nodes")
            if any(
                c["type"] == "Ready" and c["status"] == "True"
                for c in node.get("status", {}).get("conditions", [])
            )
        ]

    def node_ready(self, name: str, ready: bool) -> None:
        node = self.server.get("nodes", "", name)
        condition = {
            "type": "Ready",
            "status": "True" if ready else "Unknown",
            "lastTransitionTime": self.server.stamp(),
        }
        self.server.replace_status("nodes", {**node, "status": {"conditions": [condition]}})

    def _pod_status(self, pod: Json, phase: str, exit_code: int | None) -> None:
        current = self.server.find("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
        if current is None:
            return
        if exit_code is not None and "deletionTimestamp" in current["metadata"]:
            self.server.remove("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
            return
        status: Json = {"phase": phase}
        if exit_code is not None and gets_term(current):
            status = {"phase": "Failed", "reason": "DeadlineExceeded"}  # whatever its exit code
        if exit_code is not None:
            terminated = {"exitCode": exit_code, "finishedAt": self.server.stamp()}
            status["containerStatuses"] = [{"name": "train", "state": {"terminated": terminated}}]
        self.server.replace_status("pods", {**current, "status": status})

    # Time

    async def step(self, seconds: float = 0.5) -> None:
        """One instant of everything, in a random order."""
        self.clock.seconds += seconds
        parts = ["queue", "nodes", "train", "operate", "operate"]
        self.rng.shuffle(parts)
        for part in parts:
            if part == "operate":
                await self._operate()
            else:
                getattr(self, f"_{part}")()

    async def run(self, seconds: float) -> None:
        until = self.clock.seconds + seconds
        while self.clock.seconds < until:
            await self.step()

    async def until_final(self, *jobs: str, within: float) -> None:
        """Steps until all jobs are final or gone; fails with their statuses otherwise."""
        deadline = self.clock.seconds + within
        while self.clock.seconds < deadline:
            await self.step()
            found = [self.job(name) for name in jobs]
            if all(job is None or job.status.phase.final for job in found):
                return
        stuck = {
            job.metadata.name: (job.status.phase, job.status.reason, job.status.message)
            for job in map(self.job, jobs)
            if job is not None and not job.status.phase.final
        }
        raise AssertionError(f"not final after {within} s: {stuck}")


async def _nobody_scrapes(token: str) -> int:
    del token
    return 401


_EPOCH = datetime(2026, 11, 30, 12, 0, tzinfo=UTC).timestamp()
