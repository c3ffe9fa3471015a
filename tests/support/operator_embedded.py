"""The real operator and the real queue against the embedded API server, with nodes that are played.

A played node binds nothing and runs nothing: it moves pods that the binder placed through their
phases as the test asks, and posts heartbeats over TLS as a job's library would.
"""

import asyncio
import contextlib
import json
import secrets
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.embedded import EmbeddedServer, free_port

from clusterops.api import names
from clusterops.api.heartbeat import PATH, Answer, Heartbeat
from clusterops.kube import connect
from clusterops.kube.client import Client
from clusterops.kube.errors import Conflict, NotFound
from clusterops.operator import tokens
from clusterops.operator.run import OperatorConfig, serve

Json = dict[str, Any]
DEADLINE_SECONDS = 20.0


class Cluster:
    """A namespace with a queue on a running server, and the operator's endpoint."""

    def __init__(self, server: EmbeddedServer, folder: Path, client: Client) -> None:
        self.server = server
        self.client = client
        self.namespace = f"ns-{secrets.token_hex(4)}"
        self.key_file = folder / "operator.key"
        self.port = free_port()
        self.config = OperatorConfig(
            kubeconfig=server.kubeconfig,
            runtime="processes",
            endpoint_port=self.port,
            endpoint_url=f"https://127.0.0.1:{self.port}",
            tls_certificate=server.certificates.server,
            tls_key=server.certificates.server_key,
            ca_file=server.certificates.authority,
            key_file=self.key_file,
            identity="test",
        )

    async def set_up(self, gpus: int = 4) -> None:
        """Namespace, queue with preemption, priority classes, one node."""
        client, namespace = self.client, self.namespace
        suffix = namespace[3:]
        self.flavor, self.cluster_queue = f"flavor-{suffix}", f"cq-{suffix}"
        await client.create(
            names.NAMESPACES,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        )
        await self.kueue(names.RESOURCE_FLAVORS, self.flavor, {"spec": {}})
        quota = {"name": names.RESOURCE_GPU, "nominalQuota": gpus}
        group = {
            "coveredResources": [names.RESOURCE_GPU],
            "flavors": [{"name": self.flavor, "resources": [quota]}],
        }
        queue = {
            "resourceGroups": [group],
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
        }
        await self.kueue(names.CLUSTER_QUEUES, self.cluster_queue, {"spec": queue})
        await self.kueue(
            names.LOCAL_QUEUES, "queue", {"spec": {"clusterQueue": self.cluster_queue}}, namespace
        )
        for name, value in (("low", 100), ("high", 1000)):
            with contextlib.suppress(Conflict):
                await self.kueue(names.WORKLOAD_PRIORITY_CLASSES, name, {"value": value})
        self.node = f"node-{suffix}"
        await client.create(
            names.NODES,
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}, "spec": {}},
        )
        await self.set_node_ready(True, gpus)

    async def kueue(self, kind: Any, name: str, content: Json, namespace: str = "") -> None:
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content}
        await self.client.create(kind, body)

    async def set_node_ready(self, ready: bool, gpus: int = 4) -> None:
        amounts = {names.RESOURCE_GPU: str(gpus), "cpu": "64", "memory": "64Gi", "pods": "100"}
        condition = {
            "type": "Ready",
            "status": "True" if ready else "Unknown",
            "reason": "Played",
            "message": "",
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}
        await self.client.patch(
            names.NODES, None, self.node, {"status": status}, subresource="status"
        )

    async def submit(self, name: str, *, gpus: int = 2, replicas: int = 2, **spec: Any) -> None:
        container = {
            "name": "train",
            "image": "none",
            "command": ["true"],
            "resources": {"limits": {names.RESOURCE_GPU: gpus}},
            "volumeMounts": [{"name": "v", "mountPath": "/checkpoints"}],
        }
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": "checkpoints"}}
        body = {
            "apiVersion": names.TRAINING_JOBS.api_version,
            "kind": "TrainingJob",
            "metadata": {"namespace": self.namespace, "name": name},
            "spec": {
                "queueName": "queue",
                "priorityClassName": "low",
                "replicas": replicas,
                "template": {"spec": {"containers": [container], "volumes": [volume]}},
                "checkpoint": {"directory": f"/checkpoints/{name}", "gracePeriodSeconds": 20},
                **spec,
            },
        }
        await self.client.create(names.TRAINING_JOBS, body)

    async def edit(self, name: str, **spec: Any) -> None:
        await self.client.patch(names.TRAINING_JOBS, self.namespace, name, {"spec": spec})

    async def job(self, name: str) -> Json:
        return await self.client.get(names.TRAINING_JOBS, self.namespace, name)

    async def status(self, name: str) -> Json:
        found: Json = (await self.job(name)).get("status") or {}
        return found

    async def pods(self, job: str) -> list[Json]:
        selector = f"{names.LABEL_JOB}={job}"
        found, _ = await self.client.list(names.PODS, self.namespace, label_selector=selector)
        return found

    async def workload(self, job: str) -> Json:
        selector = f"{names.LABEL_JOB}={job}"
        found, _ = await self.client.list(names.WORKLOADS, self.namespace, label_selector=selector)
        return found[0]

    async def until(
        self, what: str, found: Callable[[], Awaitable[Any]], seconds: float = DEADLINE_SECONDS
    ) -> Any:
        """Waits until `found` returns something true, and returns it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            with contextlib.suppress(NotFound, IndexError):
                value = await found()
                if value:
                    return value
            assert loop.time() < deadline, f"waited {seconds} s for {what}"
            await asyncio.sleep(0.03)

    async def until_phase(self, name: str, *phases: str) -> Json:
        async def reached() -> Json | None:
            status = await self.status(name)
            return status if status.get("phase") in phases else None

        try:
            found: Json = await self.until(f"{name} to be {phases}", reached)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {await self.status(name)}") from None
        return found

    # Playing the node

    async def run_pods(self, job: str, count: int) -> list[Json]:
        """Once that many pods are bound, has them run."""

        async def bound() -> list[Json] | None:
            pods = [pod for pod in await self.pods(job) if _pending(pod)]
            ready = all(pod["spec"].get("nodeName") for pod in pods)
            return pods if len(pods) == count and ready else None

        pods: list[Json] = await self.until(f"{count} bound pods of {job}", bound)
        for pod in pods:
            await self.set_phase(pod, "Running")
        return pods

    async def set_phase(self, pod: Json, phase: str, exit_code: int | None = None) -> None:
        status: Json = {"phase": phase, "conditions": []}
        if phase == "Running":
            status["conditions"] = [{"type": "Ready", "status": "True"}]
            status["containerStatuses"] = [_container({"running": {}}, ready=True)]
        if exit_code is not None:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            ended = {
                "exitCode": exit_code,
                "reason": "Error" if exit_code else "Completed",
                "finishedAt": now,
            }
            status["containerStatuses"] = [_container({"terminated": ended}, ready=False)]
        metadata = pod["metadata"]
        await self.client.patch(
            names.PODS,
            metadata["namespace"],
            metadata["name"],
            {"status": status},
            subresource="status",
        )

    async def exit_all(self, pods: list[Json], code: int) -> None:
        for pod in pods:
            with contextlib.suppress(NotFound):
                await self.set_phase(pod, "Failed" if code else "Succeeded", code)

    async def finish_deletions(self, job: str) -> None:
        """What a node does once processes that got TERM have ended."""
        for pod in await self.pods(job):
            phase = pod.get("status", {}).get("phase")
            if "activeDeadlineSeconds" in pod["spec"] and phase not in ("Succeeded", "Failed"):
                await self.exit_all([pod], 143)
            if "deletionTimestamp" in pod["metadata"]:
                with contextlib.suppress(NotFound, Conflict):
                    await self.client.delete(
                        names.PODS,
                        self.namespace,
                        pod["metadata"]["name"],
                        uid=pod["metadata"]["uid"],
                        grace_period_seconds=0,
                    )

    async def heartbeat(self, job: str, heartbeat: Heartbeat) -> tuple[int, Answer | None]:
        """Posts as a rank would; the status, and the answer when it was taken."""
        uid = (await self.job(job))["metadata"]["uid"]
        key = tokens.read_or_create_key(self.key_file)
        token = tokens.issue(key, uid, heartbeat.attempt)
        return await asyncio.to_thread(self._post, token, heartbeat)

    async def scrape(self, token: str) -> tuple[int, str]:
        """Reads the operator's metrics with a token of the API server; status and text."""
        return await asyncio.to_thread(self._scrape, token)

    def _scrape(self, token: str) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}/metrics", headers=headers)
        context = ssl.create_default_context(cafile=str(self.config.ca_file))
        try:
            with urllib.request.urlopen(request, timeout=10, context=context) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def _post(self, token: str, heartbeat: Heartbeat) -> tuple[int, Answer | None]:
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{PATH}",
            data=json.dumps(heartbeat.to_wire()).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        context = ssl.create_default_context(cafile=str(self.config.ca_file))
        try:
            with urllib.request.urlopen(request, timeout=10, context=context) as response:
                return response.status, Answer.from_wire(json.loads(response.read()))
        except urllib.error.HTTPError as error:
            with error:
                return error.code, None


