"""The agent with real processes and an API server in memory: what pods do and what is reported."""

import asyncio
import base64
import os
import signal
import sys

import pytest
from support.kube_cluster import FakeTransport, status_answer
from support.nodeagent_cluster import (
    NAMESPACE,
    PodCluster,
    agent_config,
    container_status,
    eventually,
    exit_code,
    phase,
    pod_spec,
    python,
    running_agent,
    shell,
)
from support.nodeagent_shim import is_running, read_json

from clusterops.kube.errors import Unreachable
from clusterops.nodeagent.pod_lifecycle import STATE_LOST, SUPERVISOR_LOST

pytestmark = pytest.mark.usefixtures("no_leftovers")

LOOP = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"
STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.05; done"


@pytest.fixture
async def agent(tmp_path, transport: FakeTransport):
    async with running_agent(agent_config(tmp_path), transport) as stop:
        yield stop


async def is_phase(cluster: PodCluster, name: str, wanted: str) -> dict:
    await eventually(
        lambda: phase(cluster, name) == wanted, f"{name} {wanted}: {cluster.pod(name)}"
    )
    found = cluster.pod(name)
    assert found is not None
    return found


async def is_gone(cluster: PodCluster, name: str) -> None:
    await eventually(lambda: cluster.pod(name) is None, f"{name} gone")


def pid_of(pod: dict, name: str = "main") -> int:
    return int(container_status(pod, name)["containerID"].removeprefix("process://"))


def output(tmp_path, pod: dict, container: str = "main", run: int = 0) -> str:
    metadata = pod["metadata"]
    folder = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
    path = tmp_path / "pod-logs" / folder / container / f"{run}.log"
    return "\n".join(line.split(" ", 3)[3] for line in path.read_text().split("\n")[:-1])


def waiting_reason(cluster: PodCluster, name: str) -> str:
    pod = cluster.pod(name)
    if pod is None or "containerStatuses" not in pod.get("status", {}):
        return ""
    return container_status(pod)["state"].get("waiting", {}).get("reason", "")


async def test_a_pod_runs_and_its_exit_code_is_reported(agent, cluster, tmp_path) -> None:
    cluster.create_pod("ok", pod_spec(shell("echo hello")))
    cluster.create_pod("bad", pod_spec(shell("exit 3")))
    ok = await is_phase(cluster, "ok", "Succeeded")
    bad = await is_phase(cluster, "bad", "Failed")
    assert exit_code(ok) == 0
    assert exit_code(bad) == 3
    assert output(tmp_path, ok) == "hello"


async def test_only_the_pods_of_this_node_are_asked_for(agent, cluster, transport) -> None:
    cluster.create_pod("mine", pod_spec(shell("true")))
    await is_phase(cluster, "mine", "Succeeded")
    asked = [query for method, path, query in transport.requests if path == "/api/v1/pods"]
    assert asked
    assert {query["fieldSelector"] for query in asked} == {"spec.nodeName=node-a"}


async def test_containers_and_init_containers(agent, cluster, tmp_path) -> None:
    init = [shell("echo one > $DIR/f", "first", env=[{"name": "DIR", "value": "/shared"}])]
    mount = [{"name": "s", "mountPath": "/shared"}]
    init[0]["volumeMounts"] = mount
    init.append({**shell("exit 0", "second"), "command": ["cp", "/shared/f", "/shared/g"]})
    init[1]["volumeMounts"] = mount
    reader = {"name": "a", "image": "x", "command": ["cat", "/shared/g"], "volumeMounts": mount}
    spec = pod_spec(reader, shell("exit 2", "b"), initContainers=init, volumes=[{"name": "s"}])
    cluster.create_pod("many", spec)
    pod = await is_phase(cluster, "many", "Failed")
    assert [exit_code(pod, name) for name in ("first", "second", "a", "b")] == [0, 0, 0, 2]
    assert output(tmp_path, pod, "a") == "one"


async def test_a_failing_init_container_keeps_the_others_from_starting(agent, cluster) -> None:
    spec = pod_spec(shell("echo never"), initContainers=[shell("exit 4", "init")])
    cluster.create_pod("p", spec)
    pod = await is_phase(cluster, "p", "Failed")
    assert exit_code(pod, "init") == 4
    assert container_status(pod)["state"]["waiting"]["reason"] == "PodInitializing"


