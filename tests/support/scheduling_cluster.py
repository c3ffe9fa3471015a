"""Kueue's objects on a real API server, and waiting for what the queue makes of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from clusterops.api import names
from clusterops.kube import connect
from clusterops.kube.client import Client
from clusterops.queueing.run import serve

Json = dict[str, Any]
GPU = names.RESOURCE_GPU
DEADLINE_SECONDS = 20.0


class QueueCluster:
    """One namespace of an API server, with queues and workloads of its own."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    def cluster_queue_name(self, name: str = "cq") -> str:
        """Cluster-scoped names carry the namespace, so that tests do not meet."""
        return f"{self.namespace}-{name}"

    async def flavor(self, name: str = "default", **spec: Any) -> str:
        full = self.cluster_queue_name(name)
        await self._create(names.RESOURCE_FLAVORS, {"metadata": {"name": full}, "spec": spec})
        return full

    async def queue(
        self, gpus: int, name: str = "cq", *, flavor: str = "default", **spec: Any
    ) -> None:
        """A ClusterQueue with GPUs of one flavor, and a LocalQueue of its name."""
        await self.cluster_queue(gpus, name, flavor=flavor, **spec)
        await self.local_queue(name)

    async def cluster_queue(self, gpus: int, name: str, *, flavor: str, **spec: Any) -> None:
        spec.setdefault(
            "preemption",
            {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
        )
        resources = [{"name": GPU, "nominalQuota": str(gpus)}]
        group = {
            "coveredResources": [GPU],
            "flavors": [{"name": self.cluster_queue_name(flavor), "resources": resources}],
        }
        body = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
        await self._create(
            names.CLUSTER_QUEUES,
            {"metadata": {"name": self.cluster_queue_name(name)}, "spec": body},
        )

    async def local_queue(self, name: str = "cq") -> None:
        await self._create(
            names.LOCAL_QUEUES,
            {
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"clusterQueue": self.cluster_queue_name(name)},
            },
        )

    async def workload(
        self,
        name: str,
        gpus: int,
        *,
        priority: int = 0,
        queue: str = "cq",
        owner: bool = True,
        annotations: Json | None = None,
        **spec: Any,
    ) -> Json:
        """A Workload of one pod as the operator makes it."""
        metadata: Json = {
            "name": name,
            "namespace": self.namespace,
            "labels": {names.KUEUE_LABEL_JOB_UID: f"job-{name}"},
            "annotations": annotations or {},
        }
        if owner:
            uid = await self._owner()
            metadata["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
            ]
        container = {"name": "c", "image": "i", "resources": {"limits": {GPU: gpus}}}
        pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
        body = {"queueName": queue, "priority": priority, "podSets": [pods], **spec}
        return await self._create(names.WORKLOADS, {"metadata": metadata, "spec": body})

    async def _owner(self) -> str:
        found = await self.client.find(names.CONFIG_MAPS, self.namespace, "owner")
        if found is None:
            found = await self._create(
                names.CONFIG_MAPS, {"metadata": {"name": "owner", "namespace": self.namespace}}
            )
        return str(found["metadata"]["uid"])

    async def get(self, name: str) -> Json:
        return await self.client.get(names.WORKLOADS, self.namespace, name)

    async def condition(self, name: str, kind: str) -> Json:
        """A condition of a Workload; empty when it has none of that type."""
        status = (await self.get(name)).get("status") or {}
        return next((each for each in status.get("conditions") or () if each["type"] == kind), {})

    async def has(self, name: str, kind: str, status: str = "True", reason: str = "") -> bool:
        found = await self.condition(name, kind)
        return found.get("status") == status and (not reason or found.get("reason") == reason)

    async def until(self, name: str, kind: str, status: str = "True", reason: str = "") -> Json:
        """Waits until a Workload has a condition and returns it."""
        await eventually(
            lambda: self.has(name, kind, status, reason),
            f"{name} to have {kind}={status} {reason}",
        )
        return await self.condition(name, kind)

    async def admitted(self, name: str) -> None:
        await self.until(name, "Admitted")

    async def release(self, name: str) -> None:
        """What an owner writes once its pods are gone: quota given back, ready to queue again."""

        def give_back(raw: Json) -> Json:
            status = {key: value for key, value in raw["status"].items() if key != "admission"}
            kept = [
                each
                for each in status["conditions"]
                if each["type"] not in ("QuotaReserved", "Admitted", "Requeued")
            ]
            at = kept[0]["lastTransitionTime"]
            for kind, word, reason in (
                ("QuotaReserved", "False", "Preempted"),
                ("Admitted", "False", "NoReservation"),
                ("Requeued", "True", "Preempted"),
            ):
                kept.append(
                    {
                        "type": kind,
                        "status": word,
                        "reason": reason,
                        "message": "",
                        "lastTransitionTime": at,
                    }
                )
            return {**status, "conditions": kept}

        await self.client.update_status(names.WORKLOADS, self.namespace, name, give_back)

    async def set_condition(self, name: str, kind: str, status: str, reason: str) -> None:
        """Writes one condition as an owner would."""

        def change(raw: Json) -> Json:
            before = raw.get("status") or {}
            rest = [each for each in before.get("conditions") or () if each["type"] != kind]
            fresh = {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            return {**before, "conditions": [*rest, fresh]}

        await self.client.update_status(names.WORKLOADS, self.namespace, name, change)

    async def events(self, name: str) -> set[str]:
        """Reasons of the events about a Workload."""
        items, _ = await self.client.list(names.EVENTS, self.namespace)
        return {each["reason"] for each in items if each["involvedObject"]["name"] == name}

    async def _create(self, resource: names.ResourceType, body: Json) -> Json:
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        return await self.client.create(resource, {**kind, **body})


async def eventually(check: Callable[[], Any], what: str) -> None:
    """Waits until an asynchronous check is true; says what it waited for when it never is."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE_SECONDS
    while not await check():
        if loop.time() > deadline:
            raise AssertionError(f"waited {DEADLINE_SECONDS:g} s for {what}")
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def queue_running(kubeconfig: Path) -> AsyncIterator[None]:
    """The queue and the binder as `serve` runs them, stopped at the end."""
    stop = asyncio.Event()
    task = asyncio.create_task(serve(kubeconfig, stop))
    try:
        yield
        if task.done():
            await task
    finally:
        stop.set()
        await task


@contextlib.asynccontextmanager
async def cluster(kubeconfig: Path, namespace: str) -> AsyncIterator[QueueCluster]:
    """A client for a namespace."""
    connection = connect.load(kubeconfig)
    try:
        yield QueueCluster(connection.client(), namespace)
    finally:
        await connection.close()
