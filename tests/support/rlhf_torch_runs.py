"""Whole runs as processes: started, watched by their metrics, killed, started again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from clusterops.api import names
from rlhf.run_folder import RunFolder
from rlhf.weights import Snapshots, tensors_sha256

WORDS = (
    "steps=6",
    "task.digits=3",
    "rollout.batch=16",
    "rollout.max_new_tokens=5",
    "model.width=16",
    "model.heads=2",
    "model.layers=1",
    "model.context=16",
    "warm_up.steps=20",
    "warm_up.batch=8",
    "ppo.epochs=2",
    "ppo.minibatches=2",
    "checkpoints.every_steps=2",
    "checks.canary_every=11",
)
_SECONDS = 100.0


def start(folder: Path, *words: str, as_job: bool = False) -> "subprocess.Popen[str]":
    """A run in a process of its own, in the root of the repository; the folder by name or, as a job
    has it, by the environment.
    """
    named = [] if as_job else ["--run", str(folder)]
    told = {names.ENV_CHECKPOINT_DIR: str(folder)} if as_job else {}
    return subprocess.Popen(
        [sys.executable, "-m", "rlhf.train", *named, *WORDS, *words],
        cwd=Path(__file__).parents[2],
        env=os.environ
        | told
        | {"PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """(exit code, all output) of a run."""
    output, _ = process.communicate(timeout=_SECONDS)
    return process.returncode, output


def run(folder: Path, *words: str) -> str:
    """A run to its end; its output."""
    code, output = ended(start(folder, *words))
    assert code == 0, output
    return output


def wait_for_step(process: "subprocess.Popen[str]", folder: Path, step: int) -> None:
    """Until a step is in the metrics, or the run is over."""
    deadline = time.monotonic() + _SECONDS
    path = RunFolder(folder).metrics
    while process.poll() is None and time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") > step:
            return
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
    assert process.poll() is not None, f"step {step} did not come in {_SECONDS} s"


def children(pid: int, module: str) -> list[int]:
    """Processes below one that run a module."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == pid:
            found += children(int(entry.name), module)
            if module.encode() in command:
                found.append(int(entry.name))
    return found


def kill(pid: int) -> None:
    """kill -9."""
    os.kill(pid, signal.SIGKILL)


def final_weights(folder: Path, version: int = 6) -> str:
    """The hash of the weights after the last step."""
    return tensors_sha256(Snapshots(RunFolder(folder).weights).load(version))


def gone(pid: int) -> bool:
    """Whether a process has ended, within a few seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        os.sched_yield()
    return False