async def test_secrets_arrive_by_variable_and_file_and_are_waited_for(
    agent, cluster, tmp_path
) -> None:
    env = [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}}]
    container = {
        **shell(
            'echo "$T"; cat "$F"; stat -c %a "$F"', env=[*env, {"name": "F", "value": "/s/token"}]
        ),
        "volumeMounts": [{"name": "s", "mountPath": "/s"}],
    }
    volumes = [{"name": "s", "secret": {"secretName": "keys"}}]
    cluster.create_pod("p", pod_spec(container, volumes=volumes))
    await eventually(
        lambda: waiting_reason(cluster, "p") == "CreateContainerConfigError", "the waiting reason"
    )
    pod = cluster.pod("p")
    assert pod is not None
    assert "secret 'keys' not found" in container_status(pod)["state"]["waiting"]["message"]
    assert pod["status"]["phase"] == "Pending"
    secret = {"token": base64.b64encode(b"s3cret\n").decode()}
    cluster.put("secrets", NAMESPACE, "keys", data=secret)
    pod = await is_phase(cluster, "p", "Succeeded")
    assert output(tmp_path, pod).split() == ["s3cret", "s3cret", "600"]


async def test_deletion_gives_grace_then_kills_then_confirms(agent, cluster, tmp_path) -> None:
    cluster.create_pod("polite", pod_spec(shell(LOOP)))
    cluster.create_pod("stubborn", pod_spec(shell(STUBBORN), terminationGracePeriodSeconds=1))
    for name in ("polite", "stubborn"):
        pod = await is_phase(cluster, name, "Running")
        await eventually(lambda pod=pod: "up" in output(tmp_path, pod), "its trap")
        cluster.delete_pod(name)
    pid = pid_of(pod)
    await is_gone(cluster, "polite")
    await is_gone(cluster, "stubborn")
    assert not is_running(pid)
    last = [c.object for c in cluster.history if c.object["metadata"]["name"] == "stubborn"][-1]
    assert exit_code(last) == 137
    assert last["status"]["phase"] == "Failed"
    await eventually(lambda: not list((tmp_path / "node/pods").iterdir()), "its records gone")


async def test_a_second_deletion_shortens_the_grace(agent, cluster, tmp_path) -> None:
    cluster.create_pod("p", pod_spec(shell(STUBBORN), terminationGracePeriodSeconds=3600))
    pod = await is_phase(cluster, "p", "Running")
    await eventually(lambda: "up" in output(tmp_path, pod), "its trap")
    cluster.delete_pod("p")
    await eventually(lambda: list(tmp_path.rglob("stop.json")), "the first request")
    cluster.delete_pod("p", 1)
    await is_gone(cluster, "p")


async def test_a_pod_deleted_by_force_is_ended_and_its_successor_runs(
    agent, cluster, tmp_path
) -> None:
    cluster.create_pod("p", pod_spec(shell(STUBBORN)), uid="first")
    pid = pid_of(await is_phase(cluster, "p", "Running"))
    cluster.delete_pod("p", 0)
    cluster.create_pod("p", pod_spec(shell("exit 9")), uid="second")
    pod = await is_phase(cluster, "p", "Failed")
    assert exit_code(pod) == 9
    await eventually(lambda: not is_running(pid), "the end of the first")


async def test_gpus_are_given_without_overlap_and_waited_for(agent, cluster, tmp_path) -> None:
    def wants(number: int, script: str) -> dict:
        script = f'echo "gpus=$CUDA_VISIBLE_DEVICES"; {script}'
        return shell(script, resources={"limits": {"nvidia.com/gpu": str(number)}})

    cluster.create_pod("a", pod_spec(wants(3, STUBBORN)))
    a = await is_phase(cluster, "a", "Running")
    cluster.create_pod("b", pod_spec(wants(1, "exit 0")))
    b = await is_phase(cluster, "b", "Succeeded")
    await eventually(lambda: "up" in output(tmp_path, a), "its output")
    assert output(tmp_path, a).splitlines()[0] == "gpus=0,1,2"
    assert output(tmp_path, b) == "gpus=3"
    # Deleted by force: gone from the server while its processes still hold the GPUs.
    cluster.delete_pod("a", 0)
    cluster.create_pod("c", pod_spec(wants(4, "exit 0")))
    c = await is_phase(cluster, "c", "Succeeded")
    assert output(tmp_path, c) == "gpus=0,1,2,3"


