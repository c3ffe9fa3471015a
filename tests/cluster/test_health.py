"""The watch over nodes on the real control plane: its manifests as they are, and a daemon under them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.controlplane import ControlPlane
from support.controlplane_product import MANIFESTS, Kubectl
from support.controlplane_tenant import eventually
from support.health_kmsg import FakeKmsg

NAMESPACE, ACCOUNT, NODE = "clusterops-health", "health-daemon", "watched-node"
URL = f"/apis/clusterops.io/v1alpha1/nodehealths/{NODE}"


@pytest.fixture(scope="module")
def installed(plane: ControlPlane) -> Iterator[Kubectl]:
    """manifests/health, applied as the documentation says."""
    kubectl = Kubectl(plane)
    kubectl("apply", "--server-side", "-k", str(MANIFESTS / "health"))
    yield kubectl
    kubectl("delete", "--wait=false", "-k", str(MANIFESTS / "health"))


def test_a_daemon_works_under_its_account_and_can_do_nothing_else(
    plane: ControlPlane, installed: Kubectl, tmp_path: Path
) -> None:
    account = plane.kubeconfig_of_account(NAMESPACE, ACCOUNT)
    kmsg = FakeKmsg(tmp_path / "kmsg")
    kmsg.say("NVRM: Xid (PCI:0000:1b:00): 79, pid=7, name=python, GPU has fallen off the bus.")
    daemon = subprocess.Popen(
        [
            *(sys.executable, "-m", "clusterops.cli", "health", "daemon", "--node", NODE),
            *("--ledger", str(tmp_path / "ledger.db"), "--kmsg", str(kmsg.path), "--no-nvml"),
            *("--kubeconfig", str(account), "--port", "0", "--die-with", str(os.getpid())),
        ]
    )
    try:
        found = eventually(
            lambda: answer if (answer := plane.request("GET", URL)).status == 200 else None,
            "the NodeHealth",
        )
        eventually(
            lambda: "RebootNode" in plane.request("GET", URL).content.decode(), "its verdict"
        )
        assert found.json["metadata"]["name"] == NODE
        limited = Kubectl(plane, account)
        remedy = json.dumps({"spec": {"remediation": {"incident": "i", "rung": "reboot_node"}}})
        for words in (
            ["patch", "nodehealth", NODE, "--type=merge", f"--patch={remedy}"],
            ["delete", "nodehealth", NODE],
            ["get", "secrets", "-A"],
            ["get", "nodes"],
            ["run", "intruder", "--image=x"],
        ):
            refused = limited(*words, check=False)
            assert refused.returncode != 0, words
            assert "forbidden" in refused.stderr.lower(), refused.stderr
    finally:
        daemon.terminate()
        daemon.wait(30)
        plane.request("DELETE", URL)


def test_the_pods_of_the_daemon_set_are_as_the_server_wants_them(installed: Kubectl) -> None:
    told = json.loads(installed("get", "-n", NAMESPACE, "daemonset", "health", "-o", "json").stdout)
    names = [container["name"] for container in told["spec"]["template"]["spec"]["containers"]]
    assert names == ["reader", "daemon"]
    assert told["status"]["desiredNumberScheduled"] == 0, "there is no node with a GPU"
