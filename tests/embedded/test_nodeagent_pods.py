"""Node agents as processes against the embedded API server."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.embedded import EmbeddedServer
from support.nodeagent_api import Pods
from support.nodeagent_cluster import container_status, exit_code, pod_spec, shell
from support.nodeagent_process import AgentProcess
from support.nodeagent_shim import end_processes_of, is_running, until

pytestmark = pytest.mark.embedded

LOOP = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.05; done"


@pytest.fixture
def folder(embedded_server: EmbeddedServer, tmp_path: Path) -> Iterator[Path]:
    # Where the server reads logs is where agents write them.
    (tmp_path / "pod-logs").symlink_to(embedded_server.pod_logs)
    yield tmp_path
    end_processes_of(tmp_path)


@pytest.fixture
def agent(embedded_server: EmbeddedServer, namespace: str, folder: Path) -> Iterator[AgentProcess]:
    """An agent for a node named like the namespace, so that tests do not share one."""
    settings = {"pod_logs_dir": str(embedded_server.pod_logs)}
    with AgentProcess(folder, embedded_server.kubeconfig, namespace, **settings) as found:
        yield found


@pytest.fixture
def pods(embedded_server: EmbeddedServer, namespace: str) -> Pods:
    return Pods(embedded_server, namespace)


def pid_of(pod: dict) -> int:
    return int(container_status(pod)["containerID"].removeprefix("process://"))


def test_a_pod_runs_and_its_log_is_served(agent, pods) -> None:
    pods.create("p", pod_spec(shell("echo out; echo err >&2; exit 3")), agent.node)
    pod = pods.await_phase("p", "Failed")
    assert exit_code(pod) == 3
    assert sorted(pods.log("p").split()) == ["err", "out"]


def test_the_node_and_its_lease(agent, pods, embedded_server) -> None:
    def node() -> dict | None:
        answer = embedded_server.request("GET", f"/api/v1/nodes/{agent.node}")
        return answer.json if answer.status == 200 and answer.json.get("status") else None

    found = until(node, "the node")
    assert found["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert found["metadata"]["labels"]["clusterops.io/simulated"] == "true"
    assert not (found.get("spec") or {}).get("taints")
    ready = [c for c in found["status"]["conditions"] if c["type"] == "Ready"]
    assert ready[0]["status"] == "True"
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{agent.node}"
    lease = until(
        lambda: (answer := embedded_server.request("GET", path)).status == 200 and answer.json,
        "the lease",
    )
    assert lease["spec"]["holderIdentity"] == agent.node


def test_secrets_by_variable_and_file(agent, pods) -> None:
    pods.create_secret("keys", token="s3cret")
    env = [
        {"name": "T", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        {"name": "F", "value": "/var/run/keys/token"},
    ]
    container = shell('echo "$T $(cat "$F") $(stat -c %a "$F")"; env | grep -c SECRET_OF', env=env)
    container["volumeMounts"] = [{"name": "k", "mountPath": "/var/run/keys"}]
    volumes = [{"name": "k", "secret": {"secretName": "keys"}}]
    pods.create("p", pod_spec(container, volumes=volumes), agent.node)
    pods.await_phase("p", "Failed")  # grep found nothing of the agent's environment
    assert pods.log("p").split() == ["s3cret", "s3cret", "600", "0"]


def test_deletion_with_grace(agent, pods) -> None:
    pods.create("polite", pod_spec(shell(LOOP)), agent.node)
    pods.create("stubborn", pod_spec(shell(STUBBORN)), agent.node)
    pid = 0
    for name in ("polite", "stubborn"):
        pid = pid_of(pods.await_phase(name, "Running"))
        until(lambda name=name: "up" in pods.log(name), "its trap")
    pods.delete("polite")
    pods.await_gone("polite")
    pods.delete("stubborn", 300)
    assert is_running(pid)
    pods.delete("stubborn", 1)
    pods.await_gone("stubborn")
    assert not is_running(pid)


def test_claims_outlive_pods_and_are_shared_by_the_nodes_of_a_machine(
    agent, pods, embedded_server, folder
) -> None:
    claim = [{"name": "c", "persistentVolumeClaim": {"claimName": "checkpoints"}}]
    mount = {"volumeMounts": [{"name": "c", "mountPath": "/checkpoints"}]}
    env = [{"name": "FILE", "value": "/checkpoints/step"}]
    writer = shell('echo 42 > "$FILE"', env=env, **mount)
    reader = {"name": "main", "image": "x", "command": ["cat", "/checkpoints/step"], **mount}
    other = AgentProcess(
        folder,
        embedded_server.kubeconfig,
        f"{agent.node}-b",
        pod_logs_dir=str(embedded_server.pod_logs),
    )
    with other:
        pods.create("w", pod_spec(writer, volumes=claim), agent.node)
        pods.await_phase("w", "Succeeded")
        pods.delete("w")
        pods.await_gone("w")
        pods.create("r", pod_spec(reader, volumes=claim), other.node)
        pods.await_phase("r", "Succeeded")
    assert pods.log("r") == "42\n"


def test_a_killed_agent_loses_no_pod_no_log_and_no_exit_code(agent, pods, folder) -> None:
    script = f"echo before; while [ ! -e {folder}/go ]; do sleep 0.02; done; echo after; exit 5"
    pods.create("short", pod_spec(shell(script)), agent.node)
    pods.create("long", pod_spec(shell(LOOP)), agent.node)
    pods.await_phase("short", "Running")
    pid = pid_of(pods.await_phase("long", "Running"))
    agent.kill()
    (folder / "go").touch()
    until(lambda: list(folder.rglob("exit.json")), "its end without an agent")
    agent.start()
    assert exit_code(pods.await_phase("short", "Failed")) == 5
    assert pods.log("short").split() == ["before", "after"]
    assert pid_of(pods.await_phase("long", "Running")) == pid
    pods.delete("long")
    pods.await_gone("long")
    assert not is_running(pid)


def test_a_second_agent_on_the_same_folder_is_refused(agent, pods, folder) -> None:
    pods.create("p", pod_spec(shell("true")), agent.node)
    pods.await_phase("p", "Succeeded")
    second = AgentProcess(folder, Path(agent.settings["kubeconfig"]), agent.node)
    with second:
        assert second.process is not None
        assert second.process.wait(20) == 1
    assert "is used by another node agent" in second.log()


def test_stopping_leaves_the_pods_alone(agent, pods) -> None:
    pods.create("p", pod_spec(shell(LOOP)), agent.node)
    pid = pid_of(pods.await_phase("p", "Running"))
    assert agent.stop() == 0
    assert is_running(pid)


def test_kubectl_follows_the_log(agent, pods, embedded_server, folder) -> None:
    kubectl = ["kubectl", "--kubeconfig", str(embedded_server.kubeconfig), "-n", pods.namespace]
    if subprocess.run(["which", "kubectl"], capture_output=True, check=False).returncode:
        pytest.skip("kubectl is not installed")
    script = f"echo one; while [ ! -e {folder}/go ]; do sleep 0.02; done; echo two"
    pods.create("p", pod_spec(shell(script)), agent.node)
    pods.await_phase("p", "Running")
    with subprocess.Popen(
        [*kubectl, "logs", "-f", "p"], stdout=subprocess.PIPE, text=True
    ) as follow:
        assert follow.stdout is not None
        assert follow.stdout.readline() == "one\n"
        (folder / "go").touch()
        assert follow.stdout.readline() == "two\n"
        assert follow.wait(20) == 0


def test_an_idle_agent_is_small_and_still(agent, pods) -> None:
    pods.create("p", pod_spec(shell(LOOP)), agent.node)
    pods.await_phase("p", "Running")
    assert agent.process is not None
    proc = Path(f"/proc/{agent.process.pid}")
    loaded = {
        line.split()[-1].rpartition("/")[2]
        for line in proc.joinpath("maps").read_text().splitlines()
    }
    assert not [name for name in loaded if "pydantic" in name]
    statm = proc.joinpath("statm").read_text().split()
    assert int(statm[1]) * os.sysconf("SC_PAGE_SIZE") < 80 << 20

    def ticks() -> int:
        fields = proc.joinpath("stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before, since = ticks(), time.monotonic()
    until(lambda: time.monotonic() - since > 1.0, "a second of idleness")
    assert ticks() - before <= 20  # of 100 a second
