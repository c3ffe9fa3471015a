"""The user's commands against the embedded API server: submit, queue, cancel, describe, explain."""

import json
from pathlib import Path

import pytest
import yaml
from support.cli_cluster import (
    JOBS,
    ROOT,
    add_event,
    add_pod,
    create_job,
    example,
    get_job,
    install_queues,
    set_status,
    write_log,
)
from support.embedded import EmbeddedServer

from clusterops.cli import errors
from clusterops.cli.main import main

pytestmark = pytest.mark.embedded


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with EmbeddedServer(tmp_path_factory.mktemp("server")) as running:
        install_queues(running)
        yield running


@pytest.fixture(autouse=True)
def cluster(server: EmbeddedServer, monkeypatch, tmp_path: Path):
    """Commands speak to the server, in namespace research; each test begins without jobs."""
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    monkeypatch.delenv("CLUSTEROPS_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no-state"))
    yield
    server.request("DELETE", JOBS)
    server.request("DELETE", "/api/v1/namespaces/research/pods?gracePeriodSeconds=0")


def run(capsys, *words: str) -> tuple[int, str, str]:
    code = main([*words])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return code, said.out, said.err


COUNTER = str(ROOT / "manifests" / "examples" / "counter.yaml")
IN_RESEARCH = ("-n", "research")


def test_a_manifest_becomes_a_job_once(capsys, server) -> None:
    code, out, _ = run(capsys, "submit", COUNTER)
    assert (code, out) == (errors.DONE, "counter submitted to queue research\n")
    first = get_job(server, "counter")
    code, out, _ = run(capsys, "submit", COUNTER)
    assert (code, out) == (errors.DONE, "counter is unchanged in queue research\n")
    assert get_job(server, "counter") == first


def test_another_job_of_the_same_name_is_a_conflict_and_changes_nothing(
    capsys, server, tmp_path
) -> None:
    assert run(capsys, "submit", COUNTER)[0] == errors.DONE
    before = get_job(server, "counter")
    changed = tmp_path / "changed.yaml"
    changed.write_text(Path(COUNTER).read_text().replace("replicas: 1", "replicas: 2"))
    code, out, err = run(capsys, "submit", str(changed))
    assert (code, out) == (errors.CONFLICT, "")
    assert "it differs in spec.replicas" in err
    assert get_job(server, "counter") == before


def test_nothing_is_created_when_one_of_several_cannot_be(capsys, server, tmp_path) -> None:
    good = example("counter")
    bad = {**good, "metadata": {"name": "too-big", "namespace": "research"}}
    bad["spec"] = {**good["spec"], "replicas": 9}
    file = tmp_path / "two.yaml"
    file.write_text(yaml.safe_dump_all([good, bad]))
    code, _, err = run(capsys, "submit", str(file))
    assert code == errors.USAGE
    assert "too-big can never run in queue research: it asks for 9 nvidia.com/gpu" in err
    assert "never have more than 8" in err
    assert get_job(server, "counter") is None


def test_what_the_server_refuses_takes_the_others_back(capsys, server, tmp_path) -> None:
    good = example("counter")
    elsewhere = {**good, "metadata": {"name": "elsewhere", "namespace": "absent"}}
    file = tmp_path / "two.yaml"
    file.write_text(yaml.safe_dump_all([good, elsewhere]))
    code, _, err = run(capsys, "submit", str(file))
    assert code == errors.NOT_FOUND
    assert "absent" in err
    assert get_job(server, "counter") is None


def test_other_kinds_are_left_to_kubectl(capsys, server, tmp_path) -> None:
    code, _, err = run(capsys, "submit", str(ROOT / "manifests" / "queues" / "local-queue.yaml"))
    assert code == errors.USAGE
    assert "LocalQueue/research is no TrainingJob" in err
    assert "kubectl apply -f" in err


def test_a_dry_run_prints_the_job_and_creates_none(capsys, server) -> None:
    code, out, err = run(capsys, "submit", "--dry-run", COUNTER)
    assert code == errors.DONE
    assert yaml.safe_load(out)["spec"]["backoffLimit"] == 3
    assert "nothing was created" in err
    assert get_job(server, "counter") is None
    _, out, _ = run(capsys, "submit", "--dry-run", "-o", "name", COUNTER)
    assert out == "trainingjob.clusterops.io/counter\n"


