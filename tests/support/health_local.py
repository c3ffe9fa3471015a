"""A job on a local cluster whose nodes are watched, and all that is seen when a GPU of it breaks."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.local_run import LocalRun

from clusterops.api import names
from clusterops.kube import connect
from clusterops.kube.client import Client
from clusterops.kube.errors import KubeError
from clusterops.kube.reflector import Reflector
from clusterops.kube.store import Store

Json = dict[str, Any]
JOB = "steady"
DEADLINE_SECONDS = 60.0
KILLED = ("operator", "health-local-0", "health-local-1")


def steady_job() -> Json:
    """Counts for as long as the test lasts, on all GPUs of one node, and saves now and then."""
    command = ["python", "-m", "clusterops.train.examples.counter", "--steps=1000000"]
    command += ["--step-seconds=0.02", "--save-every=25", "--log-every=100000"]
    container = {
        "name": "trainer",
        "image": "x",
        "command": command,
        "resources": {"limits": {names.RESOURCE_GPU: 4}},
        "volumeMounts": [{"name": "c", "mountPath": "/checkpoints"}],
    }
    volume = {"name": "c", "persistentVolumeClaim": {"claimName": "checkpoints"}}
    return {
        "apiVersion": names.TRAINING_JOBS.api_version,
        "kind": names.TRAINING_JOBS.kind,
        "metadata": {"name": JOB, "namespace": "default"},
        "spec": {
            "queueName": "local",
            "replicas": 1,
            "checkpoint": {"directory": f"/checkpoints/{JOB}", "gracePeriodSeconds": 20},
            "template": {"spec": {"containers": [container], "volumes": [volume]}},
        },
    }


@dataclass
class Watch:
    """What was seen of the nodes, in order: each state of a remediation once, and each taint."""

    run: LocalRun
    client: Client
    states: list[tuple[str, str, str]] = field(default_factory=list)
    """Node, rung, state."""
    taints: list[tuple[str, str | None]] = field(default_factory=list)
    on_state: Callable[[], None] = lambda: None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def saw_health(self, health: Json) -> None:
        remedy = (health.get("spec") or {}).get("remediation") or {}
        seen = (str(health["metadata"]["name"]), str(remedy.get("rung")), str(remedy.get("state")))
        if remedy and seen not in self.states[-1:]:
            self.states.append(seen)
            self.on_state()
        self._changed.set()

    def saw_node(self, node: Json) -> None:
        ours = [t for t in node["spec"].get("taints") or () if t["key"] == names.TAINT_HEALTH]
        seen = (str(node["metadata"]["name"]), str(ours[0].get("value")) if ours else None)
        before = next((v for n, v in reversed(self.taints) if n == seen[0]), None)
        if seen[1] != before:
            self.taints.append(seen)
        self._changed.set()

    async def until(self, what: str, true: Callable[[], Awaitable[Any]]) -> Any:
        """Waits for something that follows from what is seen; asked again at least each 0.2 s."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            self._changed.clear()
            with contextlib.suppress(KubeError):
                found = await true()
                if found:
                    return found
            assert time.monotonic() < deadline, f"waited for {what}: {self.states} {self.taints}"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await self._changed.wait()

    async def status(self) -> Json:
        job = await self.client.get(names.TRAINING_JOBS, "default", JOB)
        return dict(job.get("status") or {})

    async def running_on(self, attempt: int) -> str | None:
        """The node on which an attempt of the job runs, None while it does not."""
        pods, _ = await self.client.list(
            names.PODS, "default", label_selector=f"{names.LABEL_JOB}={JOB}"
        )
        for pod in pods:
            mine = pod["metadata"]["labels"][names.LABEL_ATTEMPT] == str(attempt)
            if mine and (pod.get("status") or {}).get("phase") == "Running":
                return str(pod["spec"]["nodeName"])
        return None

    def began(self) -> list[int]:
        """The steps that the job's processes began at, in order."""
        path = self.run.folder / "volumes" / "default" / "checkpoints" / JOB / "attempts.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        entries = [json.loads(line) for line in lines if line.endswith("}")]
        return [entry["step"] for entry in entries if entry["event"] == "began"]

    def saved(self) -> list[int]:
        """The steps of the checkpoints that are kept."""
        folder = self.run.folder / "volumes" / "default" / "checkpoints" / JOB
        return sorted(int(path.name.partition("_")[2]) for path in folder.glob("step_*"))

    def job_processes(self) -> list[int]:
        """Pids of the job's own processes."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    command = (entry / "cmdline").read_bytes().split(bytes(1))
                    environment = (entry / "environ").read_bytes()
                    if (
                        b"clusterops.train.examples.counter" in command
                        and os.fsencode(self.run.folder) in environment
                    ):
                        found.append(int(entry.name))
        return found

    def tickets(self) -> list[Json]:
        folder = self.run.folder / "tickets"
        return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]

    def kill(self, *parts: str) -> None:
        """SIGKILL to parts of local mode; the supervisor starts them again."""
        for row in json.loads((self.run.folder / "parts.json").read_text()):
            if row["name"] in parts and row["pid"]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(row["pid"], signal.SIGKILL)

    def command(self, *arguments: str) -> None:
        """A command of ours against this cluster."""
        done = subprocess.run(
            [sys.executable, "-m", "clusterops.cli", *arguments],
            env={**os.environ, names.ENV_HOME: str(self.run.folder)},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


@asynccontextmanager
async def watched(run: LocalRun) -> AsyncIterator[Watch]:
    """A connection to the cluster of `run`, and watches on its nodes and their health."""
    connection = connect.load(run.kubeconfig)
    client = connection.client()
    watch = Watch(run, client)

    def following(resource: names.ResourceType, saw: Callable[[Json], None]) -> Reflector[Json]:
        store: Store[Json] = Store()

        def changed(key: tuple[str, str]) -> None:
            found = store.get(key)
            if found is not None:
                saw(found)

        return Reflector(client, resource, store, lambda obj: obj, changed)

    watches = [
        following(names.NODE_HEALTHS, watch.saw_health),
        following(names.NODES, watch.saw_node),
    ]
    tasks = [asyncio.create_task(each.run()) for each in watches]
    try:
        yield watch
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await connection.close()
