"""The daemon as a real process beside a real API server: killed, restarted, and told the truth."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import pytest
from support.embedded import EmbeddedServer, free_port
from support.health_kmsg import FakeKmsg
from support.health_nvml.build import Scenario, library

pytestmark = [pytest.mark.embedded, pytest.mark.slow]

XID = "NVRM: Xid (PCI:0000:1b:00): {}, pid=7, name=python, what happened"
URL = "/apis/clusterops.io/v1alpha1/nodehealths/n1"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with EmbeddedServer(tmp_path_factory.mktemp("server")) as server:
        yield server


class Node:
    """One node's files and processes."""

    def __init__(self, folder, server):
        self.folder, self.server = folder, server
        self.kmsg = FakeKmsg(folder / "kmsg")
        self.port = free_port()
        self.environment = dict(os.environ)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "clusterops.cli", "health", *arguments],
                env=self.environment, stdout=log, stderr=log,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def daemon(self, *more: str, boot: str = "b1") -> subprocess.Popen[bytes]:
        source = () if "--socket" in more else ("--kmsg", str(self.kmsg.path))
        return self.start(
            "daemon", "--node", "n1", "--ledger", str(self.folder / "l" / "health.db"),
            "--kubeconfig", str(self.server.kubeconfig), "--port", str(self.port),
            "--boot-id", boot, "--die-with", str(os.getpid()), *source, *more,
        )  # fmt: skip

    def status(self):
        answer = self.server.request("GET", URL)
        return (answer.json.get("status") or {}) if answer.status == 200 else {}

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=20) as answer:
            return answer.read().decode()

    def until(self, condition, what):
        deadline = time.monotonic() + 60.0
        while not condition():
            assert time.monotonic() < deadline, (
                f"waited for {what}: {json.dumps(self.status())} {(self.folder / 'log').read_text()}"
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.processes[-1].wait(0.05)

    def until_verdict(self, verdict):
        self.until(lambda: self.status().get("verdict") == verdict, verdict)

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(30)


@pytest.fixture
def node(tmp_path, server):
    node = Node(tmp_path, server)
    yield node
    node.end()
    server.request("DELETE", URL)


def test_a_killed_daemon_comes_back_to_the_same_verdict_and_reads_on(node):
    first = node.daemon("--no-nvml")
    node.until_verdict("Healthy")
    node.kmsg.say(XID.format(13))
    node.kmsg.say(XID.format(79))
    node.until_verdict("RebootNode")
    before = node.status()
    first.kill()
    first.wait(30)
    node.kmsg.say(XID.format(45))
    node.daemon("--no-nvml")
    node.until(
        lambda: "45" in json.dumps(node.status()["gpus"][0]["evidence"]), "what came meanwhile"
    )
    after = node.status()
    assert after["since"] == before["since"]
    assert [i["id"] for i in after["incidents"]] == [i["id"] for i in before["incidents"]]
    assert 'code="xid:79"} 1\n' in node.metrics()


def test_reader_and_daemon_apart_and_the_end_of_each_is_seen(node):
    socket = node.folder / "socket"
    node.daemon("--no-nvml", "--socket", str(socket))
    node.until(lambda: "NoReader" in json.dumps(node.status()), "no reader")
    reader = node.start(
        "reader", "--socket", str(socket), "--source", str(node.kmsg.path), "--boot-id", "b1"
    )
    node.kmsg.say(XID.format(79))
    node.until_verdict("RebootNode")
    node.until(lambda: "SourcesAnswer" in json.dumps(node.status()), "a whole watch")
    reader.kill()
    reader.wait(30)
    node.until(lambda: "NoReader" in json.dumps(node.status()), "no reader again")
    assert node.status()["verdict"] == "RebootNode"


@pytest.mark.slow
def test_nvml_is_part_of_the_verdict_and_a_hang_blames_no_hardware(node, tmp_path):
    scenario = Scenario(tmp_path, library(tmp_path / "nvml"))
    node.environment = scenario.environment()
    node.daemon()
    node.until_verdict("Healthy")
    scenario.gpu(0, remap_failure=1)
    node.until_verdict("HardwareTicket")
    (gpu,) = node.status()["gpus"]
    assert gpu["uuid"].startswith("GPU-0000")
    assert (gpu["driver"], gpu["slot"], gpu["vbios"]) == ("580.65.06", "module 3", "96.00.74.00.01")
    for state in ("expected", "answering"):
        assert f'clusterops_health_gpus{{state="{state}"}} 1\n' in node.metrics()
    scenario.unset("0.remap_failure")
    node.until_verdict("Healthy")
    scenario.set(hang__fields=1)
    node.until(lambda: "NvmlHangs" in json.dumps(node.status()), "the hang")
    assert node.status()["verdict"] == "Watch"
    scenario.unset("hang.fields")
    node.until_verdict("Healthy")


def test_a_reboot_ends_what_needed_one(node):
    first = node.daemon("--no-nvml")
    node.kmsg.say(XID.format(79))
    node.until_verdict("RebootNode")
    first.send_signal(signal.SIGTERM)
    assert first.wait(30) == 0
    node.kmsg.path.write_bytes(b"")
    node.daemon("--no-nvml", boot="b2")
    node.until_verdict("Healthy")
    assert node.status()["incidents"][0]["closedAt"]


def test_settings_that_cannot_work_are_refused_in_words(node):
    process = node.daemon("--no-nvml", "--journal")
    assert process.wait(60) == 1
    assert "exactly one way" in (node.folder / "log").read_text()