async def test_more_gpus_than_are_free_and_nobody_leaving_fails_the_pod(agent, cluster) -> None:
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "3"}}}
    cluster.create_pod("a", pod_spec(shell(LOOP, **gpu)))
    await is_phase(cluster, "a", "Running")
    cluster.create_pod("b", pod_spec(shell("true", **gpu)))
    b = await is_phase(cluster, "b", "Failed")
    assert b["status"]["reason"] == "OutOfnvidia.com/gpu"


async def test_restarts_are_counted_and_logged_apart(agent, cluster, tmp_path) -> None:
    script = 'n=$(cat n 2>/dev/null || echo 0); echo $((n+1)) > n; echo "run $n"; exit $((1 - n))'
    cluster.create_pod("p", pod_spec(shell(script), restartPolicy="OnFailure"))
    pod = await is_phase(cluster, "p", "Succeeded")
    status = container_status(pod)
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert [output(tmp_path, pod, run=run) for run in (0, 1)] == ["run 0", "run 1"]


async def test_the_deadline_ends_a_pod(agent, cluster) -> None:
    cluster.create_pod("p", pod_spec(shell(LOOP), activeDeadlineSeconds=1))
    pod = await is_phase(cluster, "p", "Failed")
    assert pod["status"]["reason"] == "DeadlineExceeded"


