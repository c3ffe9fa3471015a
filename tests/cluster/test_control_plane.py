"""The control plane itself: real, of the pinned versions, guarded, and gone when its users are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.controlplane import ControlPlane
from support.controlplane_build import KUBERNETES, built
from support.controlplane_process import Program
from support.controlplane_product import NAMESPACE, Kubectl, Product
from support.controlplane_tenant import eventually
from support.local_run import processes_of


def test_it_is_the_pinned_kubernetes(plane: ControlPlane) -> None:
    assert plane.send("GET", "/version")["gitVersion"] == KUBERNETES.version


def test_kueue_serves_its_kinds_through_its_webhooks(plane: ControlPlane) -> None:
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "wrong"},
        "spec": {"resourceGroups": [{"coveredResources": [], "flavors": []}]},
    }
    refused = plane.request("POST", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues", queue)
    assert refused.status in (403, 422), refused.content
    # Asked for in the older version, objects go through the conversion webhook.
    assert plane.request("GET", "/apis/kueue.x-k8s.io/v1beta1/clusterqueues").status == 200


def test_rights_are_enforced(plane: ControlPlane) -> None:
    nobody = Kubectl(plane, plane.kubeconfig_of("nobody"))
    refused = nobody("get", "trainingjobs", "-A", check=False)
    assert refused.returncode != 0
    assert "forbidden" in refused.stderr


def test_every_request_is_in_the_audit_log(plane: ControlPlane) -> None:
    plane.send("GET", "/api/v1/namespaces/kube-public")

    def logged() -> bool:
        lines = plane.audit_log.read_text().splitlines()
        events = [json.loads(line) for line in lines if line.endswith("}")]
        return any(event["requestURI"] == "/api/v1/namespaces/kube-public" for event in events)

    eventually(logged, "the request to be logged")


def test_the_operator_runs_under_its_service_account_and_leads(plane: ControlPlane) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/clusterops-operator"
    lease = eventually(
        lambda: found if (found := plane.request("GET", path)).status == 200 else None,
        "the operator to take its lease",
    )
    assert lease.json["spec"]["holderIdentity"] == "operator-a"


@pytest.mark.slow
def test_nothing_is_left_when_it_stops(binaries: Path, tmp_path: Path) -> None:
    with ControlPlane(tmp_path, binaries) as plane:
        assert len(processes_of(tmp_path)) == 4
        assert plane.request("GET", "/readyz").status == 200
    assert processes_of(tmp_path) == []


@pytest.mark.slow
def test_nothing_is_left_when_who_started_it_is_killed(binaries: Path, tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom support.controlplane import ControlPlane\n"
        "ControlPlane(Path(sys.argv[1]), Path(sys.argv[2])).start()\nprint('up', flush=True)\n"
        "sys.stdin.read()\n"
    )
    tests = Path(__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path), str(binaries)],
        env={**os.environ, "PYTHONPATH": f"{tests}:{tests.parent}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"up\n"
        owner.kill()
    eventually(lambda: not processes_of(tmp_path), "the control plane to go with its owner")


def test_two_operators_have_one_leader(plane: ControlPlane) -> None:
    """The second waits; its endpoint says so and sends the job on to the next connection."""
    second = Product(plane, identity="operator-b")
    second.start()
    try:
        assert isinstance(second.operator, Program)
        path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/clusterops-operator"
        assert plane.send("GET", path)["spec"]["holderIdentity"] == "operator-a"
    finally:
        second.stop()


def test_the_folder_of_a_build_is_named_by_its_pins() -> None:
    folder = built()
    assert folder is None or (folder / "build.json").exists()
