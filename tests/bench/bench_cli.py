"""The command line: help and completion against importing typer, and the queue with 10,000 jobs.

Run: python tests/bench/bench_cli.py [JOBS]. Times are the best of several fresh processes, which
take turns, so that a load from elsewhere meets all alike. Modules are compiled beforehand, as they
are after an installation: where the environment forbids byte code, compiling ours anew each time was
a third of what completion took beyond importing typer.
"""

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.cli_cluster import JOBS, example, install_queues, now
from support.embedded import EmbeddedServer

ROUNDS = 7
CLI = [sys.executable, "-m", "clusterops.cli"]


def best_of(
    argv: list[str], environment: dict[str, str] | None = None, rounds: int = ROUNDS
) -> float:
    """Seconds of the fastest of several runs of a process."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run(
            argv, capture_output=True, env={**os.environ, **(environment or {})}, check=False
        )
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def start_up() -> None:
    """Help and completion as ratios of importing typer, in the same run."""
    with tempfile.TemporaryDirectory() as byte_code:
        compiled = {"PYTHONPYCACHEPREFIX": byte_code, "PYTHONDONTWRITEBYTECODE": ""}
        _start_up(compiled)


def _start_up(compiled: dict[str, str]) -> None:
    completion = {
        "_CLUSTEROPS_COMPLETE": "complete_bash",
        "COMP_WORDS": "clusterops submit --d",
        "COMP_CWORD": "2",
    }
    typer = "python -c 'import typer'"
    rows = {
        typer: ([sys.executable, "-c", "import typer"], {}),
        "clusterops --help": ([*CLI, "--help"], {}),
        "clusterops submit --help": ([*CLI, "submit", "--help"], {}),
        "completion of an option": (CLI, completion),
    }
    seconds = dict.fromkeys(rows, float("inf"))
    for each_round in range(1 + 2 * ROUNDS):
        for name, (argv, environment) in rows.items():
            took = best_of(argv, {**environment, **compiled}, rounds=1)
            if each_round:  # the first one compiles
                seconds[name] = min(seconds[name], took)
    for name, best in seconds.items():
        ratio = best / seconds[typer]
        print(f"{name:<30}{best * 1000:7.0f} ms   ratio {ratio:.2f} (limit 1.5)")


def queue(jobs: int) -> None:
    """`clusterops queue` on an embedded server that holds so many jobs."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder)) as server:
        install_queues(server)
        body = example("counter")

        def fill(numbers: range) -> None:
            connection = server.connect()
            for number in numbers:
                job = {**body, "metadata": {"name": f"job-{number}", "namespace": "research"}}
                answer = server.request("POST", JOBS, job, connection=connection)
                assert answer.status == 201, answer.content
            connection.close()

        start = time.perf_counter()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(fill, (range(first, jobs, 8) for first in range(8))))
        print(f"created {jobs} jobs in {time.perf_counter() - start:.1f} s ({now()})")
        environment = {"KUBECONFIG": str(server.kubeconfig), "XDG_STATE_HOME": folder}
        listed = subprocess.run(
            [*CLI, "queue", "-n", "research"],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
            check=True,
        )
        assert len(listed.stdout.splitlines()) == jobs + 1
        version = best_of([*CLI, "version"], environment)
        for words in (["-n", "research"], ["-A"], ["-n", "research", "--limit", "20"]):
            seconds = best_of([*CLI, "queue", *words], environment)
            print(
                f"queue {' '.join(words):<24}{seconds * 1000:7.0f} ms   "
                f"ratio to `version` {seconds / version:.2f} (limit 1000 ms)"
            )


if __name__ == "__main__":
    start_up()
    queue(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