@pytest.mark.parametrize(
    ("container", "code", "words"),
    [
        ({"command": ["no-such-program"]}, 127, "not found in PATH"),
        ({"command": ["/etc/passwd"]}, 126, "cannot be executed"),
        ({"command": ["true"], "workingDir": "/no/such"}, 128, "working directory"),
        ({}, 128, "no command"),
    ],
)
async def test_a_start_that_can_never_work_ends_the_pod(
    agent, cluster, container, code, words
) -> None:
    cluster.create_pod("p", pod_spec({"name": "main", "image": "x", **container}))
    pod = await is_phase(cluster, "p", "Failed")
    terminated = container_status(pod)["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (code, "StartError")
    assert words in terminated["message"]


async def test_a_volume_of_an_unknown_kind_fails_the_pod_with_its_name(agent, cluster) -> None:
    volumes = [{"name": "v", "nfs": {"server": "x", "path": "/"}}]
    cluster.create_pod("p", pod_spec(shell("true"), volumes=volumes))
    pod = await is_phase(cluster, "p", "Failed")
    assert pod["status"]["reason"] == "UnsupportedPod"
    assert "nfs" in pod["status"]["message"]


async def test_termination_messages(agent, cluster) -> None:
    env = [{"name": "OUT", "value": "/dev/termination-log"}]
    cluster.create_pod("file", pod_spec(shell('echo "all well" > "$OUT"', env=env)))
    logs = shell(
        "echo first; echo last >&2; exit 1", terminationMessagePolicy="FallbackToLogsOnError"
    )
    cluster.create_pod("logs", pod_spec(logs))
    file = await is_phase(cluster, "file", "Succeeded")
    assert container_status(file)["state"]["terminated"]["message"] == "all well\n"
    found = await is_phase(cluster, "logs", "Failed")
    message = container_status(found)["state"]["terminated"]["message"]
    assert sorted(message.split()) == ["first", "last"]


async def test_a_killed_shim_fails_the_pod_and_its_strays_are_ended(
    agent, cluster, tmp_path
) -> None:
    script = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        print('stray', os.getpid(), flush=True); time.sleep(1000)\n"
        "    os._exit(0)\n"
        "time.sleep(1000)\n"
    )
    cluster.create_pod("p", pod_spec(python(script)))
    pod = await is_phase(cluster, "p", "Running")
    await eventually(lambda: "stray" in output(tmp_path, pod), "the stray")
    stray = int(output(tmp_path, pod).split()[1])
    [running] = tmp_path.rglob("running.json")
    os.kill(read_json(running)["shim"]["pid"], signal.SIGKILL)
    pod = await is_phase(cluster, "p", "Failed")
    assert pod["status"]["reason"] == SUPERVISOR_LOST
    terminated = container_status(pod)["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (137, "ContainerStatusUnknown")
    assert not is_running(pid_of(pod))
    assert not is_running(stray)


async def test_statuses_wait_for_the_api_server_and_pods_do_not(
    agent, cluster, transport, tmp_path
) -> None:
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 5"
    cluster.create_pod("p", pod_spec(shell(wait)))
    pid = pid_of(await is_phase(cluster, "p", "Running"))
    transport.before = lambda _, path: Unreachable("down") if "/pods" in path else None
    (tmp_path / "go").touch()
    await eventually(lambda: not is_running(pid), "its end")
    await eventually(lambda: list(tmp_path.rglob("exit.json")), "its record")
    assert phase(cluster, "p") == "Running"
    transport.before = None
    assert exit_code(await is_phase(cluster, "p", "Failed")) == 5


async def test_conditions_of_others_survive_a_racing_write(agent, cluster, transport) -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": "Preempted"}
    raced = []

    def race(method: str, path: str) -> None:
        if method == "PATCH" and path.endswith("p/status") and not raced:
            raced.append(path)
            status = (cluster.pod("p") or {}).get("status") or {}
            conditions = [*status.get("conditions", []), target]
            cluster.put("pods", NAMESPACE, "p", status={**status, "conditions": conditions})

    transport.before = race
    cluster.create_pod("p", pod_spec(shell("exit 0")))
    pod = await is_phase(cluster, "p", "Succeeded")
    assert raced
    assert target in pod["status"]["conditions"]


async def test_a_status_that_the_server_refuses_for_a_while_is_delivered(
    agent, cluster, transport
) -> None:
    refused = []

    def refuse(method: str, path: str):
        if method == "PATCH" and path.endswith("/status") and "/pods/" in path and len(refused) < 3:
            refused.append(path)
            return status_answer(503, "ServiceUnavailable")
        return None

    transport.before = refuse
    cluster.create_pod("p", pod_spec(shell("exit 0")))
    await is_phase(cluster, "p", "Succeeded")
    assert len(refused) == 3


async def test_an_unchanged_pod_is_written_no_more(agent, cluster, transport) -> None:
    cluster.create_pod("p", pod_spec(shell("exit 0")))
    await is_phase(cluster, "p", "Succeeded")
    before = len([r for r in transport.requests if r[0] == "PATCH" and "/pods/" in r[1]])
    assert before <= 3
    metadata = (cluster.pod("p") or {})["metadata"]
    cluster.put("pods", NAMESPACE, "p", metadata={**metadata, "labels": {"touched": "yes"}})
    cluster.create_pod("q", pod_spec(shell("exit 0")))
    await is_phase(cluster, "q", "Succeeded")
    patches = [r[1] for r in transport.requests if r[0] == "PATCH" and "/pods/p/" in r[1]]
    assert len(patches) <= before


async def test_events_tell_what_happened(agent, cluster) -> None:
    cluster.create_pod("p", pod_spec(shell("exit 0")))
    await is_phase(cluster, "p", "Succeeded")
    await eventually(lambda: cluster.content("events"), "an event")
    [event] = cluster.content("events").values()
    assert (event["reason"], event["involvedObject"]["kind"]) == ("Started", "Pod")


async def test_pods_go_on_without_the_agent_and_are_adopted(cluster, transport, tmp_path) -> None:
    config = agent_config(tmp_path)
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 5"
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "3"}}}
    async with running_agent(config, transport):
        cluster.create_pod("short", pod_spec(shell(wait, **gpu)))
        cluster.create_pod("long", pod_spec(shell(LOOP)))
        pid = pid_of(await is_phase(cluster, "long", "Running"))
        await is_phase(cluster, "short", "Running")
    (tmp_path / "go").touch()
    await eventually(lambda: list(tmp_path.rglob("exit.json")), "an end while nobody looks")
    assert is_running(pid)
    async with running_agent(config, transport):
        assert exit_code(await is_phase(cluster, "short", "Failed")) == 5
        assert pid_of(cluster.pod("long")) == pid
        cluster.delete_pod("long")
        await is_gone(cluster, "long")
    assert not is_running(pid)