def test_unknown_queue_and_class_are_warnings_the_job_waits(capsys, server, tmp_path) -> None:
    file = tmp_path / "job.yaml"
    text = Path(COUNTER).read_text()
    text = text.replace("queueName: research", "queueName: reserch").replace("normal", "urgent")
    file.write_text(text)
    code, _, err = run(capsys, "submit", str(file))
    assert code == errors.DONE
    assert "queue reserch does not exist in namespace research; there is research" in err
    assert "priority class urgent does not exist" in err
    assert get_job(server, "counter") is not None


def test_a_command_becomes_a_job(capsys, server) -> None:
    words = ["--name", "hello", "--gpus", "2", "--replicas", "3", "--priority", "high"]
    words += ["--env", "A=1", "--image", "trainer:1", "--checkpoints", "kept", "-o", "name"]
    code, out, _ = run(capsys, "submit", *IN_RESEARCH, *words, "--", "python", "-c", "print(1)")
    assert (code, out) == (errors.DONE, "trainingjob.clusterops.io/hello\n")
    job = get_job(server, "hello")
    assert job is not None
    assert job["spec"]["queueName"] == "research"
    assert job["spec"]["replicas"] == 3
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-c", "print(1)"]


def test_a_command_in_a_cluster_needs_an_image(capsys) -> None:
    code, _, err = run(capsys, "submit", *IN_RESEARCH, "--", "python", "x.py")
    assert code == errors.USAGE
    assert "--image" in err


def test_a_namespace_without_a_queue_says_so(capsys) -> None:
    code, _, err = run(capsys, "submit", "-n", "default", "--image", "i", "--", "python", "x.py")
    assert code == errors.USAGE
    assert "namespace default has no queue" in err


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"phase": "Succeeded", "reason": "Completed"}, errors.DONE),
        ({"phase": "Failed", "reason": "UserError"}, errors.JOB_FAILED),
        ({"phase": "Cancelled", "reason": "Cancelled"}, errors.JOB_CANCELLED),
    ],
)
def test_wait_ends_as_the_job_did(capsys, server, status, code) -> None:
    assert run(capsys, "submit", COUNTER)[0] == errors.DONE
    set_status(server, "counter", **status)
    assert run(capsys, "submit", "--wait", COUNTER)[0] == code


def test_wait_tells_each_failure_and_the_command_for_its_log(capsys, server) -> None:
    assert run(capsys, "submit", COUNTER)[0] == errors.DONE
    ended = {
        "number": 1, "startedAt": "2026-11-30T19:00:00Z", "endedAt": "2026-11-30T19:00:10Z",
        "cause": "UserError", "message": "rank 0 on node-0 exited with code 3", "lostSteps": 0,
    }  # fmt: skip
    set_status(server, "counter", phase="Failed", reason="UserError", attempt=1, attempts=[ended])
    code, _, err = run(capsys, "submit", "--wait", COUNTER)
    assert code == errors.JOB_FAILED
    assert len(err.splitlines()) == 2, err
    first, last = err.splitlines()
    assert first == (
        "counter: attempt 1 ended (UserError, 0 steps lost): rank 0 on node-0 exited with code 3; "
        "its log: clusterops logs counter -n research --rank 0 --attempt 1"
    )
    assert last == "counter: Failed, the job's own process failed, after 1 attempt"
    # Copied into a shell the command has no option of the one before it.
    _, _, err = run(capsys, "submit", *IN_RESEARCH, "--wait", COUNTER)
    assert first in err
    _, out, _ = run(capsys, "explain", "counter", *IN_RESEARCH)
    assert "its log: clusterops logs counter -n research --rank 0 --attempt 1" in out


