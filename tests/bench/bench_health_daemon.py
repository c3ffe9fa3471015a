"""What the node's watch costs: records a second from FIFO to ledger, memory, idle time, latency.

    python tests/bench/bench_health_daemon.py

The baseline of the first figure is the same bytes read and split from the same kind of FIFO by the
plainest loop; the others stand beside the bar that they are held to.
"""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.embedded import free_port
from support.health_kmsg import record
from support.health_nvml.build import Scenario, library

RECORDS = 200_000
CODES = (13, 31, 43, 45, 63, 74, 79, 94, 95, 119)
IDLE_SECONDS = 10.0
WAIT_SECONDS = 180.0
ROOT = Path(__file__).resolve().parents[2]


def storm(begin: int, count: int) -> bytes:
    """Records that all are Xids, over eight GPUs and ten codes, twenty an uptime second."""
    return b"".join(
        record(
            n,
            f"NVRM: Xid (PCI:0000:{0x10 + n % 8:02x}:00): {CODES[n // 8 % 10]}, pid={n % 4000}, "
            "name=python, Ch 00000008, what happened",
            seconds=n / 20,
        )
        for n in range(begin, begin + count)
    )


def pour(path: Path, content: bytes) -> threading.Thread:
    """Writes into a FIFO from a thread of its own."""

    def write() -> None:
        with path.open("wb", buffering=0) as fifo:
            view = memoryview(content)
            while view:
                view = view[fifo.write(view[:65536]) :]

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


class Daemon:
    """A daemon process on a FIFO."""

    def __init__(self, folder: Path, *more: str, environment: dict[str, str] | None = None) -> None:
        folder.mkdir()
        self.fifo, self.port = folder / "kmsg", free_port()
        os.mkfifo(self.fifo)
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "clusterops.cli", "health", "daemon", "--node", "n1",
                "--ledger", str(folder / "health.db"), "--kmsg", str(self.fifo), "--no-publish",
                "--port", str(self.port), "--boot-id", "bench", *more,
            ],
            stderr=subprocess.DEVNULL, cwd=ROOT, env=environment,
        )  # fmt: skip
        self.until(lambda: "watching" in self.metrics(), "the daemon")

    def metrics(self) -> str:
        try:
            url = f"http://127.0.0.1:{self.port}/metrics"
            with urllib.request.urlopen(url, timeout=30) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def count(self, what: str) -> int:
        for line in self.metrics().splitlines():
            if line.startswith(f'clusterops_health_records_total{{what="{what}"}}'):
                return int(line.rsplit(" ", 1)[1])
        return 0

    def until(self, condition, what: str, every: float = 0.02) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        pause = threading.Event()
        while not condition():
            assert time.monotonic() < deadline, f"waited for {what}"
            pause.wait(every)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def rss_mib(pid: int, peak: bool = False) -> float:
    wanted = "VmHWM:" if peak else "VmRSS:"
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(wanted):
            return int(line.split()[1]) / 1024
    return 0.0


def baseline(folder: Path, content: bytes) -> float:
    """Records a second of reading and splitting alone."""
    fifo = folder / "plain"
    os.mkfifo(fifo)
    begin = time.perf_counter()
    thread = pour(fifo, content)
    seen = 0
    with fifo.open("rb") as stream:
        for line in stream:
            seen += line.startswith(b"4,")
    thread.join()
    return seen / (time.perf_counter() - begin)


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def main() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        content = storm(0, RECORDS)
        plain = baseline(folder, content)
        daemon = Daemon(folder / "log-path", "--no-nvml")
        idle_rss = rss_mib(daemon.process.pid)
        begin_cpu = daemon.cpu_seconds()
        threading.Event().wait(IDLE_SECONDS)
        idle = 100 * (daemon.cpu_seconds() - begin_cpu) / IDLE_SECONDS
        daemon.metrics()

        cpu, begin = daemon.cpu_seconds(), time.perf_counter()
        pour(daemon.fifo, content).join()
        daemon.until(lambda: daemon.count("read") >= RECORDS, "all records", 0.2)
        seconds, cpu = time.perf_counter() - begin, daemon.cpu_seconds() - cpu
        lost = daemon.count("lost")
        rate = RECORDS / seconds
        print(
            f"FIFO to ledger    {rate:10.0f} records/s (bar 20000), {RECORDS / cpu:.0f} a second"
            f" of processor time, {lost} lost; {rate / plain:.3f} of plain reading ({plain:.0f}/s)"
        )
        print(
            f"resident memory   {idle_rss:10.1f} MiB idle,"
            f" {rss_mib(daemon.process.pid, peak=True):.1f} MiB at most in the storm (bar 60)"
        )
        print(f"idle processor    {idle:10.2f} % of a core (bar 0.5)")
        daemon.end()

        quiet = Daemon(folder / "latency", "--no-nvml")
        begin = time.perf_counter()
        pour(quiet.fifo, record(0, "NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=x, lost")).join()
        quiet.until(lambda: 'standing="RebootNode"} 1' in quiet.metrics(), "the verdict", 0.005)
        print(
            f"line to verdict   {1000 * (time.perf_counter() - begin):10.0f} ms (bar 2000,"
            " NodeHealth written)"
        )
        quiet.end()

        scenario = Scenario(folder, library(folder / "nvml"))
        scenario.set(devices=8)
        watched = Daemon(folder / "nvml-path", environment=scenario.environment())
        watched.until(lambda: "nvml_rounds_total 1" in watched.metrics(), "a round of NVML")
        child = children(watched.process.pid)[0]
        print(f"NVML child        {rss_mib(child, peak=True):10.1f} MiB (bar 80)")
        begin = time.perf_counter()
        scenario.set(hang__fields=1)
        watched.until(lambda: "clusterops_health_watching 0" in watched.metrics(), "the hang", 0.1)
        print(f"NVML hang told in {time.perf_counter() - begin:10.1f} s (bar 30)")
        scenario.unset("hang.fields")
        watched.end()
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"(this script itself had {own:.0f} MiB)")


if __name__ == "__main__":
    main()
