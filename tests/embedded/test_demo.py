"""`clusterops demo`: what it reports, and that it leaves nothing behind, also on Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.local_run import eventually, processes_of

pytestmark = [pytest.mark.embedded, pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(400)]

DEMO = [sys.executable, "-m", "clusterops.cli", "demo"]


def play(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Starts the demo with its temporary folder inside of `folder`."""
    return subprocess.Popen(
        [*DEMO, *arguments],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_the_preempted_job_loses_nothing_and_nothing_is_left_behind(tmp_path: Path):
    report, stage = tmp_path / "report.json", tmp_path / "stage"
    stage.mkdir()
    process = play(stage, "--report", str(report))
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0, told
    measured = json.loads(report.read_text())
    jobs = {job["name"]: job for job in measured["jobs"]}
    assert jobs["char-lm"]["preemptions"] == 1
    for job in jobs.values():
        assert job["outcome"] == "Succeeded"
        assert job["lostSteps"] == 0
        assert job["weightsSha256"] == job["undisturbedSha256"] != ""
    assert measured["peakGpus"] == 8
    assert list(stage.iterdir()) == []
    assert processes_of(stage) == []


def test_interrupted_in_mid_play_it_cleans_up(tmp_path: Path):
    process = play(tmp_path)
    eventually(
        lambda: any(tmp_path.glob("*/volumes/research/checkpoints/char-lm")),
        "the first job to train",
        120,
    )
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    while (line := process.stdout.readline()) and "ending the jobs" not in line:
        pass
    process.send_signal(signal.SIGINT)  # whoever is impatient presses again: it ends all the same
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []
