"""kill -9 of the agent at each of its write points: nothing is lost, nothing runs twice."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.embedded import EmbeddedServer
from support.nodeagent_api import Pods
from support.nodeagent_cluster import exit_code, pod_spec, shell
from support.nodeagent_process import AgentProcess
from support.nodeagent_shim import end_processes_of, is_running, read_json, until

from clusterops.nodeagent.config import WRITE_POINTS

pytestmark = pytest.mark.embedded

OF_A_START = ("pod-recorded", "volumes-written", "launch-written", "shim-started")
OF_AN_END = ("status-written", "pod-ended")
OF_A_DELETION = ("stop-requested", "stop-sent", "pod-deleted", "pod-forgotten")
OF_A_LOSS = ("leftovers-ended", "exit-written")


@pytest.fixture
def agent(
    embedded_server: EmbeddedServer, namespace: str, tmp_path: Path
) -> Iterator[AgentProcess]:
    """Not started yet."""
    settings = {"pod_logs_dir": str(embedded_server.pod_logs)}
    found = AgentProcess(tmp_path, embedded_server.kubeconfig, namespace, **settings)
    yield found
    if found.process is not None and found.process.poll() is None:
        found.kill()
    end_processes_of(tmp_path)


@pytest.fixture
def pods(embedded_server: EmbeddedServer, namespace: str) -> Pods:
    return Pods(embedded_server, namespace)


def test_every_write_point_is_crashed_at() -> None:
    named = (*OF_A_START, *OF_AN_END, *OF_A_DELETION, *OF_A_LOSS)
    assert sorted(named) == sorted(WRITE_POINTS)


@pytest.mark.parametrize("point", [*OF_A_START, *OF_AN_END])
def test_a_pod_starts_once_and_its_exit_is_reported(agent, pods, tmp_path, point) -> None:
    script = f"echo start >> {tmp_path}/starts; exit 7"
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "4"}}}
    agent.start(crash_at=point)
    pods.create("p", pod_spec(shell(script, **gpu)), agent.node)
    agent.wait_for_crash()
    agent.start()
    assert exit_code(pods.await_phase("p", "Failed")) == 7
    assert (tmp_path / "starts").read_text() == "start\n"
    # Its GPUs are free again.
    pods.create("q", pod_spec(shell("exit 0", **gpu)), agent.node)
    pods.await_phase("q", "Succeeded")


@pytest.mark.parametrize("point", OF_A_DELETION)
def test_a_deletion_is_completed(agent, pods, tmp_path, point) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    agent.start(crash_at=point)
    pods.create("p", pod_spec(shell(script)), agent.node)
    pods.await_phase("p", "Running")
    [running] = tmp_path.rglob("running.json")
    pids = [read_json(running)[role]["pid"] for role in ("shim", "process")]
    pods.delete("p", 1)
    agent.wait_for_crash()
    agent.start()
    pods.await_gone("p")
    assert not any(map(is_running, pids))
    until(
        lambda: not list((tmp_path / "nodes" / agent.node / "pods").iterdir()), "its records gone"
    )


@pytest.mark.parametrize("point", OF_A_LOSS)
def test_a_lost_supervisor_is_dealt_with(agent, pods, tmp_path, point) -> None:
    agent.start(crash_at=point)
    pods.create("p", pod_spec(shell("sleep 1000")), agent.node)
    pods.await_phase("p", "Running")
    [running] = tmp_path.rglob("running.json")
    os.kill(read_json(running)["shim"]["pid"], 9)
    agent.wait_for_crash()
    agent.start()
    pod = pods.await_phase("p", "Failed")
    assert pod["status"]["reason"] == "SupervisorLost"
    assert exit_code(pod) == 137
    assert not is_running(read_json(running)["process"]["pid"])


def test_an_orphan_of_a_crash_is_ended(agent, pods, tmp_path) -> None:
    agent.start()
    pods.create("p", pod_spec(shell("sleep 1000")), agent.node)
    pods.await_phase("p", "Running")
    [running] = tmp_path.rglob("running.json")
    pid = read_json(running)["process"]["pid"]
    agent.kill()
    pods.delete("p", 0)
    pods.await_gone("p")
    assert is_running(pid)
    agent.start()
    until(lambda: not is_running(pid), "its end")
