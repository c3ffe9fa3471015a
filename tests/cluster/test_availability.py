"""Parts of the control plane and of ours go away in the middle of a preemption, and nothing is lost.

A control plane of its own, since these tests stop what others need.
"""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.controlplane import ControlPlane
from support.controlplane_kueue import Kueue, install_kueue
from support.controlplane_product import NAMESPACE, Product
from support.controlplane_tenant import Tenant, condition, eventually
from support.controlplane_workloads import Workloads
from support.counter_job import undisturbed_digest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/clusterops-operator"
STEPS = 150


@dataclass
class World:
    """Everything, with a grip on each part."""

    plane: ControlPlane
    kueue: Kueue
    operator: Product


@pytest.fixture(scope="module")
def world(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ControlPlane(tmp_path_factory.mktemp("plane"), binaries) as plane:
        kueue = install_kueue(plane)
        operator = Product(plane)
        operator.install()
        operator.start()
        try:
            yield World(plane, kueue, operator)
        finally:
            operator.stop()
            kueue.stop()


@pytest.fixture
def tenant(world: World, tmp_path: Path) -> Iterator[Tenant]:
    with Tenant(world.plane, tmp_path) as found:
        yield found


def in_its_window(tenant: Tenant) -> None:
    """A low job that has just been told to make room for a high one."""
    tenant.add_node()
    tenant.submit("low", steps=STEPS)
    tenant.until_saved("low")
    tenant.submit("high", steps=10, priority="high")
    eventually(
        lambda: condition(tenant.workload("low"), "Evicted").get("status") == "True",
        "the eviction",
    )


def newest_save(tenant: Tenant) -> str:
    """The name of the last checkpoint of the low job; names grow with steps."""
    return max(found.name for found in tenant.checkpoints("low").glob("step_*"))


def ends_as_undisturbed(tenant: Tenant, folder: Path) -> None:
    """Both succeed, and the low one with no step lost or done twice."""
    tenant.until_phase("high", "Succeeded", seconds=120)
    done = tenant.until_phase("low", "Succeeded", seconds=120)
    assert done["counts"]["lostSteps"] == 0
    assert done["counts"]["userErrors"] == 0
    assert tenant.result("low")["stateSha256"] == undisturbed_digest(folder / "alone", STEPS)


def test_an_operator_killed_in_the_window_is_followed_by_another(
    world: World, tenant: Tenant, tmp_path: Path
) -> None:
    second = Product(world.plane, identity="operator-b")
    second.start()
    try:
        in_its_window(tenant)
        assert world.operator.operator is not None
        world.operator.operator.kill()
        ends_as_undisturbed(tenant, tmp_path)
        holder = world.plane.send("GET", LEASE)["spec"]["holderIdentity"]
        assert holder == "operator-b"
    finally:
        second.stop()
        world.operator.start()


def test_kueue_restarted_in_the_window_keeps_it_and_takes_the_release(
    world: World, tenant: Tenant, tmp_path: Path
) -> None:
    in_its_window(tenant)
    world.kueue.program.kill()
    world.kueue.program.start()
    ends_as_undisturbed(tenant, tmp_path)


def test_without_kueue_jobs_go_on_and_what_waits_is_done_when_it_is_back(
    world: World, tenant: Tenant, tmp_path: Path
) -> None:
    tenant.add_node()
    tenant.submit("low", steps=STEPS)
    tenant.until_saved("low")
    world.kueue.stop()
    try:
        tenant.submit("high", steps=10, priority="high")
        saved = newest_save(tenant)
        eventually(lambda: newest_save(tenant) > saved, "the running job to go on saving")
        assert tenant.status("low")["phase"] == "Running"
    finally:
        world.kueue.start()
    ends_as_undisturbed(tenant, tmp_path)


def test_an_api_server_that_restarts_costs_nobody_anything(
    world: World, tenant: Tenant, tmp_path: Path
) -> None:
    in_its_window(tenant)
    server = world.plane.programs["kube-apiserver"]
    server.kill()
    server.start()
    world.plane.until_ready(server, lambda: world.plane.request("GET", "/readyz").status == 200)
    ends_as_undisturbed(tenant, tmp_path)


def test_four_kills_of_kueue_under_load_never_overbook_the_quota(
    world: World, tenant: Tenant
) -> None:
    workloads = Workloads(tenant)
    for number in range(12):
        workloads.create(f"w{number}", gpus=1)
    for _ in range(4):
        world.kueue.program.kill()
        world.kueue.start()
        admitted = [n for n in range(12) if workloads.holds_quota(f"w{n}")]
        assert len(admitted) <= 4
    eventually(lambda: workloads.used() == 4, "the quota to be used")


def test_a_pod_that_was_deleted_by_hand_is_made_good_from_the_last_save(
    world: World, tenant: Tenant, tmp_path: Path
) -> None:
    tenant.add_node()
    tenant.submit("low", steps=STEPS)
    tenant.until_saved("low")
    (pod,) = tenant.pods("low")
    path = f"/api/v1/namespaces/{tenant.namespace}/pods/{pod['metadata']['name']}"
    tenant.plane.send("DELETE", path)
    done = tenant.until_phase("low", "Succeeded", seconds=120)
    assert done["counts"]["attempts"] == 2
    assert done["attempts"][0]["cause"] == "Evicted"
    assert done["counts"]["userErrors"] == 0
    assert tenant.result("low")["stateSha256"] == undisturbed_digest(tmp_path / "alone", STEPS)


def test_a_node_agent_killed_in_the_window_is_followed_by_its_successor(
    world: World, tenant: Tenant, tmp_path: Path
) -> None:
    in_its_window(tenant)
    agent = tenant.agents[0]
    assert agent.process is not None
    agent.process.send_signal(signal.SIGKILL)
    agent.process.wait(20)
    agent.start()
    ends_as_undisturbed(tenant, tmp_path)
