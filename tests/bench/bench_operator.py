"""The operator with 2,000 TrainingJobs and no pods: time to synced, reconciles a second, memory.

All jobs wait for a priority class that does not exist, so that every reconcile is a whole decision
without a write. The baseline of the same run is decoding the same objects from JSON to dicts.

    python tests/bench/bench_operator.py [JOBS]
"""

import asyncio
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.embedded import EmbeddedServer

from clusterops.api import names
from clusterops.core.settings import Settings
from clusterops.kube import connect
from clusterops.kube.client import Client
from clusterops.kube.rate_limit import TokenBucket
from clusterops.operator.failpoints import unarmed
from clusterops.operator.run import Operator, OperatorConfig

NAMESPACES = 10


def job(number: int) -> dict[str, object]:
    container = {
        "name": "train",
        "image": "trainer:1",
        "command": ["python", "train.py"],
        "env": [{"name": f"V{i}", "value": "x" * 40} for i in range(20)],
        "resources": {"limits": {names.RESOURCE_GPU: 8}},
        "volumeMounts": [{"name": "v", "mountPath": "/checkpoints"}],
    }
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    return {
        "apiVersion": names.TRAINING_JOBS.api_version,
        "kind": "TrainingJob",
        "metadata": {"namespace": f"bench-{number % NAMESPACES}", "name": f"job-{number}"},
        "spec": {
            "queueName": "queue",
            "priorityClassName": "none",
            "replicas": 4,
            "template": {"spec": {"containers": [container], "volumes": [volume]}},
            "checkpoint": {"directory": f"/checkpoints/{number}"},
        },
    }


async def fill(client: Client, count: int) -> None:
    for number in range(NAMESPACES):
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": f"bench-{number}"},
        }
        await client.create(names.NAMESPACES, body)
    gate = asyncio.Semaphore(16)

    async def create(number: int) -> None:
        async with gate:
            await client.create(names.TRAINING_JOBS, job(number))

    await asyncio.gather(*(create(number) for number in range(count)))


async def until(condition: object, what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {seconds:.0f} s for {what}")
        await asyncio.sleep(0.01)


async def measure(server: EmbeddedServer, count: int) -> None:
    connection = connect.load(server.kubeconfig)
    client = Client(connection.transport, limiter=TokenBucket(100_000.0, 100_000.0))
    started = time.monotonic()
    await fill(client, count)
    print(f"filled with {count} TrainingJobs: {count / (time.monotonic() - started):.0f} creates/s")
    listed, _ = await client.list(names.TRAINING_JOBS)
    texts = [json.dumps(item) for item in listed]
    started = time.monotonic()
    for text in texts:
        json.loads(text)
    decode = time.monotonic() - started
    del listed, texts
    before = rss()
    config = OperatorConfig(kubeconfig=server.kubeconfig, runtime="processes", identity="bench")
    settings = Settings(runtime="processes", agent_url="https://127.0.0.1:1")
    operator = Operator(config, settings, client, b"k" * 32, b"", unarmed)
    stop = asyncio.Event()
    cpu, started = time.process_time(), time.monotonic()
    running = asyncio.create_task(operator.run(stop))
    await until(lambda: operator.leading, "the operator to be synced", 120)
    synced = time.monotonic() - started
    print(f"time to synced: {synced:.2f} s, {time.process_time() - cpu:.2f} s CPU")
    print(f"  = {synced / decode:.1f} times json.loads of the same objects ({decode:.3f} s)")
    state = operator.queue_state
    await until(lambda: state().ready == 0 and not state().processing, "first statuses", 300)
    first = time.monotonic() - started
    print(f"every job has its first status after {first:.1f} s: {count / first:.0f} jobs/s")
    # The watch brings the statuses back, which are reconciled once more; then all is quiet.
    await asyncio.sleep(1.0)
    await until(lambda: state().ready == 0 and not state().processing, "quiet", 60)
    started, cpu = time.monotonic(), time.process_time()
    rounds = 5
    for _ in range(rounds):
        operator.look_at_all()
        await until(lambda: state().ready == 0 and not state().processing, "a round", 120)
    wall, used = time.monotonic() - started, time.process_time() - cpu
    total = rounds * count
    print(
        f"reconciles without a change: {total / wall:.0f}/s ({used / total * 1e6:.0f} us CPU each)"
    )
    print(f"RSS: {rss():.0f} MB, {rss() - before:.0f} MB of it since before the operator")
    stop.set()
    await running
    await connection.close()


def rss() -> float:
    with Path("/proc/self/status").open() as status:
        for line in status:
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder) / "s") as server:
        asyncio.run(measure(server, count))


if __name__ == "__main__":
    main()
