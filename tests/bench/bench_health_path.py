"""From a line in the kernel's log to what others see: NodeHealth, and the job that goes on elsewhere.

    python tests/bench/bench_health_path.py

The first two figures are of a daemon that writes into a real API server; the last is the demo's fault
chapter, beside the time in which the same job starts when it is new: what the fault added is the rest.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.embedded import EmbeddedServer, free_port
from support.health_kmsg import FakeKmsg
from support.health_nvml.build import Scenario, library

FAULTS = 20
IDLE_SECONDS = 30.0
WAIT_SECONDS = 120.0
ROOT = Path(__file__).resolve().parents[2]


class Watched:
    """A daemon process that writes the NodeHealth of one node."""

    def __init__(
        self, folder: Path, server: EmbeddedServer, node: str, *more: str, **environment: str
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.kmsg = FakeKmsg(folder / "kmsg")
        self._server = server
        self._url = f"/apis/clusterops.io/v1alpha1/nodehealths/{node}"
        self._connection = server.connect()
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "clusterops.cli", "health", "daemon", "--node", node,
                "--ledger", str(folder / "health.db"), "--kmsg", str(self.kmsg.path),
                "--kubeconfig", str(server.kubeconfig), "--port", str(free_port()),
                "--boot-id", "bench", *more,
            ],
            stderr=subprocess.DEVNULL, cwd=ROOT, env={**os.environ, **environment},
        )  # fmt: skip

    def status(self) -> str:
        answer = self._server.request("GET", self._url, connection=self._connection)
        return json.dumps(answer.json.get("status") or {}) if answer.status == 200 else ""

    def until(self, word: str) -> float:
        """Seconds until the word is in the NodeHealth."""
        begin, pause = time.perf_counter(), threading.Event()
        while word not in self.status():
            assert time.perf_counter() < begin + WAIT_SECONDS, f"waited for {word}"
            pause.wait(0.005)
        return time.perf_counter() - begin

    def cpu_seconds(self) -> float:
        """Of the daemon and its children."""
        pids = [self.process.pid]
        with contextlib.suppress(OSError):
            task = Path(f"/proc/{pids[0]}/task/{pids[0]}/children")
            pids += [int(pid) for pid in task.read_text().split()]
        total = 0
        for pid in pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def idle_percent(self) -> float:
        begin = self.cpu_seconds()
        threading.Event().wait(IDLE_SECONDS)
        return 100 * (self.cpu_seconds() - begin) / IDLE_SECONDS

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self._connection.close()


def of_lines(folder: Path, server: EmbeddedServer) -> None:
    """Each line is of another GPU, so each changes the NodeHealth."""
    daemon = Watched(folder / "lines", server, "bench-lines", "--no-nvml")
    daemon.until("Healthy")
    idle = daemon.idle_percent()
    times = []
    for gpu in range(FAULTS):
        place = f"0000:{0x10 + gpu:02x}:00"
        daemon.kmsg.say(f"NVRM: Xid (PCI:{place}): 79, pid=1, name=x, gone", seconds=gpu + 1)
        times.append(daemon.until(f"{place}.0"))
    daemon.end()
    print(
        f"line to NodeHealth   {1000 * statistics.median(times):8.0f} ms median,"
        f" {1000 * max(times):.0f} ms at most of {FAULTS} (bar 2000)"
    )
    print(f"idle, log alone      {idle:8.2f} % of a core over {IDLE_SECONDS:.0f} s (bar 0.5)")


def of_nvml(folder: Path, server: EmbeddedServer) -> None:
    scenario = Scenario(folder, library(folder / "nvml"))
    scenario.set(devices=8)
    daemon = Watched(folder / "asked", server, "bench-nvml", **scenario.environment())
    daemon.until("GPU-0000")
    idle = daemon.idle_percent()
    print(f"idle, NVML of 8 GPUs {idle:8.2f} % of a core over {IDLE_SECONDS:.0f} s (bar 0.5)")
    scenario.set(hang__fields=1)
    print(f"NVML hang written in {daemon.until('NvmlHangs'):8.1f} s (bar 30)")
    scenario.unset("hang.fields")
    daemon.end()


def of_a_job(folder: Path) -> None:
    report = folder / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "clusterops.cli", "demo", "faults", "--report", str(report)],
        capture_output=True, text=True, timeout=300, check=True, cwd=ROOT,
    )  # fmt: skip
    told = [line for line in done.stdout.splitlines() if "counter-long" in line]
    first = [float(line.split()[0]) for line in told if "Pending" in line or "start at" in line]
    fresh = first[1] - first[0]
    measured = json.loads(report.read_text())
    resumed = measured["lineToResumedSeconds"]
    print(
        f"line to job resumed  {resumed:8.1f} s (bar 10), {resumed / fresh:.1f} of a new job's start"
        f" ({fresh:.1f} s); {measured['lostSteps']} steps lost,"
        f" {measured['lastStep'] - measured['savedStep']} since its last checkpoint"
    )


def main() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with EmbeddedServer(folder / "server") as server:
            of_lines(folder, server)
            of_nvml(folder, server)
        of_a_job(folder)


if __name__ == "__main__":
    main()
