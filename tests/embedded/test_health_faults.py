"""From a line in a node's kernel log to a job that goes on elsewhere, a ticket, and a proven return.

All of it is real: two node agents, two health daemons, the operator, the queue, the API server, each a
process; the machines alone are simulated.
"""

import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.health_local import KILLED, Watch, steady_job, watched
from support.local_run import LocalRun

from clusterops.api import names

pytestmark = [pytest.mark.embedded, pytest.mark.slow, pytest.mark.timeout(300)]

# What is done about a lost GPU that no reboot brings back, and nothing else, in this order.
COURSE = [
    ("reboot_node", "Draining"),
    ("reboot_node", "Running"),
    ("reboot_node", "Verifying"),
    ("reboot_node", "Failed"),
    ("hardware_ticket", "Draining"),
    ("hardware_ticket", "Running"),
    ("hardware_ticket", "Verifying"),
    ("hardware_ticket", "Done"),
]


async def break_a_gpu(watch: Watch, *fault: str, dies_first: bool = False) -> str:
    """Runs the job, and breaks a GPU under it once it has saved twice; the node that is broken."""
    await watch.client.create(names.TRAINING_JOBS, steady_job())

    async def has_saved() -> bool:
        return len(watch.saved()) >= 2

    await watch.until("two checkpoints", has_saved)
    node = await watch.running_on(1)
    assert node is not None
    if dies_first:
        # As a program may that has lost its GPU: before anybody knows why.
        (pid,) = watch.job_processes()
        os.kill(pid, signal.SIGKILL)
    watch.command("health", "inject", *fault, "--node", node)
    return node


async def see_it_through(watch: Watch, broken: str) -> None:
    """Waits for the job elsewhere, the ticket, the vendor, and the node's return."""

    async def elsewhere() -> str | None:
        return await watch.running_on(2)

    assert await watch.until("the job to go on", elsewhere) != broken

    async def at_the_vendor() -> bool:
        health = await watch.client.get(names.NODE_HEALTHS, None, broken)
        return bool(health["spec"]["remediation"].get("ticket"))

    await watch.until("a ticket", at_the_vendor)
    assert watch.taints[-1] == (broken, "hardware_ticket"), "it is kept out until it is proven"
    watch.command("health", "inject", "replaced", "--node", broken)

    async def given_back() -> bool:
        return watch.taints[-1] == (broken, None)

    await watch.until("the node to be given back", given_back)


async def check(watch: Watch, broken: str) -> None:
    """What must hold however often parts were killed on the way."""
    assert [(rung, state) for node, rung, state in watch.states if node == broken] == COURSE
    assert {node for node, _, _ in watch.states} == {broken}
    (ticket,) = watch.tickets()
    assert (ticket["node"], ticket["class"]) == (broken, "xid-79")
    assert ticket["gpus"][0]["serial"]
    boot = (watch.run.folder / "nodes" / broken / "machine" / "boot-id").read_text().strip()
    assert boot.endswith("-000000000002"), "rebooted once by the operator, once by the vendor"
    status = await watch.status()
    first, second = status["attempts"]
    assert (first["cause"], first.get("faultyNodes")) == ("NodeFault", [broken])
    assert status["counts"]["userErrors"] == 0
    assert second.get("cause") is None
    assert first["lostSteps"] <= first["lastStep"] - first["durableStep"]
    began = watch.began()
    assert began[0] == 0
    assert began[1] >= first["durableStep"] > 0
    assert len(began) == 2


@pytest.fixture
def run(tmp_path: Path):
    run = LocalRun(tmp_path / "state")
    run.start()
    yield run
    run.stop()


async def test_a_job_loses_a_gpu_and_goes_on_and_the_node_comes_back_when_it_is_proven(
    run: LocalRun,
) -> None:
    async with watched(run) as watch:
        broken = await break_a_gpu(watch, "bus", "--stays")
        await see_it_through(watch, broken)
        await check(watch, broken)


async def test_where_a_fault_leaves_time_the_job_saves_first_and_a_reset_is_enough(
    run: LocalRun,
) -> None:
    async with watched(run) as watch:
        broken = await break_a_gpu(watch, "drain")

        async def given_back() -> bool:
            return watch.states[-1:] == [(broken, "reset_gpu", "Done")] and watch.taints[-1] == (
                broken,
                None,
            )

        await watch.until("the node to be given back", given_back)
        assert [state for _, rung, state in watch.states if rung == "reset_gpu"] == [
            "Draining",
            "Running",
            "Verifying",
            "Done",
        ]

        async def elsewhere() -> str | None:
            return await watch.running_on(2)

        assert await watch.until("the job to go on", elsewhere) != broken
        first = (await watch.status())["attempts"][0]
        assert (first["cause"], first["lostSteps"]) == ("NodeFault", 0)
        assert watch.began() == [0, first["durableStep"]]
        assert watch.tickets() == []


TURNS = itertools.cycle([KILLED[:1], KILLED[1:]])
AT_EVERY_STEP = [
    pytest.param(lambda: next(TURNS), id="in turns"),
    pytest.param(
        lambda: KILLED,
        id="all at once",
        marks=pytest.mark.skipif("CLUSTEROPS_SOAK" not in os.environ, reason="a long run"),
    ),
]


@pytest.mark.parametrize("killed", AT_EVERY_STEP)
async def test_the_program_dying_first_and_daemons_and_operator_killed_at_every_step_change_nothing(
    run: LocalRun, killed: Callable[[], tuple[str, ...]]
) -> None:
    async with watched(run) as watch:
        watch.on_state = lambda: watch.kill(*killed())
        broken = await break_a_gpu(watch, "bus", "--stays", dies_first=True)
        watch.kill(*KILLED)
        await see_it_through(watch, broken)
        await check(watch, broken)
