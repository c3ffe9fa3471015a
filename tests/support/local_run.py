"""Local mode as a person starts it, for tests that kill it: `clusterops up` in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_SECONDS = 60.0
POLL_SECONDS = 0.1


def eventually(true: Callable[[], bool], waiting_for: str, seconds: float) -> None:
    """Asks until it is true.

    Raises:
        AssertionError: it was not within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {waiting_for}"
        time.sleep(POLL_SECONDS)


@dataclass
class LocalRun:
    """One state folder and the `clusterops up` that runs in it, if one does."""

    folder: Path
    nodes: int = 2
    gpus: int = 4
    process: subprocess.Popen[bytes] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def start(self, *, wait: bool = True) -> None:
        """Starts `up`, and waits until everything runs unless told not to."""
        (self.folder / "ready").unlink(missing_ok=True)
        self.folder.mkdir(exist_ok=True)
        argv = [sys.executable, "-m", "clusterops.cli", "up", f"--state-dir={self.folder}"]
        argv += [f"--nodes={self.nodes}", f"--gpus={self.gpus}", "--grace=5"]
        with (self.folder / "up.log").open("ab") as log:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        if wait:
            self.wait_ready()

    def is_ready(self) -> bool:
        """Whether everything runs.

        Raises:
            AssertionError: `up` has ended.
        """
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        return (self.folder / "ready").exists()

    def wait_ready(self) -> None:
        """Waits until everything runs."""
        eventually(self.is_ready, f"local mode to come up\n{self.log()}", START_SECONDS)

    def comes_up(self, seconds: float) -> bool:
        """Whether everything runs within `seconds`; a part may be made to crash meanwhile."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process is None or self.process.poll() is not None:
                return False
            if (self.folder / "ready").exists():
                return True
            time.sleep(POLL_SECONDS)
        return False

    def wait_phase(self, job: str, phase: str, seconds: float) -> None:
        """Waits for a phase of a job."""
        eventually(lambda: self.phase(job) == phase, f"{job} to be {phase}", seconds)

    def restarts(self, part: str) -> int:
        """How often a part was started again by the running `up`."""
        try:
            rows = json.loads((self.folder / "parts.json").read_text())
        except (OSError, ValueError):
            return 0
        return sum(row["restarts"] for row in rows if row["name"] == part)

    def restarted_within(self, part: str, seconds: float) -> bool:
        """Whether a part was started again, waiting up to `seconds` for it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process is None or self.process.poll() is not None or self.restarts(part):
                return True
            time.sleep(POLL_SECONDS)
        return False

    def kill(self) -> None:
        """SIGKILL to the supervisor; the kernel kills its parts with it. Jobs' processes stay."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Ends local mode in order."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(60) == 0, self.log()

    def log(self) -> str:
        """The end of what `up` printed."""
        try:
            return (self.folder / "up.log").read_text(errors="replace")[-4000:]
        except OSError:
            return ""

    def kubectl(self, *arguments: str, check: bool = True, stdin: str | None = None) -> str:
        """Runs the real kubectl against it; its output."""
        ended = subprocess.run(
            ["kubectl", f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "KUBECACHEDIR": str(self.folder / "kubectl-cache")},
        )
        assert not check or ended.returncode == 0, f"{arguments}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Every TrainingJob by name; none while the server is away, as tests that kill it expect."""
        listed = self.kubectl("get", "trainingjobs", "-A", "-o", "json", check=False)
        try:
            items = json.loads(listed)["items"]
        except ValueError:
            return {}
        return {job["metadata"]["name"]: job for job in items}

    def phase(self, job: str) -> str:
        """A job's phase, empty before it has one and while the server is away."""
        return str((self.jobs().get(job, {}).get("status") or {}).get("phase") or "")

    def leftover_processes(self) -> list[str]:
        """Processes that still belong to the folder; empty after an orderly end."""
        return processes_of(self.folder)


def processes_of(folder: Path) -> list[str]:
    """Processes, of whatever parent, that have `folder` in their command line or environment."""
    mark = str(folder).encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
                if mark in command or mark in (entry / "environ").read_bytes():
                    found.append(f"{entry.name} {command.replace(bytes(1), b' ').decode()}")
            except OSError:
                continue
    return found
