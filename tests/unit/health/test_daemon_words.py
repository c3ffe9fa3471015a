"""When the daemon speaks: not before it has read what was there, and again when a job has failed."""

import asyncio
import contextlib

import pytest
from support.health_kmsg import FakeKmsg
from support.kube_cluster import FakeCluster, FakeTransport

from clusterops.api import names
from clusterops.core.settings import Settings
from clusterops.kube.client import Client
from health import daemon as daemons
from health import shipped
from health.daemon import Daemon, DaemonConfig
from health.ledger import Ledger

XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid=7, name=python, GPU has fallen off the bus."
LABELS = {names.LABEL_JOB: "llm"}


class Node:
    """A daemon in this process, and every status that it has written."""

    def __init__(self, folder):
        self.cluster = FakeCluster()
        self.kmsg = FakeKmsg(folder / "kmsg")
        self._config = DaemonConfig("n1", folder / "l.db", kmsg=self.kmsg.path, nvml=False, port=0,
                                    boot_id="b1")  # fmt: skip

    @contextlib.asynccontextmanager
    async def running(self):
        ledger = Ledger(self._config.ledger)
        client = Client(FakeTransport(self.cluster))
        daemon = Daemon(self._config, shipped.policy(), ledger, client)
        stop = asyncio.Event()
        task = asyncio.create_task(daemon.run(stop, None))
        try:
            yield daemon
        finally:
            stop.set()
            await task
            ledger.close()

    def said(self):
        """The verdicts in the order in which they were written."""
        return [
            change.object["status"]["verdict"]
            for change in self.cluster.history
            if change.plural == "nodehealths" and "status" in change.object
        ]

    def fail_a_pod(self, name):
        metadata = {"labels": LABELS, "uid": f"uid-{name}"}
        spec = {"nodeName": "n1"}
        self.cluster.put(
            "pods", "r", name, metadata=metadata, spec=spec, status={"phase": "Failed"}
        )


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


async def test_a_daemon_that_comes_back_never_calls_well_what_broke_meanwhile(node):
    async with node.running():
        await until(node.said)
    assert node.said() == ["Healthy"]
    for number in range(3000):
        node.kmsg.say(f"usb 1-1: nothing of ours {number}", seconds=number / 100)
    node.kmsg.say(XID, seconds=40)
    async with node.running():
        await until(lambda: len(node.said()) > 1)
    assert node.said()[1] == "RebootNode"


async def test_a_log_that_cannot_be_read_does_not_keep_the_daemon_silent(node, caplog):
    node.kmsg.path.unlink()
    async with node.running() as daemon:
        await until(node.said)
        assert daemon.status()["conditions"][0]["reason"] == "KernelLogUnreadable"


async def test_after_a_jobs_pod_failed_the_node_says_how_it_is_though_nothing_changed(node):
    async with node.running() as daemon:
        await until(node.said)
        writes = daemon.publisher.writes
        node.fail_a_pod("llm-1-0")
        await until(lambda: daemon.publisher.writes > writes)
    assert node.said() == ["Healthy", "Healthy"]


def test_a_word_comes_late_enough_to_settle_whose_error_a_failure_was():
    assert Settings().fault_settle_seconds < daemons.WORD_SECONDS
