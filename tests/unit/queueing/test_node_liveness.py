"""A node whose agent fell silent becomes Unknown; one that could not renew does not."""

from support.kube_cluster import FakeCluster, FakeTransport

from clusterops.api import names
from clusterops.kube.client import Client
from clusterops.queueing.node_liveness import LEASE_NAMESPACE, NodeLiveness, Silence, unknown

NOW = 1_900_000_000.0


def test_silence_is_counted_from_the_first_sight_and_ends_with_a_renewal() -> None:
    silence = Silence(longest_gap_seconds=10.0)
    assert silence.poll({"a": "1"}, 0.0) == {"a": 0.0}
    assert silence.poll({"a": "1", "b": "1"}, 5.0) == {"a": 5.0, "b": 0.0}
    assert silence.poll({"a": "1", "b": "2"}, 10.0) == {"a": 10.0, "b": 0.0}
    assert silence.poll({"a": "2", "b": "2"}, 15.0) == {"a": 0.0, "b": 5.0}


def test_the_time_in_which_nobody_could_renew_does_not_count() -> None:
    silence = Silence(longest_gap_seconds=10.0)
    silence.poll({"a": "1"}, 0.0)
    assert silence.poll({"a": "1"}, 1000.0) == {"a": 10.0}


def test_a_lease_that_was_deleted_is_forgotten() -> None:
    silence = Silence(longest_gap_seconds=10.0)
    silence.poll({"a": "1"}, 0.0)
    silence.poll({}, 5.0)
    assert silence.poll({"a": "1"}, 10.0) == {"a": 0.0}


def test_only_ready_changes_and_only_once() -> None:
    disk = {"type": "DiskPressure", "status": "False"}
    ready = {"type": "Ready", "status": "True", "reason": "AgentReady", "lastHeartbeatTime": "t"}
    status = unknown({"conditions": [disk, ready], "capacity": {"cpu": "2"}}, NOW)
    assert status is not None
    assert status["capacity"] == {"cpu": "2"}
    assert status["conditions"][0] == disk
    changed = status["conditions"][1]
    assert (changed["status"], changed["lastHeartbeatTime"]) == ("Unknown", "t")
    assert changed["lastTransitionTime"] == "2030-03-17T17:46:40Z"
    assert unknown(status, NOW + 60) is None
    assert unknown({}, NOW) is None


async def test_a_node_with_a_dead_agent_becomes_unknown_beside_a_living_one() -> None:
    cluster = FakeCluster()
    transport = FakeTransport(cluster)
    client = Client(transport)
    for name in ("alive", "dead", "without-lease"):
        await client.create(names.NODES, {"metadata": {"name": name}})
        node = await client.get(names.NODES, None, name)
        ready = {"type": "Ready", "status": "True", "reason": "AgentReady", "message": ""}
        await client.write_status(names.NODES, node, {"conditions": [ready]})
    for name in ("alive", "dead"):
        metadata = {"name": name, "namespace": LEASE_NAMESPACE}
        spec = {"renewTime": "0", "leaseDurationSeconds": 40}
        await client.create(names.LEASES, {"metadata": metadata, "spec": spec})

    clock = [0.0]
    liveness = NodeLiveness(client, lambda: NOW, monotonic=lambda: clock[0])
    for renewal in range(1, 10):
        await liveness.look()
        clock[0] += 5.0
        renewed = {"spec": {"renewTime": str(renewal)}}
        await client.patch(names.LEASES, LEASE_NAMESPACE, "alive", renewed)
    said = {}
    for name in ("alive", "dead", "without-lease"):
        node = await client.get(names.NODES, None, name)
        said[name] = node["status"]["conditions"][0]["status"]
    assert said == {"alive": "True", "dead": "Unknown", "without-lease": "True"}
