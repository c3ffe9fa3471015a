"""Nodes through their whole remediation against a real API server: budgets, proofs, crashes, tickets."""

import contextlib
import itertools
import json
import time

import pytest
from prometheus_client import CollectorRegistry

from clusterops.api import names
from clusterops.api.node_health import RemediationState as State
from clusterops.api.node_health import Rung
from clusterops.core.remediation_budget import Budgets
from clusterops.core.remediation_ladder import Ladder
from clusterops.kube.client import Client
from clusterops.kube.errors import KubeError, NotFound
from clusterops.operator import nodes_verification
from clusterops.operator import nodes_view as views
from clusterops.operator.nodes import SWITCH_NAME, Nodes, RemediationConfig
from clusterops.operator.nodes_metrics import NodeMetrics
from clusterops.operator.tickets.file import FileTickets

pytestmark = pytest.mark.embedded

NUMBERS = itertools.count()
WIDE = Budgets(1.0, 99, 1.0, 999, 3600, 99)


class Recorder:
    """An executor that remembers its orders."""

    def __init__(self, success=True):
        self.orders = []
        self.success = success

    def can(self, rung):
        return rung is not Rung.NONE

    async def execute(self, node, order, seconds):
        assert seconds > 0
        self.orders.append((node, order.key))
        return self.success


class CrashingClient(Client):
    """Fails before or after the n-th write, as an operator that is killed there."""

    def __init__(self, client, at, after):
        super().__init__(client.transport)
        self.left, self._after = at, after

    async def _send(self, method, *arguments, **options):
        if method == "GET":
            return await super()._send(method, *arguments, **options)
        self.left -= 1
        if self.left < 0 and not self._after:
            raise KubeError("killed before a write")
        result = await super()._send(method, *arguments, **options)
        if self.left < 0:
            raise KubeError("killed after a write")
        return result


class World:
    """One node, its daemon's words, and an operator for it."""

    def __init__(self, client, *, executor=None, budgets=WIDE, tickets=None):
        self.client = client
        self.name = f"n{next(NUMBERS)}"
        self.now = 1_900_000_000.0
        self.executor = executor or Recorder()
        self.asked_for = []
        extra = {"tickets": tickets} if tickets else {}
        self.config = RemediationConfig(
            ladder=Ladder(), budgets=budgets, executor=self.executor, **extra
        )
        self.operator()

    def operator(self, client=None):
        self.nodes = Nodes(
            client or self.client, self.config, lambda: self.now, self.asked_for.append
        )

    async def create(self, *, boot="b1", taints=()):
        await self.client.create(
            names.NODES,
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": self.name},
                "spec": {"taints": list(taints)},
            },
        )
        await self.boot(boot)
        await self.client.create(
            names.NODE_HEALTHS,
            {
                "apiVersion": names.NODE_HEALTHS.api_version,
                "kind": "NodeHealth",
                "metadata": {"name": self.name},
            },
        )

    async def boot(self, boot):
        status = {"capacity": {"nvidia.com/gpu": "8"}, "nodeInfo": {"bootID": boot}}
        await self.client.patch(
            names.NODES, None, self.name, {"status": status}, subresource="status"
        )

    async def says(self, verdict, *incidents, gpus=()):
        status = {
            "verdict": verdict,
            "gpus": list(gpus),
            "incidents": [
                {"id": name, "verdict": word, "openedAt": "2030-01-01T00:00:00Z", "gpus": ["GPU-1"]}
                for name, word in incidents
            ],
        }
        await self.client.update_status(names.NODE_HEALTHS, None, self.name, lambda _: status)

    async def step(self, times=1):
        for _ in range(times):
            await self.nodes.reconcile(("", self.name))
            for task in list(self.nodes._running.values()):
                await task

    async def health(self):
        return await self.client.get(names.NODE_HEALTHS, None, self.name)

    async def remedy(self):
        return views.remedy(await self.health())

    async def taints(self):
        node = await self.client.get(names.NODES, None, self.name)
        return {t["key"]: t.get("value") for t in node["spec"].get("taints") or ()}

    async def pod(self):
        pod = nodes_verification.pod_name(self.name)
        return await self.client.find(names.PODS, "default", pod)

    async def checks(self, passed):
        message = json.dumps({"passed": passed})
        status = {
            "phase": "Succeeded" if passed else "Failed",
            "containerStatuses": [
                {
                    "name": "verify", "image": "x", "imageID": "", "ready": False,
                    "restartCount": 0,
                    "state": {"terminated": {"exitCode": 0 if passed else 1, "message": message}},
                }
            ],
        }  # fmt: skip
        pod = await self.pod()
        await self.client.patch(
            names.PODS, "default", pod["metadata"]["name"], {"status": status}, subresource="status"
        )

    async def end(self):
        for resource in (names.NODE_HEALTHS, names.NODES):
            with contextlib.suppress(NotFound):
                await self.client.delete(resource, None, self.name)
        if (pod := await self.pod()) is not None:
            await self.client.delete(
                names.PODS, "default", pod["metadata"]["name"], grace_period_seconds=0
            )


