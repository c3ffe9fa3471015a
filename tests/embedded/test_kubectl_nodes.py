"""cordon, taint, drain: what the real kubectl does to nodes."""

from collections.abc import Iterator

import pytest
from support.apiserver_kinds import pod
from support.apiserver_kubectl import Kubectl
from support.embedded import EmbeddedServer

pytestmark = [pytest.mark.embedded, pytest.mark.kubectl]


@pytest.fixture
def node(kubectl: Kubectl, embedded_server: EmbeddedServer) -> Iterator[str]:
    """A node of this test's own."""
    name = f"node-{kubectl.namespace}"
    assert (
        embedded_server.request("POST", "/api/v1/nodes", {"metadata": {"name": name}}).status == 201
    )
    yield name
    embedded_server.request("DELETE", f"/api/v1/nodes/{name}")


def place_pod(kubectl: Kubectl, node: str, name: str, **metadata):
    obj = pod(nodeName=node)
    obj["metadata"] = {"name": name, **metadata}
    kubectl("create", "-f", kubectl.file(obj))


def test_cordon_and_uncordon(kubectl: Kubectl, node):
    assert kubectl("cordon", node).out == f"node/{node} cordoned\n"
    assert kubectl("cordon", node).out == f"node/{node} already cordoned\n"
    assert kubectl.get("node", node)["spec"]["unschedulable"] is True
    status = kubectl("get", "node", node, "--no-headers").rows[0][1]
    assert status == "Unknown,SchedulingDisabled"
    found = kubectl("get", "nodes", "--field-selector=spec.unschedulable=true", "-o", "name").out
    assert f"node/{node}" in found
    assert kubectl("uncordon", node).out == f"node/{node} uncordoned\n"
    assert "unschedulable" not in kubectl.get("node", node)["spec"]


def test_taints_come_and_go(kubectl: Kubectl, node):
    assert kubectl("taint", "node", node, "a=b:NoSchedule").out == f"node/{node} tainted\n"
    kubectl("taint", "node", node, "c:NoExecute")
    taints = kubectl.get("node", node)["spec"]["taints"]
    assert {(t["key"], t["effect"]) for t in taints} == {("a", "NoSchedule"), ("c", "NoExecute")}
    outcome = kubectl.try_("taint", "node", node, "a=x:NoSchedule")
    assert outcome.code == 1
    assert "already has a taint" in outcome.err
    kubectl("taint", "node", node, "a=x:NoSchedule", "--overwrite")
    assert kubectl("taint", "node", node, "a-", "c-").out == f"node/{node} untainted\n"
    assert not kubectl.get("node", node)["spec"].get("taints")


def test_drain_evicts_and_waits_until_the_pods_are_gone(kubectl: Kubectl, embedded_server, node):
    place_pod(kubectl, node, "worker")
    refused = kubectl.try_("drain", node, "--timeout=5s")
    assert refused.code == 1
    assert "declare no controller" in refused.err
    with kubectl.start("drain", node, "--force", "--timeout=50s") as draining:
        draining.wait_for(lambda out: f"evicting pod {kubectl.namespace}/worker" in out, "eviction")
        path = kubectl.path("pods", "worker")
        found = embedded_server.request("GET", path).json
        while "deletionTimestamp" not in found["metadata"]:
            found = embedded_server.request("GET", path).json
        # The node's agent lets the pod go.
        embedded_server.request("DELETE", f"{path}?gracePeriodSeconds=0")
        assert draining.wait() == 0
        assert f"node/{node} drained" in draining.out
    assert kubectl.get("node", node)["spec"]["unschedulable"] is True


def test_drain_without_evictions_deletes(kubectl: Kubectl, embedded_server, node):
    place_pod(kubectl, node, "worker")
    outcome = kubectl(
        "drain", node, "--force", "--disable-eviction", "--grace-period=0", "--timeout=50s"
    )
    assert f"node/{node} drained" in outcome.out
    assert kubectl.try_("get", "pod", "worker").code == 1
