"""Local mode as a whole: up, a job through, down with a running job, up again, nothing left behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import counter_job
from support.local_run import LocalRun, eventually

pytestmark = [pytest.mark.embedded, pytest.mark.slow]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LocalRun]:
    run = LocalRun(tmp_path / "state")
    run.start()
    yield run
    if run.process is not None and run.process.poll() is None:
        run.stop()


def clusterops(run: LocalRun, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "clusterops.cli", *arguments, f"--state-dir={run.folder}"],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_a_job_runs_through_and_down_leaves_no_process(run: LocalRun):
    run.kubectl("apply", "-f", "-", stdin=counter_job.manifest("one", steps=10))
    run.kubectl(
        "wait", "-n", "default", "--for=condition=Succeeded", "trainingjob/one", "--timeout=50s"
    )
    assert counter_job.result(run.folder, "one")["steps"] == 10
    run.stop()
    assert run.leftover_processes() == []


def test_a_running_job_saves_at_down_and_goes_on_at_the_next_up(run: LocalRun):
    run.kubectl("apply", "-f", "-", stdin=counter_job.manifest("long", steps=150))
    checkpoints = counter_job.checkpoints(run.folder, "long")
    eventually(lambda: run.phase("long") == "Running", "the job to run", 40)
    eventually(lambda: checkpoints.exists(), "its checkpoint folder", 20)
    run.stop()
    assert run.leftover_processes() == []
    run.start()
    eventually(lambda: run.phase("long") == "Succeeded", f"it to finish {run.jobs()}", 60)
    status = run.jobs()["long"]["status"]
    assert status["counts"]["userErrors"] == 0
    assert status["counts"]["lostSteps"] == 0
    assert counter_job.result(run.folder, "long")["steps"] == 150


TALKER = (
    "trap 'echo told to end; exit 143' TERM; echo attempt $CLUSTEROPS_ATTEMPT begins; "
    "while :; do sleep 0.1; done"
)


def logs(run: LocalRun, job: str, attempt: int) -> str:
    """What `clusterops logs` prints of an attempt."""
    told = subprocess.run(
        [sys.executable, "-m", "clusterops.cli", "logs", job, "--attempt", str(attempt)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "CLUSTEROPS_HOME": str(run.folder)},
    )
    return told.stdout or told.stderr


def test_what_a_past_attempt_printed_can_be_read_whatever_ended_it(run: LocalRun):
    manifest = json.loads(
        run.kubectl(
            "create", "--dry-run=client", "-o", "json", "-f", "-",
            stdin=counter_job.manifest("talker", steps=1),
        )
    )  # fmt: skip
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container |= {"command": ["sh", "-c", TALKER], "args": []}
    run.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def begun(attempt: int) -> bool:
        return logs(run, "talker", attempt) == f"attempt {attempt} begins\n"

    def suspend(asleep: bool) -> None:
        patch = json.dumps({"spec": {"suspend": asleep}})
        run.kubectl("patch", "-n", "default", "tj", "talker", "--type=merge", "-p", patch)

    eventually(lambda: begun(1), "the first attempt to begin", 40)
    suspend(True)
    run.wait_phase("talker", "Suspended", 40)
    whole = "attempt {} begins\ntold to end\n"
    assert logs(run, "talker", 1).startswith(whole.format(1))
    phase = run.kubectl("get", "pod", "-n", "default", "talker-1-0", "-o=jsonpath={.status.phase}")
    assert phase == "Failed", "the operator ended it in place"
    suspend(False)
    eventually(lambda: begun(2), "the second attempt to begin", 40)
    run.stop()
    run.start()
    eventually(lambda: begun(3), "the third attempt to begin", 40)
    assert logs(run, "talker", 2).startswith(whole.format(2)), "its pod went with the drain"
    assert logs(run, "talker", 1).startswith(whole.format(1))


def test_a_second_up_on_the_same_folder_is_refused_in_words(run: LocalRun):
    refused = clusterops(run, "up")
    assert refused.returncode == 4
    assert str(run.process and run.process.pid) in refused.stderr
    assert "--state-dir" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_in_the_background_it_comes_up_and_goes_down_at_once(tmp_path: Path):
    quiet = LocalRun(tmp_path / "state")
    up = clusterops(quiet, "up", "--detach", "--gpus=1")
    assert up.returncode == 0, up.stderr
    assert "clusterops down" in up.stdout
    assert (quiet.folder / "logs" / "up.log").exists()
    down = clusterops(quiet, "down", "--now")
    assert (down.returncode, down.stdout) == (0, "local mode is down\n")
    assert quiet.leftover_processes() == []


def test_status_names_every_part_node_and_job(run: LocalRun):
    told = clusterops(run, "status", "-o", "json")
    seen = json.loads(told.stdout)
    assert [part["name"] for part in seen["parts"]][:3] == ["apiserver", "queueing", "operator"]
    assert [node["ready"] for node in seen["nodes"]] == [True, True]
    assert all(part["restarts"] == 0 for part in seen["parts"])


def test_doctor_finds_a_running_folder_in_order(run: LocalRun):
    told = clusterops(run, "doctor")
    assert told.returncode == 0, told.stdout
    assert "FAIL" not in told.stdout


def test_a_part_that_is_killed_comes_back_and_the_job_goes_on(run: LocalRun):
    run.kubectl("apply", "-f", "-", stdin=counter_job.manifest("steady", steps=120))
    eventually(lambda: run.phase("steady") == "Running", "the job to run", 40)
    for part in json.loads((run.folder / "parts.json").read_text()):
        os.kill(part["pid"], signal.SIGKILL)
    eventually(lambda: run.phase("steady") == "Succeeded", "the job to finish", 60)
    status = run.jobs()["steady"]["status"]
    assert status["attempt"] == 1, "its process was adopted, not started again"