@pytest.fixture
async def world(client):
    world = World(client)
    await world.create()
    yield world
    await world.end()


LOST = ("xid-79-aa", "RebootNode")
DEAD = ("xid-64-bb", "HardwareTicket")
ECC = ("xid-95-cc", "ResetGpu")


async def until_verifying(world):
    await world.says("RebootNode", LOST)
    await world.step(4)
    await world.boot("b2")
    await world.says("Healthy")
    await world.step()


async def test_a_lost_gpu_is_drained_rebooted_proven_and_given_back(world):
    await world.says("RebootNode", LOST)
    await world.step()
    assert await world.taints() == {names.TAINT_HEALTH: "reboot_node"}
    assert (await world.remedy()).state is State.DRAINING
    await world.step(3)
    assert world.executor.orders == [(world.name, "xid-79-aa/b1/reboot_node")]
    await world.boot("b2")
    await world.says("Healthy")
    await world.step()
    assert (await world.remedy()).state is State.VERIFYING
    pod = await world.pod()
    assert pod["spec"]["nodeName"] == world.name
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    await world.step(2)
    assert names.TAINT_HEALTH in await world.taints()
    await world.checks(True)
    await world.step()
    assert await world.taints() == {}
    assert (await world.remedy()).state is State.DONE
    assert await world.pod() is None
    await world.step(3)
    assert len(world.executor.orders) == 1


async def test_checks_that_fail_lead_one_rung_up_to_the_vendor(world):
    await until_verifying(world)
    await world.checks(False)
    await world.step(4)
    remedy = await world.remedy()
    assert (remedy.rung, remedy.state) == (Rung.HARDWARE_TICKET, State.RUNNING)
    assert remedy.ticket
    assert await world.taints() == {names.TAINT_HEALTH: "hardware_ticket"}


async def test_as_shipped_nothing_is_reset_or_rebooted(world):
    world.config = RemediationConfig(budgets=WIDE)
    world.operator()
    await world.says("RebootNode", LOST)
    await world.step(5)
    remedy = await world.remedy()
    assert (remedy.state, remedy.execution.value) == (State.RUNNING, "NotStarted")


async def test_the_kill_switch_stops_at_once_and_lets_go_on(world, client):
    switch = {
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": SWITCH_NAME}, "data": {"stop": "true"},
    }  # fmt: skip
    await world.says("RebootNode", LOST)
    await world.step()
    await client.create(names.CONFIG_MAPS, switch)
    try:
        await world.step(5)
        assert world.executor.orders == []
    finally:
        await client.delete(names.CONFIG_MAPS, "default", SWITCH_NAME)
    await world.step(3)
    assert len(world.executor.orders) == 1


async def test_a_persons_cordon_and_other_taints_are_kept(client):
    world = World(client)
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    await world.create(taints=[cordon])
    await until_verifying(world)
    assert set(await world.taints()) == {cordon["key"], names.TAINT_HEALTH}
    await world.checks(True)
    await world.step()
    assert set(await world.taints()) == {cordon["key"]}
    await world.end()


async def test_budgets_keep_a_second_node_in_use_and_say_why(client):
    budgets = Budgets(share_at_once=0.01, share_per_cause=1.0)
    first, second = World(client, budgets=budgets), World(client, budgets=budgets)
    for world, incident in ((first, LOST), (second, DEAD)):
        await world.create()
        await world.says(incident[1], incident)
        await world.step()
    assert names.TAINT_HEALTH in await first.taints()
    assert await second.taints() == {}
    assert "are out already" in second.nodes.refused[second.name]
    await first.end()
    await second.step()
    assert names.TAINT_HEALTH in await second.taints()
    await second.end()