def test_the_last_lines_of_the_rank_to_blame_are_shown_and_harmless(capsys, server) -> None:
    assert run(capsys, "submit", COUNTER)[0] == errors.DONE
    ended = {
        "number": 1, "startedAt": "2026-11-30T19:00:00Z", "endedAt": "2026-11-30T19:00:10Z",
        "cause": "UserError", "message": "rank 1 on node-0 exited with code 1", "lostSteps": 0,
    }  # fmt: skip
    set_status(server, "counter", phase="Failed", reason="UserError", attempt=1, attempts=[ended])
    for rank in (0, 1):
        pod = add_pod(server, "counter", 1, rank, "Failed")
        words = ("Traceback:", "line 3", "", "no such \x1b[31mkey", f"of rank {rank}")
        write_log(
            server, pod, *(f"2026-11-30T19:00:0{n}.000000000Z {w}" for n, w in enumerate(words))
        )
    _, out, _ = run(capsys, "explain", "counter", *IN_RESEARCH)
    assert "the last it printed:\n    line 3\n    no such \\x1b[31mkey\n    of rank 1\n" in out
    _, out, _ = run(capsys, "explain", "counter", *IN_RESEARCH, "-o", "json")
    assert json.loads(out)["lastLines"] == ["line 3", "no such \x1b[31mkey", "of rank 1"]
    code, _, err = run(capsys, "submit", "--wait", COUNTER)
    assert code == errors.JOB_FAILED
    assert err.splitlines()[-1] == "counter: it printed: of rank 1"
    assert "\x1b" not in err