async def test_a_pod_deleted_while_the_agent_was_away_is_ended(
    cluster, transport, tmp_path
) -> None:
    config = agent_config(tmp_path)
    async with running_agent(config, transport):
        cluster.create_pod("p", pod_spec(shell(STUBBORN)))
        pid = pid_of(await is_phase(cluster, "p", "Running"))
    cluster.delete_pod("p", 0)
    async with running_agent(config, transport):
        await eventually(lambda: not is_running(pid), "its end")
        await eventually(lambda: not list((tmp_path / "node/pods").iterdir()), "its records gone")


async def test_lost_records_do_not_start_a_pod_twice(cluster, transport, tmp_path) -> None:
    config = agent_config(tmp_path)
    script = f"echo x >> {tmp_path}/starts; sleep 0.3"
    async with running_agent(config, transport):
        cluster.create_pod("p", pod_spec(shell(script)))
        await is_phase(cluster, "p", "Running")
        await eventually(lambda: list(tmp_path.rglob("exit.json")), "its end")
        transport.before = lambda method, _: Unreachable("down") if method == "PATCH" else None
    (tmp_path / "node").rename(tmp_path / "lost")
    status = cluster.pod("p")["status"]
    cluster.put("pods", NAMESPACE, "p", status={**status, "phase": "Running"})
    transport.before = None
    async with running_agent(config, transport):
        pod = await is_phase(cluster, "p", "Failed")
    assert pod["status"]["reason"] == STATE_LOST
    assert (tmp_path / "starts").read_text() == "x\n"


async def test_stopping_may_end_the_pods(cluster, transport, tmp_path) -> None:
    config = agent_config(tmp_path, end_pods_on_stop=True, stop_grace_seconds=0.5)
    async with running_agent(config, transport):
        cluster.create_pod("polite", pod_spec(shell(LOOP)))
        cluster.create_pod("stubborn", pod_spec(shell(STUBBORN)))
        pids = [pid_of(await is_phase(cluster, name, "Running")) for name in ("polite", "stubborn")]
    assert not any(map(is_running, pids))
    for name in ("polite", "stubborn"):
        pod = cluster.pod(name)
        assert pod is not None
        assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "Terminated")
    [node] = cluster.content("nodes").values()
    assert node["status"]["conditions"][0]["status"] == "False"


async def test_a_cluster_gets_only_the_pods_it_may_run(cluster, transport, tmp_path) -> None:
    config = agent_config(
        tmp_path, embedded=False, allowed_namespaces=(NAMESPACE,), allow_root=True
    )
    owner = {"apiVersion": "clusterops.io/v1alpha1", "kind": "TrainingJob", "name": "j"}
    owners = [{**owner, "uid": "x", "controller": True}]
    async with running_agent(config, transport):
        cluster.create_pod("stranger", pod_spec(shell("true")))
        cluster.create_pod("ours", pod_spec(shell("true")), ownerReferences=owners)
        stranger = await is_phase(cluster, "stranger", "Failed")
        await is_phase(cluster, "ours", "Succeeded")
    assert stranger["status"]["reason"] == "NotAllowed"
    [node] = cluster.content("nodes").values()
    assert node["spec"]["taints"] == [
        {"key": "clusterops.io/process-runtime", "effect": "NoSchedule"}
    ]


async def test_python_is_the_python_that_has_clusterops(agent, cluster, tmp_path) -> None:
    container = {"name": "main", "image": "x", "command": ["python", "-c"]}
    container["args"] = ["import clusterops, sys; print(sys.prefix)"]
    cluster.create_pod("p", pod_spec(container))
    pod = await is_phase(cluster, "p", "Succeeded")
    assert output(tmp_path, pod) == sys.prefix


async def test_it_is_still_when_nothing_happens(agent, cluster, transport) -> None:
    cluster.create_pod("p", pod_spec(shell(LOOP)))
    await is_phase(cluster, "p", "Running")
    await eventually(lambda: cluster.content("events"), "the last event")
    before = len(transport.requests)
    await asyncio.sleep(0.5)
    assert len(transport.requests) - before <= 2
