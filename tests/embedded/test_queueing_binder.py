"""The binder against the embedded API server: pods get nodes, gangs whole, reasons in words."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.embedded import EmbeddedServer
from support.scheduling_cluster import GPU, QueueCluster, cluster, eventually, queue_running

from clusterops.api import names

pytestmark = pytest.mark.embedded


class Nodes:
    """Nodes and pods of one test; the node label keeps tests apart on a shared server."""

    def __init__(self, world: QueueCluster) -> None:
        self.world = world
        self.label = {"test": world.namespace}

    async def node(self, name: str, gpus: int) -> str:
        full = f"{self.world.namespace}-{name}"
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": full, "labels": self.label},
        }
        await self.world.client.create(names.NODES, node)

        def ready(_: Any) -> Any:
            return {
                "allocatable": {GPU: str(gpus), "pods": "110"},
                "capacity": {GPU: str(gpus), "pods": "110"},
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "reason": "Started",
                        "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                        "lastHeartbeatTime": "2026-01-01T00:00:00Z",
                    }
                ],
            }

        await self.world.client.update_status(names.NODES, None, full, ready)
        return full

    async def pod(self, name: str, gpus: int, *, job: str = "", pods: int = 0, **spec: Any) -> None:
        labels = {names.LABEL_JOB: job, names.LABEL_ATTEMPT: "1"} if job else {}
        container: dict[str, Any] = {
            "name": "c",
            "image": "i",
            "resources": {"limits": {GPU: str(gpus)}},
        }
        if pods:
            container["env"] = [{"name": names.ENV_PODS, "value": str(pods)}]
        metadata = {"name": name, "namespace": self.world.namespace, "labels": labels}
        body = {"containers": [container], "nodeSelector": self.label, **spec}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}
        await self.world.client.create(names.PODS, pod)

    async def get(self, name: str) -> Any:
        return await self.world.client.get(names.PODS, self.world.namespace, name)

    async def bound(self, name: str) -> str:
        async def has_node() -> bool:
            return bool((await self.get(name))["spec"].get("nodeName"))

        await eventually(has_node, f"pod {name} to be bound")
        return str((await self.get(name))["spec"]["nodeName"])

    async def unschedulable(self, name: str) -> str:
        async def said() -> bool:
            return bool(self._reason(await self.get(name)))

        await eventually(said, f"pod {name} to be told why it has no node")
        return self._reason(await self.get(name))

    def _reason(self, pod: Any) -> str:
        for each in pod.get("status", {}).get("conditions") or ():
            if each["type"] == "PodScheduled" and each["reason"] == "Unschedulable":
                return str(each["message"])
        return ""


@pytest.fixture
async def nodes(embedded_server: EmbeddedServer, namespace: str) -> AsyncIterator[Nodes]:
    """The binder running, and nodes of this test only, deleted at the end."""
    async with cluster(embedded_server.kubeconfig, namespace) as world:
        async with queue_running(embedded_server.kubeconfig):
            yield Nodes(world)
        items, _ = await world.client.list(names.NODES)
        for each in items:
            if each["metadata"]["name"].startswith(namespace):
                await world.client.delete(names.NODES, None, each["metadata"]["name"])


async def test_pods_fill_a_used_node_before_an_empty_one(nodes: Nodes) -> None:
    first, _ = await nodes.node("n1", 4), await nodes.node("n2", 4)
    await nodes.pod("a", 1)
    assert await nodes.bound("a") == first
    await nodes.pod("b", 3)
    assert await nodes.bound("b") == first


async def test_a_gang_waits_until_all_of_it_exists_and_fits(nodes: Nodes) -> None:
    await nodes.node("n1", 4)
    await nodes.pod("g-0", 4, job="g", pods=2)
    await nodes.pod("single", 1)
    await nodes.bound("single")
    assert not (await nodes.get("g-0"))["spec"].get("nodeName")
    await nodes.pod("g-1", 4, job="g", pods=2)
    assert "Insufficient nvidia.com/gpu" in await nodes.unschedulable("g-0")
    await nodes.node("n2", 4)
    await nodes.node("n3", 4)
    assert await nodes.bound("g-0") != await nodes.bound("g-1")


async def test_a_cordoned_node_takes_no_pods_until_it_is_open_again(nodes: Nodes) -> None:
    name = await nodes.node("n1", 4)
    await nodes.world.client.patch(names.NODES, None, name, {"spec": {"unschedulable": True}})
    await nodes.pod("a", 1)
    assert "node(s) were unschedulable" in await nodes.unschedulable("a")
    await nodes.world.client.patch(names.NODES, None, name, {"spec": {"unschedulable": None}})
    assert await nodes.bound("a") == name


async def test_pods_of_another_scheduler_are_left_alone(nodes: Nodes) -> None:
    await nodes.node("n1", 4)
    await nodes.pod("other", 1, schedulerName="mine")
    await nodes.pod("own", 1)
    await nodes.bound("own")
    assert not (await nodes.get("other"))["spec"].get("nodeName")
