"""A namespace of its own in a shared control plane: queue, quota, a claim, and nodes that run its pods.

Nodes are real node agents. Flavor and nodes carry a label of this tenant, so that tests which run at
the same time never meet on a node or in a queue.
"""

import contextlib
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from support import local_run
from support.controlplane import ControlPlane
from support.controlplane_product import AGENTS
from support.nodeagent_process import AgentProcess

from clusterops.api import names

Json = dict[str, Any]
T = TypeVar("T")
WAIT_SECONDS = 60.0
LABEL = "clusterops.io/tenant"
JOBS = "/apis/clusterops.io/v1alpha1/namespaces/{namespace}/trainingjobs"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


def eventually(found: Callable[[], T | None], what: str, seconds: float = WAIT_SECONDS) -> T:
    """Asks until there is something true, and returns it. An object that is not there is not true."""
    values: list[T] = []

    def true() -> bool:
        with contextlib.suppress(LookupError):
            if value := found():
                values.append(value)
        return bool(values)

    local_run.eventually(true, what, seconds)
    return values[0]


class Tenant:
    """One namespace with a ClusterQueue of its own. Close it to end its nodes."""

    def __init__(self, plane: ControlPlane, folder: Path, gpus: int = 4, **queue: Any) -> None:
        """`queue` replaces fields of the ClusterQueue's spec."""
        self.plane = plane
        self.folder = folder
        self.suffix = secrets.token_hex(4)
        self.namespace = f"tenant-{self.suffix}"
        self.cluster_queue = f"queue-{self.suffix}"
        self.flavor = f"flavor-{self.suffix}"
        self.agents: list[AgentProcess] = []
        self._queue(gpus, queue)
        self._claim()

    def close(self) -> None:
        """Ends nodes and what runs there, and everything in the namespace."""
        self.plane.request("DELETE", f"/api/v1/namespaces/{self.namespace}")
        for agent in self.agents:
            if agent.process is not None and agent.process.poll() is None:
                agent.stop()  # its pods end with it: their processes would outlive a kill
            self.plane.request("DELETE", f"/api/v1/nodes/{agent.node}")
        self.plane.request("DELETE", f"{KUEUE}/clusterqueues/{self.cluster_queue}")

    def __enter__(self) -> "Tenant":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What it consists of

    def _queue(self, gpus: int, queue: Json) -> None:
        plane = self.plane
        plane.send("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        flavor = {
            "nodeLabels": {LABEL: self.suffix},
            "tolerations": [{"key": names.TAINT_PROCESS_RUNTIME, "operator": "Exists"}],
        }
        self.kueue("ResourceFlavor", self.flavor, flavor)
        spec: Json = {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [self.group(gpus)],
            **queue,
        }
        self.kueue("ClusterQueue", self.cluster_queue, spec)
        self.kueue("LocalQueue", "queue", {"clusterQueue": self.cluster_queue}, self.namespace)

    def group(self, gpus: int) -> Json:
        """A resource group with so many GPUs of the tenant's flavor."""
        quota = {"name": names.RESOURCE_GPU, "nominalQuota": gpus}
        flavor = {"name": self.flavor, "resources": [quota]}
        return {"coveredResources": [names.RESOURCE_GPU], "flavors": [flavor]}

    def kueue(self, kind: str, name: str, spec: Json, namespace: str = "") -> Json:
        """Creates an object of Kueue's."""
        place = f"/namespaces/{namespace}" if namespace else ""
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata}
        return self.plane.send("POST", f"{KUEUE}{place}/{kind.lower()}s", {**body, "spec": spec})

    def _claim(self) -> None:
        """The claim `checkpoints`, bound to a volume that stands for the agents' own folders."""
        volume = f"volume-{self.suffix}"
        common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        spec = {
            **common,
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": str(self.folder)},
            "claimRef": {"namespace": self.namespace, "name": "checkpoints"},
        }
        body = {"metadata": {"name": volume}, "spec": spec}
        self.plane.send("POST", "/api/v1/persistentvolumes", body)
        claim = {
            **common,
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": volume,
        }
        path = f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims"
        self.plane.send("POST", path, {"metadata": {"name": "checkpoints"}, "spec": claim})

    def add_node(self, gpus: int = 4, **settings: Any) -> AgentProcess:
        """Starts a node agent for the tenant and waits until its node is there."""
        node = f"node-{self.suffix}-{len(self.agents)}"
        kubeconfig = self.plane.kubeconfig_of(f"agent:{node}", (AGENTS,))
        agent = AgentProcess(
            self.folder,
            kubeconfig,
            node,
            simulated_gpus=gpus,
            embedded=False,
            allow_root=True,
            end_pods_on_stop=True,
            stop_grace_seconds=1.0,
            allowed_namespaces=[self.namespace],
            labels={LABEL: self.suffix},
            **settings,
        )
        self.agents.append(agent.start())
        eventually(lambda: self._usable(node), f"{node} to be ready: {agent.log()}")
        return agent

    def _usable(self, node: str) -> bool:
        """Ready, and known as such to who would keep pods away."""
        found = self.plane.request("GET", f"/api/v1/nodes/{node}")
        taints = found.json["spec"].get("taints") or () if found.status == 200 else ()
        return [taint["key"] for taint in taints] == [names.TAINT_PROCESS_RUNTIME]

    # Jobs

    def path(self, name: str = "") -> str:
        """Of the tenant's TrainingJobs, or of one."""
        return JOBS.format(namespace=self.namespace) + (f"/{name}" if name else "")

    def submit(self, name: str, steps: int, priority: str = "low", **spec: Any) -> Json:
        """A counter of one pod: saves, resumes, and needs no torch."""
        step_seconds = str(spec.pop("step_seconds", 0.1))
        gpus = spec.pop("gpus", 4)
        container = {
            "name": "trainer",
            "image": "none",
            "command": ["python", "-m", "clusterops.train.examples.counter"],
            "args": ["--steps", str(steps), "--step-seconds", step_seconds],
            "resources": {"limits": {names.RESOURCE_GPU: gpus}},
            "volumeMounts": [{"name": "v", "mountPath": "/checkpoints"}],
        }
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": "checkpoints"}}
        template = {"spec": {"containers": [container], "volumes": [volume]}}
        body = {
            "apiVersion": names.TRAINING_JOBS.api_version,
            "kind": names.TRAINING_JOBS.kind,
            "metadata": {"name": name},
            "spec": {
                "queueName": "queue",
                "priorityClassName": priority,
                "template": template,
                "checkpoint": {"directory": f"/checkpoints/{name}", "gracePeriodSeconds": 30},
                **spec,
            },
        }
        return self.plane.send("POST", self.path(), body)

    def job(self, name: str) -> Json:
        """The job as it is now."""
        return self.plane.send("GET", self.path(name))

    def status(self, name: str) -> Json:
        """The status of the job, empty before it has one."""
        found: Json = self.job(name).get("status") or {}
        return found

    def until_phase(self, name: str, *phases: str, seconds: float = WAIT_SECONDS) -> Json:
        """Waits until the job is in one of the phases; its status then."""

        def reached() -> Json | None:
            status = self.status(name)
            return status if status.get("phase") in phases else None

        try:
            return eventually(reached, f"{name} to be {' or '.join(phases)}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {json.dumps(self.status(name))}") from None

    def until_saved(self, name: str) -> None:
        """Waits until the job's first checkpoint is durable: it trains."""
        folder = self.checkpoints(name)
        eventually(lambda: list(folder.glob("step_*")), f"{name} to have saved")

    def workload(self, job: str) -> Json:
        """The Workload of a job. Raises LookupError while there is none."""
        selector = f"labelSelector={names.LABEL_JOB}%3D{job}"
        path = f"{KUEUE}/namespaces/{self.namespace}/workloads?{selector}"
        found: Json = self.plane.send("GET", path)["items"][0]
        return found

    def pods(self, job: str) -> list[Json]:
        """The pods of a job."""
        selector = f"labelSelector={names.LABEL_JOB}%3D{job}"
        path = f"/api/v1/namespaces/{self.namespace}/pods?{selector}"
        found: list[Json] = self.plane.send("GET", path)["items"]
        return found

    def result(self, job: str) -> Json:
        """What a finished counter wrote."""
        found: Json = json.loads((self.checkpoints(job) / "result.json").read_text())
        return found

    def checkpoints(self, job: str) -> Path:
        """Where a counter saves."""
        return self.folder / "volumes" / self.namespace / "checkpoints" / job


def condition(obj: Json, kind: str) -> Json:
    """A condition of an object; empty when it has none of that type."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind), {})
