"""How fast the command line answers, beside the least that a typer program can take.

Prints, of several runs each, the median wall time of `clusterops --help`, of completion, and of
`python -c "import typer"` in the same interpreter, and the ratio to it; then `clusterops queue` with
10,000 jobs on the embedded server.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.local_run import LocalRun

RUNS = 11
JOBS = 10_000
WRITERS = 8


def median_seconds(argv: list[str], environment: dict[str, str] | None = None) -> float:
    """Median wall time of a command over RUNS runs, after one warm-up."""
    times = []
    for _ in range(RUNS + 1):
        started = time.perf_counter()
        subprocess.run(
            argv, check=False, capture_output=True, env={**os.environ, **(environment or {})}
        )
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def training_job(number: int) -> dict[str, object]:
    container = {
        "name": "trainer",
        "image": "none",
        "command": ["true"],
        "volumeMounts": [{"name": "v", "mountPath": "/c"}],
    }
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    return {
        "apiVersion": "clusterops.io/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": f"job-{number:05d}", "namespace": "default"},
        "spec": {
            "queueName": "nowhere",
            "suspend": True,
            "template": {"spec": {"containers": [container], "volumes": [volume]}},
            "checkpoint": {"directory": f"/c/{number}"},
        },
    }


def create_jobs(run: LocalRun) -> None:
    """Creates the jobs through the API, a few clients side by side."""
    import asyncio

    from clusterops.api import names
    from clusterops.kube import connect

    async def create_all() -> None:
        connection = connect.load(run.kubeconfig)
        client = connection.client()
        numbers = iter(range(JOBS))

        async def writer() -> None:
            for number in numbers:
                await client.create(names.TRAINING_JOBS, training_job(number))

        await asyncio.gather(*(writer() for _ in range(WRITERS)))
        await client.close()

    asyncio.run(create_all())


def main() -> None:
    clusterops = [sys.executable, "-m", "clusterops.cli"]
    base = median_seconds([sys.executable, "-c", "import typer"])
    shown = median_seconds([*clusterops, "--help"])
    completing = median_seconds(
        clusterops,
        {"_CLUSTEROPS_COMPLETE": "complete_bash", "COMP_WORDS": "clusterops qu", "COMP_CWORD": "1"},
    )
    print(f"import typer     {base * 1e3:7.1f} ms")
    print(f"--help           {shown * 1e3:7.1f} ms  {shown / base:5.2f} times (at most 1.5)")
    print(
        f"completion       {completing * 1e3:7.1f} ms  {completing / base:5.2f} times (at most 1.5)"
    )

    with tempfile.TemporaryDirectory(prefix="clusterops-bench-") as folder:
        run = LocalRun(Path(folder) / "state", nodes=1, gpus=0)
        run.start()
        try:
            create_jobs(run)
            environment = {"CLUSTEROPS_HOME": str(run.folder)}
            listing = [*clusterops, "queue", "-A", f"--kubeconfig={run.kubeconfig}"]
            lines = subprocess.run(
                listing,
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, **environment},
            ).stdout.count("\n")
            seconds = median_seconds(listing, environment)
            kubectl = median_seconds(
                ["kubectl", f"--kubeconfig={run.kubeconfig}", "get", "trainingjobs", "-A"],
                {"KUBECACHEDIR": f"{folder}/cache"},
            )
            print(
                f"queue, {lines:,} lines {seconds * 1e3:7.0f} ms (below 1,000); kubectl get {kubectl * 1e3:.0f} ms"
            )
            print(json.dumps({"helpRatio": shown / base, "queueSeconds": seconds}))
        finally:
            run.kill()


if __name__ == "__main__":
    main()