async def test_a_ticket_is_written_once_however_often_the_operator_restarts(client, tmp_path):
    world = World(client, tickets=FileTickets(tmp_path / "tickets"))
    await world.create()
    gpu = {"uuid": "GPU-1", "serial": "165", "busId": "0000:1b:00.0", "verdict": "HardwareTicket"}
    await world.says("HardwareTicket", DEAD, gpus=[gpu])
    for _ in range(6):
        world.operator()
        await world.step()
    (file,) = [f for f in (tmp_path / "tickets").iterdir() if f.suffix == ".json"]
    told = json.loads(file.read_text())
    assert told["gpus"] == [gpu]
    assert told["incident"]["id"] == DEAD[0]
    assert (await world.remedy()).ticket == file.name
    await world.end()


async def test_what_only_nvml_tells_is_remedied_too(world):
    gpu = {
        "uuid": "GPU-1", "verdict": "ResetGpu",
        "evidence": [{"source": "nvml", "observedAt": "2030-01-01T00:00:00Z", "text": "pending"}],
    }  # fmt: skip
    await world.says("ResetGpu", gpus=[gpu])
    await world.step(4)
    ((_, key),) = world.executor.orders
    assert key.endswith("/b1/reset_gpu")


async def test_a_reset_that_fails_becomes_a_reboot(client):
    world = World(client, executor=Recorder(success=False))
    await world.create()
    await world.says("ResetGpu", ECC)
    await world.step(12)
    rungs = [key.rpartition("/")[2] for _, key in world.executor.orders]
    assert rungs[:2] == ["reset_gpu", "reboot_node"]
    assert len(set(world.executor.orders)) == len(world.executor.orders)
    await world.end()


async def test_a_node_that_is_well_is_left_alone(world):
    await world.says("Watch", ("xid-13-dd", "RestartApp"))
    before = await world.health()
    assert await world.nodes.reconcile(("", world.name)) is None
    assert await world.health() == before


@pytest.mark.parametrize(("incident", "seconds"), [(LOST, "0"), (ECC, "0"), (DEAD, "120")])
async def test_taint_and_the_time_that_jobs_are_left_come_in_one_write(world, incident, seconds):
    await world.says(incident[1], incident)
    await world.step()
    node = await world.client.get(names.NODES, None, world.name)
    assert names.TAINT_HEALTH in await world.taints()
    assert node["metadata"]["annotations"][names.ANNOTATION_NOTICE] == seconds


async def test_a_node_that_is_given_back_says_nothing_of_a_notice_any_more(world):
    await until_verifying(world)
    await world.checks(True)
    await world.step()
    node = await world.client.get(names.NODES, None, world.name)
    assert names.ANNOTATION_NOTICE not in (node["metadata"].get("annotations") or {})


async def test_orders_tickets_and_repairs_are_counted(client, tmp_path):
    registry = CollectorRegistry()
    world = World(client, tickets=FileTickets(tmp_path / "tickets"))
    world.nodes = Nodes(
        client, world.config, lambda: world.now, world.asked_for.append, NodeMetrics(registry)
    )
    await world.create()
    await until_verifying(world)
    await world.checks(False)
    await world.step(4)
    await world.boot("b3")
    await world.step()
    world.now += 90.0
    await world.checks(True)
    await world.step()

    def count(name, **labels):
        return registry.get_sample_value(f"clusterops_remediation_{name}", labels)

    assert count("orders_total", rung="reboot_node", result="succeeded") == 1
    assert count("steps_total", rung="reboot_node", state="Failed") == 1
    assert count("steps_total", rung="hardware_ticket", state="Done") == 1
    assert count("tickets_total", result="opened") == 1
    assert count("seconds_sum") == 90.0
    await world.end()


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(10))
async def test_an_operator_killed_at_any_write_ends_up_where_an_unharmed_one_does(
    client, at, after
):
    world = World(client)
    await world.create()
    await world.says("RebootNode", LOST)
    world.operator(CrashingClient(client, at, after))
    rebooted = False
    deadline = time.monotonic() + 100
    while True:
        assert time.monotonic() < deadline, await world.health()
        try:
            await world.step()
        except KubeError:
            world.operator()
        if not world.nodes._running and world.executor.orders and not rebooted:
            rebooted = True
            await world.boot("b2")
            await world.says("Healthy")
        pod = await world.pod()
        if pod is not None and rebooted and (pod.get("status") or {}).get("phase") != "Succeeded":
            await world.checks(True)
        held = await world.remedy()
        if rebooted and held is not None and held.state is State.DONE and not await world.taints():
            break
        if held is not None and held.execution.value == "Started" and not rebooted:
            # Killed between the order and its start: a person reboots the node in the end.
            rebooted = True
            await world.boot("b2")
            await world.says("Healthy")
    assert len(world.executor.orders) <= 1
    assert len({a.incident for a in views.attempts(await world.health())}) == 1
    await world.end()
