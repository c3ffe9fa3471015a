"""`clusterops demo faults`: the whole chapter as a person sees it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.local_run import processes_of

pytestmark = [pytest.mark.embedded, pytest.mark.slow, pytest.mark.timeout(300)]


def test_the_job_outlives_its_gpu_the_vendor_is_told_once_and_nothing_is_left_behind(
    tmp_path: Path,
) -> None:
    report, stage = tmp_path / "report.json", tmp_path / "stage"
    stage.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "clusterops.cli", "demo", "faults", "--report", str(report)],
        env={**os.environ, "TMPDIR": str(stage)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    measured = json.loads(report.read_text())
    assert (measured["outcome"], measured["cause"]) == ("Succeeded", "NodeFault")
    assert measured["resumedOn"] != measured["node"]
    assert measured["resumedStep"] >= measured["savedStep"] > 0
    assert measured["tickets"] == 1
    assert measured["givenBack"] is True
    assert measured["stateSha256"] == measured["undisturbedSha256"] != ""
    assert "LINE TO RESUMED" in done.stdout
    assert list(stage.iterdir()) == []
    assert processes_of(stage) == []