@asynccontextmanager
async def running_operator(config: OperatorConfig) -> AsyncIterator[None]:
    """The operator in this process, stopped in order at the end."""
    stop = asyncio.Event()
    task = asyncio.create_task(serve(config, stop))
    try:
        yield
        assert not task.done(), task
    finally:
        stop.set()
        await asyncio.wait_for(task, 30.0)


@asynccontextmanager
async def cluster(server: EmbeddedServer, folder: Path, *, gpus: int = 4) -> AsyncIterator[Cluster]:
    """A namespace with its queue; operator and queue run while the context lasts."""
    from clusterops.queueing.run import serve as serve_queue

    connection = connect.load(server.kubeconfig)
    stop = asyncio.Event()
    queue = asyncio.create_task(serve_queue(server.kubeconfig, stop))
    try:
        made = Cluster(server, folder, connection.client())
        await made.set_up(gpus)
        yield made
    finally:
        stop.set()
        await asyncio.wait_for(asyncio.gather(queue, return_exceptions=True), 30.0)
        await connection.close()


def _pending(pod: Json) -> bool:
    return pod.get("status", {}).get("phase", "Pending") == "Pending"


def _container(state: Json, *, ready: bool) -> Json:
    return {
        "name": "train",
        "state": state,
        "ready": ready,
        "restartCount": 0,
        "image": "none",
        "imageID": "",
    }