@pytest.fixture
def small_node(server):
    """A node with two GPUs."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "small"},
        "status": {
            "allocatable": {"nvidia.com/gpu": "2"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    assert server.request("POST", "/api/v1/nodes", node).status == 201
    server.request(
        "PATCH", "/api/v1/nodes/small/status", {"status": node["status"]},
        headers={"Content-Type": "application/merge-patch+json"},
    )  # fmt: skip
    yield "small"
    server.request("DELETE", "/api/v1/nodes/small")


def test_a_pod_that_no_node_holds_is_a_warning_that_names_the_largest(
    capsys, server, small_node
) -> None:
    words = ["--name", "wide", "--gpus", "4", "--image", "i", "--", "python", "x.py"]
    code, _, err = run(capsys, "submit", *IN_RESEARCH, *words)
    assert code == errors.DONE
    assert "asks for 4 nvidia.com/gpu, and the largest node, small, has 2" in err
    _, out, _ = run(capsys, "explain", "wide", *IN_RESEARCH)
    assert "the largest node, small, has 2: no node can run it" in out


def test_a_job_that_saves_nowhere_is_noted_once(capsys, server) -> None:
    words = ["--name", "loose", "--image", "i", "--", "python", "x.py"]
    _, _, err = run(capsys, "submit", *IN_RESEARCH, *words)
    assert (
        "note: loose: it has no checkpoint directory: when it is preempted, it starts over" in err
    )
    _, _, err = run(capsys, "submit", *IN_RESEARCH, *words)
    assert "note:" not in err, "it is unchanged"
    assert "note:" not in run(capsys, "submit", COUNTER)[2]


def test_a_cancelled_job_of_the_same_name_is_told_apart_from_another_job(capsys, server) -> None:
    create_job(server, example("counter"))
    assert run(capsys, "cancel", "counter", *IN_RESEARCH)[0] == errors.DONE
    code, _, err = run(capsys, "submit", COUNTER)
    assert code == errors.CONFLICT
    assert "the job counter in namespace research was cancelled and is still there" in err
    assert "kubectl delete tj -n research counter" in err


def test_a_dry_run_says_what_would_become_of_the_job(capsys, server) -> None:
    code, _, err = run(capsys, "submit", "--dry-run", COUNTER)
    assert code == errors.DONE
    assert "outlook: counter: it would get its quota at once" in err
    assert "outlook: counter: not known: " in err


def test_the_queue_of_ones_own_jobs(capsys, server) -> None:
    create_job(
        server, {**example("counter"), "metadata": {"name": "theirs", "namespace": "research"}}
    )
    code, out, err = run(capsys, "queue", *IN_RESEARCH, "--mine")
    assert (code, out) == (errors.DONE, "")
    assert "no jobs of yours in namespace research" in err
    assert run(capsys, "submit", COUNTER)[0] == errors.DONE
    user = get_job(server, "counter")["metadata"]["annotations"]["clusterops.io/user"]
    assert user
    assert f"User:        {user}" in run(capsys, "describe", "counter", *IN_RESEARCH)[1]
    for words in (IN_RESEARCH, ("-A",)):
        _, out, _ = run(capsys, "queue", *words, "--mine", "-o", "json")
        assert [row["name"] for row in json.loads(out)] == ["counter"]


def test_top_shows_the_gpus_by_node_and_by_job(capsys, server, small_node) -> None:
    create_job(server, example("counter"))
    set_status(server, "counter", phase="Running", gpus=1, attempt=1)
    labels = {"clusterops.io/job": "counter", "clusterops.io/attempt": "1",
              "clusterops.io/rank": "0"}  # fmt: skip
    container = {"name": "t", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "counter-1-0", "namespace": "research", "labels": labels},
        "spec": {"containers": [container], "nodeName": small_node},
    }
    assert server.request("POST", "/api/v1/namespaces/research/pods", pod).status == 201
    code, out, _ = run(capsys, "top", *IN_RESEARCH)
    assert code == errors.DONE
    lines = [line.split() for line in out.splitlines()]
    assert ["small", "A.", "1/2", "Ready"] in lines
    assert any(line[:2] == ["A", "research/counter"] for line in lines)
    _, out, _ = run(capsys, "top", "-o", "json")
    assert json.loads(out)["nodes"][0]["used"] == 1


def test_wait_gives_up_in_time_and_says_where_the_job_is(capsys, server) -> None:
    code, _, err = run(capsys, "submit", "--wait", "--timeout", "0.3", COUNTER)
    assert code == errors.JOB_NOT_FINISHED
    assert "counter has not ended after 0 s: Pending" in err


def test_the_queue_lists_jobs_with_what_moves_first(capsys, server) -> None:
    for name in ("a-waits", "b-runs", "c-done"):
        create_job(
            server, {**example("counter"), "metadata": {"name": name, "namespace": "research"}}
        )
    set_status(server, "b-runs", phase="Running", gpus=1, progress={"step": 7}, attempt=1)
    set_status(server, "c-done", phase="Succeeded", gpus=1)
    code, out, _ = run(capsys, "queue", *IN_RESEARCH)
    assert code == errors.DONE
    lines = out.splitlines()
    assert lines[0].split() == ["NAME", "QUEUE", "PRIORITY", "GPUS", "PHASE", "REASON", "STEP",
                                "ATTEMPTS", "AGE"]  # fmt: skip
    assert [line.split()[0] for line in lines[1:]] == ["b-runs", "a-waits", "c-done"]
    assert lines[1].split()[1:6] == ["research", "normal", "1", "Running", "7"]


def test_the_queue_of_all_namespaces_names_them(capsys, server) -> None:
    create_job(server, example("counter"))
    code, out, _ = run(capsys, "queue", "-A")
    assert code == errors.DONE
    assert out.splitlines()[0].startswith("NAMESPACE")
    assert out.splitlines()[1].split()[:2] == ["research", "counter"]


def test_the_queue_as_json_and_filtered(capsys, server) -> None:
    for name in ("one", "two"):
        create_job(
            server, {**example("counter"), "metadata": {"name": name, "namespace": "research"}}
        )
    set_status(server, "two", phase="Running")
    code, out, _ = run(capsys, "queue", *IN_RESEARCH, "--state", "running", "-o", "json")
    assert code == errors.DONE
    (row,) = json.loads(out)
    assert (row["name"], row["phase"], row["queue"]) == ("two", "Running", "research")
    code, out, _err = run(capsys, "queue", *IN_RESEARCH, "--state", "failed")
    assert (code, out) == (errors.DONE, "")


def test_cancel_asks_for_a_checkpoint_first_and_may_be_repeated(capsys, server) -> None:
    create_job(server, example("counter"))
    code, out, err = run(capsys, "cancel", "counter", *IN_RESEARCH)
    assert (code, out) == (errors.DONE, "")
    assert "counter stops after a last checkpoint" in err
    assert get_job(server, "counter")["spec"]["stop"] == "Checkpoint"
    code, _, err = run(capsys, "cancel", "counter", *IN_RESEARCH)
    assert code == errors.DONE
    assert "being cancelled already" in err
    code, _, err = run(capsys, "cancel", "--now", "counter", *IN_RESEARCH)
    assert get_job(server, "counter")["spec"]["stop"] == "Now"
    code, _, err = run(capsys, "cancel", "counter", *IN_RESEARCH)
    assert get_job(server, "counter")["spec"]["stop"] == "Now"


def test_cancelling_what_has_ended_does_nothing(capsys, server) -> None:
    create_job(server, example("counter"))
    set_status(server, "counter", phase="Succeeded")
    code, _, err = run(capsys, "cancel", "counter", *IN_RESEARCH)
    assert code == errors.DONE
    assert "has ended already: Succeeded" in err
    assert "stop" not in get_job(server, "counter")["spec"]


def test_one_unknown_name_cancels_nothing(capsys, server) -> None:
    create_job(server, example("counter"))
    code, _, err = run(capsys, "cancel", "counter", "conuter", *IN_RESEARCH)
    assert code == errors.NOT_FOUND
    assert "did you mean counter?" in err
    assert "stop" not in get_job(server, "counter")["spec"]


def test_cancel_waits_for_the_end_when_asked(capsys, server) -> None:
    create_job(server, example("counter"))
    words = ["cancel", "--wait", "--timeout", "0.2", "counter", *IN_RESEARCH]
    assert run(capsys, *words)[0] == errors.TIMED_OUT
    set_status(server, "counter", phase="Cancelled")
    assert run(capsys, *words)[0] == errors.DONE


def test_describe_is_one_page_about_the_job(capsys, server) -> None:
    job = create_job(server, example("counter"))
    set_status(
        server,
        "counter",
        phase="Running",
        attempt=2,
        progress={"step": 3100, "totalSteps": 10000, "durableStep": 3050},
        counts={"attempts": 2, "preemptions": 1, "lostSteps": 50},
        attempts=[{"number": 1, "endedAt": "2026-11-30T19:00:00Z", "cause": "Preempted",
                   "message": "by \u001b[31murgent", "lastStep": 3100, "lostSteps": 50}],
        conditions=[{"type": "Admitted", "status": "True", "reason": "Admitted", "message": ""}],
    )  # fmt: skip
    add_pod(server, "counter", 2, 0)
    add_event(server, job, "2026-11-30T19:00:00Z", "Preempted", "its GPUs went to urgent")
    code, out, _ = run(capsys, "describe", "counter", *IN_RESEARCH)
    assert code == errors.DONE
    assert "step 3,100 of 10,000, saved up to 3,050" in out
    for part in ("Attempts:", "Preempted", "Conditions:", "counter-2-0", "its GPUs went to urgent"):
        assert part in out
    assert "\x1b" not in out
    code, out, _ = run(capsys, "describe", "counter", *IN_RESEARCH, "-o", "json")
    found = json.loads(out)
    assert found["job"]["metadata"]["name"] == "counter"
    assert [pod["metadata"]["name"] for pod in found["pods"]] == ["counter-2-0"]
    assert [event["reason"] for event in found["events"]] == ["Preempted"]


def test_explain_is_one_sentence_with_its_cause(capsys, server) -> None:
    create_job(server, example("counter"))
    code, out, _ = run(capsys, "explain", "counter", *IN_RESEARCH)
    assert code == errors.DONE
    assert out.startswith("counter has waited ")
    set_status(server, "counter", phase="Running", gpus=1, attempt=1, progress={"step": 12})
    code, out, _ = run(capsys, "explain", "counter", *IN_RESEARCH)
    assert out == "counter runs on 1 GPU, attempt 1, step 12.\n"
    code, out, _ = run(capsys, "explain", "counter", *IN_RESEARCH, "-o", "json")
    assert json.loads(out)["phase"] == "Running"


@pytest.mark.parametrize("command", ["describe", "explain", "logs", "cancel"])
def test_an_unknown_job_is_not_found_with_a_hint(capsys, server, command) -> None:
    create_job(server, example("counter"))
    code, out, err = run(capsys, command, "countr", *IN_RESEARCH)
    assert (code, out) == (errors.NOT_FOUND, "")
    assert "did you mean counter?" in err


def test_version_names_both_sides(capsys, server) -> None:
    code, out, _ = run(capsys, "version", "-o", "json")
    assert code == errors.DONE
    known = json.loads(out)
    assert known["client"]
    assert known["server"]["version"]


def test_a_wrong_token_is_denied_and_a_dead_server_unreachable(capsys, server, tmp_path) -> None:
    config = yaml.safe_load(server.kubeconfig.read_text())
    for user in config["users"]:
        user["user"]["token"] = "wrong"
    denied = tmp_path / "denied"
    denied.write_text(yaml.safe_dump(config))
    assert run(capsys, "queue", "--kubeconfig", str(denied))[0] == errors.DENIED
    for entry in config["clusters"]:
        entry["cluster"]["server"] = "https://127.0.0.1:1"
    dead = tmp_path / "dead"
    dead.write_text(yaml.safe_dump(config))
    code, _, err = run(capsys, "queue", "--kubeconfig", str(dead))
    assert code == errors.UNREACHABLE
    assert "clusterops status" in err
