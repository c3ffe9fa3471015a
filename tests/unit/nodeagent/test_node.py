"""The Node and its lease: created, kept true, given back when somebody takes them away."""

import asyncio

import pytest
from support.kube_cluster import FakeTransport, status_answer
from support.nodeagent_cluster import PodCluster, agent_config, eventually

from clusterops.kube.client import Client, RetryPolicy
from clusterops.kube.errors import Unreachable
from clusterops.nodeagent import gpus, machine, node
from clusterops.nodeagent.node import NodeRegistration

TAINT = {"key": "clusterops.io/process-runtime", "effect": "NoSchedule"}


def registration(transport: FakeTransport, tmp_path, **settings) -> NodeRegistration:
    config = agent_config(tmp_path, **settings)
    client = Client(transport, retry=RetryPolicy(attempts=1, unreachable_attempts=1))
    return NodeRegistration(config, client, machine.describe(), gpus.simulated(2))


def stored(cluster: PodCluster) -> dict:
    [found] = cluster.content("nodes").values()
    return found


@pytest.fixture
def impatient(monkeypatch) -> None:
    monkeypatch.setattr(node, "RETRY_SECONDS", 0.01)


@pytest.fixture
async def run(transport, tmp_path, impatient):
    tasks = []

    def start(**settings) -> NodeRegistration:
        found = registration(transport, tmp_path, **settings)
        tasks.append(asyncio.create_task(found.run()))
        return found

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_registering_creates_node_namespace_and_lease(run, cluster) -> None:
    await asyncio.wait_for(run().registered.wait(), 10)
    found = stored(cluster)
    assert found["status"]["capacity"]["nvidia.com/gpu"] == "2"
    assert found["status"]["allocatable"] == found["status"]["capacity"]
    assert found["status"]["nodeInfo"]["operatingSystem"] == "linux"
    assert ("", "kube-node-lease") in cluster.content("namespaces")
    [lease] = cluster.content("leases").values()
    assert lease["spec"]["holderIdentity"] == "node-a"
    assert lease["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]


async def test_the_lease_is_renewed(run, cluster) -> None:
    registered = run(lease_seconds=4)
    await asyncio.wait_for(registered.registered.wait(), 10)

    def renewed() -> str:
        return next(iter(cluster.content("leases").values()))["spec"]["renewTime"]

    first = renewed()
    await eventually(lambda: renewed() > first, "a renewal")


async def test_it_waits_for_a_server_that_is_not_there_yet(run, transport) -> None:
    transport.before = lambda *_: Unreachable("refused")
    registered = run()
    await eventually(lambda: len(transport.requests) > 3, "some tries")
    assert not registered.registered.is_set()
    transport.before = None
    await asyncio.wait_for(registered.registered.wait(), 10)


async def test_a_deleted_node_is_registered_again(run, cluster) -> None:
    registered = run(lease_seconds=4, node_status_seconds=0.0)
    await asyncio.wait_for(registered.registered.wait(), 10)
    cluster.remove("nodes", "", "node-a")
    await eventually(lambda: cluster.content("nodes"), "its return")


async def test_a_deleted_lease_is_created_again(run, cluster) -> None:
    registered = run(lease_seconds=4)
    await asyncio.wait_for(registered.registered.wait(), 10)
    cluster.remove("leases", "kube-node-lease", "node-a")
    await eventually(lambda: cluster.content("leases"), "its return")


async def test_labels_and_taints_of_others_stay(transport, cluster, tmp_path) -> None:
    others = [{"key": "clusterops.io/health", "effect": "NoExecute"}]
    cluster.put(
        "nodes",
        "",
        "node-a",
        metadata={"labels": {"rack": "7", "kubernetes.io/hostname": "wrong"}},
        spec={"taints": others, "unschedulable": True},
        status={"conditions": [{"type": "GpuHealthy", "status": "True"}]},
    )
    await registration(
        transport, tmp_path, embedded=False, labels={"zone": "a"}, allowed_namespaces=("x",)
    ).write(("True", "R", "m"))
    found = stored(cluster)
    assert found["metadata"]["labels"]["rack"] == "7"
    assert found["metadata"]["labels"]["zone"] == "a"
    assert found["metadata"]["labels"]["kubernetes.io/hostname"] == "node-a"
    assert found["spec"] == {"taints": [*others, TAINT], "unschedulable": True}
    assert [c["type"] for c in found["status"]["conditions"]] == ["GpuHealthy", "Ready"]


async def test_what_no_longer_holds_is_taken_back(transport, cluster, tmp_path) -> None:
    cluster.put(
        "nodes",
        "",
        "node-a",
        metadata={"labels": {"clusterops.io/simulated": "true"}},
        spec={"taints": [TAINT]},
    )
    await registration(transport, tmp_path, simulated_gpus=None).write(("True", "R", "m"))
    found = stored(cluster)
    assert not found["metadata"]["labels"].get("clusterops.io/simulated")
    assert found["spec"]["taints"] == []


async def test_a_transition_keeps_its_time_until_it_changes(transport, cluster, tmp_path) -> None:
    registered = registration(transport, tmp_path)
    await registered.write(("True", "R", "m"))
    first = stored(cluster)["status"]["conditions"][0]
    first["lastTransitionTime"] = "2020-01-01T00:00:00Z"
    await registered.write(("True", "R", "m"))
    assert stored(cluster)["status"]["conditions"][0]["lastTransitionTime"].startswith("2020")
    await registered.say_stopped()
    condition = stored(cluster)["status"]["conditions"][0]
    assert condition["status"] == "False"
    assert not condition["lastTransitionTime"].startswith("2020")


async def test_a_conflict_is_read_anew(run, transport, cluster) -> None:
    conflicts = []

    def conflict(method: str, path: str):
        if method == "PATCH" and path.endswith("/nodes/node-a/status") and len(conflicts) < 2:
            conflicts.append(path)
            return status_answer(409, "Conflict")
        return None

    transport.before = conflict
    await asyncio.wait_for(run().registered.wait(), 10)
    assert len(conflicts) == 2
    assert stored(cluster)["status"]["conditions"]


async def test_an_agent_whose_lease_ran_out_says_again_that_it_is_ready(
    transport, cluster, tmp_path, impatient
) -> None:
    clock = [100.0]
    client = Client(transport, retry=RetryPolicy(attempts=1, unreachable_attempts=1))
    config = agent_config(tmp_path, lease_seconds=4)
    agent = NodeRegistration(
        config, client, machine.describe(), gpus.simulated(2), lambda: clock[0]
    )
    running = asyncio.create_task(agent.run())
    await asyncio.wait_for(agent.registered.wait(), 10)
    silent = {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "silent"}]}
    cluster.put("nodes", "", config.node_name, status=silent)
    clock[0] += config.lease_seconds + 1
    await eventually(
        lambda: stored(cluster)["status"]["conditions"][-1]["status"] == "True", "Ready again"
    )
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
