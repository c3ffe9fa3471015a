"""The queue killed at any moment: it goes on as if nothing had been, and never gives too much."""

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.embedded import EmbeddedServer
from support.scheduling_cluster import GPU, QueueCluster, cluster

from clusterops.api import names
from clusterops.scheduling import parse

pytestmark = pytest.mark.embedded

ROOT = Path(__file__).parents[2]
SCRIPT = """
import asyncio, ctypes, signal, sys
from pathlib import Path
from clusterops.queueing.run import serve
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
asyncio.run(serve(Path(sys.argv[1]), asyncio.Event()))
"""
GPUS = 8


class QueueProcess:
    """The queue as a process of its own."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self.kubeconfig = kubeconfig
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SCRIPT, str(self.kubeconfig)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )

    def kill(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, f"the queue ended: {self.log.read_text()}"
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)


@contextlib.contextmanager
def queue_process(server: EmbeddedServer, folder: Path) -> Iterator[QueueProcess]:
    process = QueueProcess(server.kubeconfig, folder / "queue.log")
    process.start()
    try:
        yield process
    finally:
        process.kill()


async def all_workloads(world: QueueCluster) -> list[parse.Json]:
    items, _ = await world.client.list(names.WORKLOADS, world.namespace)
    return list(items)


def held(items: list[parse.Json]) -> int:
    """GPUs held by all reservations that count."""
    workloads = [parse.workload(each) for each in items]
    return sum(
        amount
        for workload in workloads
        if workload.holds_quota
        for unit, amount in workload.usage().items()
        if unit.resource == GPU
    )


async def act_as_owner(world: QueueCluster, items: list[parse.Json]) -> int:
    """Releases the evicted, finishes every admitted one; returns how many are not finished yet."""
    left = 0
    for raw in items:
        workload = parse.workload(raw)
        if workload.finished:
            continue
        left += 1
        if workload.evicted and workload.admission is not None:
            await world.release(workload.name)
        elif workload.admitted and not workload.evicted and workload.priority < 100:
            await world.set_condition(workload.name, "Finished", "True", "Succeeded")
        elif workload.admitted and not workload.evicted:
            # The urgent ones finish a little later, so that there is something to preempt for.
            await world.client.patch(
                names.WORKLOADS, world.namespace, workload.name, {"spec": {"priority": 99}}
            )
    return left


@pytest.mark.parametrize("seed", [1, 2])
async def test_killed_again_and_again_it_finishes_everything_and_never_exceeds_its_quota(
    embedded_server: EmbeddedServer, namespace: str, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    async with cluster(embedded_server.kubeconfig, namespace) as world:
        await world.flavor()
        await world.queue(GPUS)
        for number in range(16):
            await world.workload(
                f"w{number}", chance.randint(1, GPUS), priority=chance.choice([0, 1, 2, 200])
            )
        with queue_process(embedded_server, tmp_path) as queue:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + 90
            # By progress and not by the clock: a fast machine must not be over before the first.
            kill_when_left = sorted(chance.sample(range(1, 17), 5))
            while True:
                items = await all_workloads(world)
                assert held(items) <= GPUS
                left = await act_as_owner(world, items)
                if left == 0:
                    break
                if kill_when_left and left <= kill_when_left[-1]:
                    kill_when_left = [count for count in kill_when_left if count < left]
                    await asyncio.sleep(chance.uniform(0, 0.5))  # anywhere in what it does next
                    queue.kill()
                    queue.start()
                assert loop.time() < deadline, f"not all finished; seed {seed}, {left} left"
        assert len(kill_when_left) < 5


async def test_a_restart_in_the_window_keeps_the_preemptor_first(
    embedded_server: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    """A higher newcomer of the same queue waits behind the sticky preemptor, restart or not."""
    async with cluster(embedded_server.kubeconfig, namespace) as world:
        await world.flavor()
        await world.queue(GPUS)
        with queue_process(embedded_server, tmp_path) as queue:
            await world.workload("victim", GPUS)
            await world.admitted("victim")
            await world.workload("preemptor", GPUS, priority=10)
            await world.until("victim", "Evicted", reason="Preempted")
            queue.kill()
            await world.workload("newcomer", GPUS, priority=5)
            queue.start()
            await world.until("preemptor", "QuotaReserved", "False", "Pending")
            await world.release("victim")
            await world.admitted("preemptor")
            assert not await world.has("newcomer", "QuotaReserved")
