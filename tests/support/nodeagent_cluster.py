"""An API server in memory that deletes pods the way Kubernetes does, and pods to give to it."""

import asyncio
import copy
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.kube_cluster import (
    Answer,
    FakeCluster,
    FakeTransport,
    merged,
    parse_path,
    status_answer,
)

from clusterops.kube.client import Client, RetryPolicy
from clusterops.nodeagent import gpus
from clusterops.nodeagent.config import NodeAgentConfig
from clusterops.nodeagent.run import Agent

NODE = "node-a"
NAMESPACE = "research"


class PodCluster(FakeCluster):
    """Adds graceful deletion with preconditions; objects of one node are told by the caller."""

    def handle(
        self, method: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> Answer:
        plural, namespace, name, _ = parse_path(path)
        if method == "DELETE" and plural == "pods" and name is not None:
            return self._delete_pod(namespace or "", name, json.loads(body) if body else {})
        return super().handle(method, path, query, body)

    def _change(
        self, method: str, obj: dict[str, Any], plural: str, subresource: Any, body: dict[str, Any]
    ) -> Answer:
        """Merges metadata too, which the base class leaves alone."""
        answer = super()._change(method, obj, plural, subresource, body)
        labels = (body.get("metadata") or {}).get("labels")
        if answer.status != 200 or subresource or not labels:
            return answer
        metadata = answer.body["metadata"]
        metadata = {**metadata, "labels": merged(metadata.get("labels"), labels)}
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        return Answer(200, self.put(plural, namespace, name, metadata=metadata))

    def _delete_pod(self, namespace: str, name: str, options: dict[str, Any]) -> Answer:
        self.writes.append(("DELETE", name))
        pod = self.objects.get(("pods", namespace, name))
        if pod is None:
            return status_answer(404, "NotFound")
        uid = (options.get("preconditions") or {}).get("uid")
        if uid and uid != pod["metadata"]["uid"]:
            return status_answer(409, "Conflict", "uid differs")
        grace = options.get("gracePeriodSeconds")
        self.delete_pod(name, grace, namespace=namespace)
        return Answer(200, {"kind": "Status", "status": "Success"})

    def delete_pod(self, name: str, grace: int | None = None, namespace: str = NAMESPACE) -> None:
        pod = self.objects["pods", namespace, name]
        if grace is None:
            grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
        if grace == 0:
            self.remove("pods", namespace, name)
            return
        before = pod["metadata"].get("deletionGracePeriodSeconds")
        metadata = {
            **pod["metadata"],
            "deletionTimestamp": pod["metadata"].get("deletionTimestamp", "2026-01-01T00:00:00Z"),
            "deletionGracePeriodSeconds": grace if before is None else min(before, grace),
        }
        self.put("pods", namespace, name, metadata=metadata)

    def pod(self, name: str) -> dict[str, Any] | None:
        found = self.objects.get(("pods", NAMESPACE, name))
        return copy.deepcopy(found)

    def create_pod(self, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
        fields = {"uid": f"{name}-uid-{self.version}", "namespace": NAMESPACE, **metadata}
        return self.put("pods", NAMESPACE, name, metadata=fields, spec={"nodeName": NODE, **spec})


def shell(script: str, name: str = "main", **fields: Any) -> dict[str, Any]:
    """A container that runs a shell script."""
    return {"name": name, "image": "none", "command": ["sh", "-c", script], **fields}


def python(script: str, name: str = "main", **fields: Any) -> dict[str, Any]:
    """A container that runs a Python script."""
    command = [sys.executable, "-c", script]
    return {"name": name, "image": "none", "command": command, **fields}


def pod_spec(*containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "containers": list(containers),
        **fields,
    }


def agent_config(folder: Path, **changes: Any) -> NodeAgentConfig:
    settings: dict[str, Any] = {
        "kubeconfig": None,
        "node_name": NODE,
        "state_dir": folder / "node",
        "pod_logs_dir": folder / "pod-logs",
        "volumes_dir": folder / "volumes",
        "simulated_gpus": 4,
    }
    return NodeAgentConfig(**{**settings, **changes})


@asynccontextmanager
async def running_agent(
    config: NodeAgentConfig, transport: FakeTransport
) -> AsyncIterator[asyncio.Event]:
    """An agent in this process; leaving stops it as `serve` would. Yields the stop event."""
    stop = asyncio.Event()
    # An unreachable server is asked again soon: the tests wait for it.
    client = Client(transport, retry=RetryPolicy(attempts=1, unreachable_attempts=1))
    agent = Agent(config, client, gpus.simulated(config.simulated_gpus or 0))
    task = asyncio.create_task(agent.run(stop))
    try:
        yield stop
    finally:
        stop.set()
        await task


async def eventually(
    condition: Callable[[], Any], what: str, seconds: float = 20.0, beat: float = 0.02
) -> Any:
    """Waits until the condition gives something true, and returns that."""
    give_up_at = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() >= give_up_at:
            raise AssertionError(f"not within {seconds} s: {what}")
        await asyncio.sleep(beat)


def phase(cluster: PodCluster, name: str) -> str:
    pod = cluster.pod(name)
    return "" if pod is None else (pod.get("status") or {}).get("phase", "")


def container_status(pod: dict[str, Any], name: str = "main") -> dict[str, Any]:
    statuses = [
        *(pod["status"].get("initContainerStatuses") or ()),
        *pod["status"]["containerStatuses"],
    ]
    return next(status for status in statuses if status["name"] == name)


def exit_code(pod: dict[str, Any], name: str = "main") -> int:
    code: int = container_status(pod, name)["state"]["terminated"]["exitCode"]
    return code
