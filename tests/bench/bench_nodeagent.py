"""What running pods through the node agent costs, against doing the same with bare processes.

    python tests/bench/bench_nodeagent.py

Prints one line a figure; ratios compare with a baseline measured in the same run.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from support.kube_cluster import FakeTransport  # noqa: E402  (after the path)
from support.nodeagent_cluster import (  # noqa: E402  (after the path)
    PodCluster,
    agent_config,
    eventually,
    phase,
    pod_spec,
    running_agent,
    shell,
)
from support.nodeagent_shim import end_processes_of, shim_run  # noqa: E402  (after the path)

from clusterops.nodeagent import records  # noqa: E402  (after the path)

STARTS = 30
LOG_BYTES = 100 << 20
LINE = "x" * 99


def show(name: str, value: float, unit: str, baseline: float | None = None) -> None:
    ratio = "" if baseline is None else f"   {value / baseline:6.2f} x of {baseline:.4g} {unit}"
    print(f"{name:<52}{value:>10.4g} {unit}{ratio}")


def bare_python_start() -> float:
    """Starting and reaping `python -I -S -c pass`: no shim can be faster than its interpreter."""
    started = time.perf_counter()
    for _ in range(STARTS):
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
    return (time.perf_counter() - started) / STARTS


async def pod_start(folder: Path) -> float:
    """From the creation of a pod of `true` to Succeeded, one after the other."""
    cluster = PodCluster()
    async with running_agent(agent_config(folder), FakeTransport(cluster)):
        started = time.perf_counter()
        for number in range(STARTS):
            cluster.create_pod(f"p{number}", pod_spec(shell("true")))
            await eventually(
                lambda number=number: phase(cluster, f"p{number}") == "Succeeded",
                "its success",
                beat=0.001,
            )
        return (time.perf_counter() - started) / STARTS


def write_log(folder: Path, *, through_shim: bool) -> float:
    """Bytes a second of a container that prints lines of 100 bytes."""
    script = f"yes {LINE} | head -c {LOG_BYTES}"
    started = time.perf_counter()
    if through_shim:
        with shim_run(folder) as run:
            run.start("sh", "-c", script, max_bytes=16 << 20, max_files=3).finish()
    else:
        subprocess.run(["sh", "-c", f"({script}) | cat > {folder}/plain"], check=True)
    return LOG_BYTES / (time.perf_counter() - started)


def own_memory(pid: int) -> float:
    """Memory that this process shares with no file, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no RssAnon")


def idle_shim_memory(folder: Path) -> float:
    with shim_run(folder) as run:
        run.start("sleep", "1000")
        found = run.record(records.RUNNING)
        assert found is not None
        used = own_memory(found["shim"]["pid"])
        run.ask_to_stop(0)
        run.finish()
    return used


def bare_python_memory() -> float:
    script = "import sys; sys.stdin.read()"
    command = [sys.executable, "-I", "-S", "-c", f"print(flush=True); {script}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        used = own_memory(process.pid)
        process.communicate(timeout=20)
    return used


def agent_memory() -> tuple[float, float]:
    """RSS in MB after importing the agent, and of an interpreter that imported asyncio and ssl."""
    code = "import {}; print([l for l in open('/proc/self/status') if 'VmRSS' in l][0].split()[1])"

    def rss(modules: str) -> float:
        command = [sys.executable, "-c", code.format(modules)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        return int(subprocess.check_output(command, env=environment, text=True)) / 1024

    return rss("clusterops.nodeagent.run"), rss("asyncio, ssl")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            bare = bare_python_start()
            show(
                "pod of `true`, created to Succeeded",
                asyncio.run(pod_start(folder / "a")),
                "s",
                bare,
            )
            plain = write_log(folder, through_shim=False) / 1e6
            through = write_log(folder / "b", through_shim=True) / 1e6
            show("log throughput, lines of 100 bytes", through, "MB/s", plain)
            idle = idle_shim_memory(folder / "c")
            show("own memory of an idle shim", idle, "MB", bare_python_memory())
            show("RSS of the agent after import", *_with_unit(agent_memory()))
        finally:
            end_processes_of(folder)


def _with_unit(figures: tuple[float, float]) -> tuple[float, str, float]:
    return figures[0], "MB", figures[1]


if __name__ == "__main__":
    main()
