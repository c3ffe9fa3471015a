"""Where a chapter plays: local mode in a folder of its own, and watchers that tell what happens."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from clusterops.api import names
from clusterops.kube.errors import KubeError
from clusterops.kube.reflector import Reflector
from clusterops.kube.store import Key, Store
from clusterops.local.demo.timeline import Timeline, Told
from clusterops.local.parts import NodeShape
from clusterops.local.state_folder import StateFolder
from clusterops.local.up import LocalMode, local_mode

COMMAND_SECONDS = 60.0
FIELD_MANAGER = "clusterops-demo"
NODES = 2
GPUS_PER_NODE = 4


class DemoFailed(Exception):
    """A chapter did not go as it must; the text says what was waited for and what was seen."""


@dataclass
class Stage:
    """Local mode with an audience. `tell` prints one line; `manifests` is the shipped folder."""

    mode: LocalMode
    manifests: Path
    tell: Callable[[Told], None]
    timeline: Timeline = field(default_factory=Timeline)
    started: float = field(default_factory=time.monotonic)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _tails: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def now(self) -> float:
        """Seconds since the curtain rose."""
        return time.monotonic() - self.started

    async def apply(self, path: Path) -> None:
        """Applies a manifest or a kustomization folder, as a person would: with kubectl where it is
        installed, else with our own commands.
        """
        kubectl = shutil.which("kubectl")
        kubeconfig = f"--kubeconfig={self.mode.folder.kubeconfig}"
        shown = path.relative_to(self.manifests.parent)
        if kubectl:
            flag = "-k" if path.is_dir() else "-f"
            self.say("", f"$ kubectl apply {flag} {shown}")
            await self._run([kubectl, kubeconfig, "apply", flag, str(path)])
        elif path.is_dir():
            self.say("", f"applying {shown} (kubectl is not installed)")
            for resource, wanted in objects_of(path):
                await self.mode.client.apply(resource, wanted, field_manager=FIELD_MANAGER)
        else:
            self.say("", f"$ clusterops submit {shown}")
            await self._run(
                [sys.executable, "-m", "clusterops.cli", "submit", str(path), kubeconfig]
            )

    async def clusterops(self, *arguments: str) -> None:
        """Runs one of our own commands against this stage, as a person would."""
        self.say("", " ".join(["$ clusterops", *arguments]))
        argv = [sys.executable, "-m", "clusterops.cli", *arguments]
        await self._run(argv)

    async def _run(self, argv: Sequence[str]) -> None:
        environment = {
            **os.environ,
            "KUBECACHEDIR": str(self.mode.folder.root / "kubectl-cache"),
            names.ENV_HOME: str(self.mode.folder.root),
        }
        process = await asyncio.create_subprocess_exec(
            *argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
        )
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            raise DemoFailed(f"{argv[0]} did not end within {COMMAND_SECONDS:.0f} s") from None
        for line in output.decode(errors="replace").splitlines():
            self.say("", f"  {line}")
        if process.returncode:
            raise DemoFailed(f"{argv[0]} failed with code {process.returncode}")

    def say(self, job: str, text: str) -> None:
        """Tells the audience one line, now."""
        self.tell(Told(self.now(), job, text))

    async def until(
        self, true: Callable[[], bool], waiting_for: str, deadline_seconds: float
    ) -> None:
        """Waits until `true()`; it is asked after everything that was seen.

        Raises:
            DemoFailed: nothing went forward for that long, it took ten times as long in all (a slow
                machine is no failure), or a job failed meanwhile.
        """
        begun = moved = time.monotonic()
        standing = self._standing()
        while not true():
            self._changed.clear()
            if standing != self._standing():
                standing, moved = self._standing(), time.monotonic()
            for story in self.timeline.jobs.values():
                if story.outcome == "Failed":
                    raise DemoFailed(f"job {story.name} failed: {story.status.get('message')}")
            deadline = min(moved + deadline_seconds, begun + 10 * deadline_seconds)
            left = deadline - time.monotonic()
            if left <= 0:
                phases = {name: story.phase for name, story in self.timeline.jobs.items()}
                raise DemoFailed(
                    f"waited {time.monotonic() - begun:.0f} s for {waiting_for}, the last "
                    f"{time.monotonic() - moved:.0f} s without a step forward; jobs are {phases}"
                )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()

    def _standing(self) -> list[tuple[str, str, int]]:
        """How far each job is."""
        jobs = self.timeline.jobs.values()
        return [(story.name, story.phase, story.last_step) for story in jobs]

    def saw_job(self, job: Mapping[str, Any]) -> None:
        """An observed TrainingJob."""
        for line in self.timeline.see_job(job, self.now()):
            self.tell(line)
        self._changed.set()

    def saw_health(self, node_health: Mapping[str, Any]) -> None:
        """An observed NodeHealth."""
        for line in self.timeline.see_health(node_health, self.now()):
            self.tell(line)
        self._changed.set()

    def saw_pod(self, pod: Mapping[str, Any]) -> None:
        """An observed pod; rank 0's log is followed from the moment it runs."""
        self.timeline.see_pod(pod)
        metadata = pod["metadata"]
        labels = metadata.get("labels") or {}
        running = (pod.get("status") or {}).get("phase") not in (None, "Pending")
        if running and labels.get(names.LABEL_RANK) == "0" and metadata["name"] not in self._tails:
            tail = self._follow(metadata["namespace"], metadata["name"], labels[names.LABEL_JOB])
            self._tails[metadata["name"]] = asyncio.create_task(tail)
        self._changed.set()

    async def _follow(self, namespace: str, pod: str, job: str) -> None:
        pending = b""
        with contextlib.suppress(KubeError):
            async for piece in self.mode.client.pod_log(namespace, pod, follow=True):
                *lines, pending = (pending + piece).split(b"\n")
                for line in lines:
                    for told in self.timeline.see_log(
                        job, line.decode(errors="replace"), self.now()
                    ):
                        self.tell(told)
                self._changed.set()

    async def close(self) -> None:
        """Ends the watchers of logs."""
        for task in self._tails.values():
            task.cancel()
        await asyncio.gather(*self._tails.values(), return_exceptions=True)


@contextlib.asynccontextmanager
async def stage(
    folder: StateFolder,
    manifests: Path,
    *,
    tell: Callable[[Told], None],
    environ: Mapping[str, str],
) -> AsyncIterator[Stage]:
    """A stage on two nodes of four simulated GPUs each, taken down when the block ends."""
    started = time.monotonic()

    def narrate(text: str) -> None:
        tell(Told(time.monotonic() - started, "", text))

    shape = NodeShape(NODES, GPUS_PER_NODE)
    async with local_mode(
        folder, shape, narrate=narrate, environ=environ, drain_seconds=10.0
    ) as mode:
        play = Stage(mode, manifests, tell, started=started)
        async with asyncio.TaskGroup() as group:
            watchers = [
                group.create_task(_watch(play, names.TRAINING_JOBS, play.saw_job)),
                group.create_task(_watch(play, names.PODS, play.saw_pod)),
                group.create_task(_watch(play, names.NODE_HEALTHS, play.saw_health)),
            ]
            try:
                yield play
            finally:
                for watcher in watchers:
                    watcher.cancel()
                await play.close()


def objects_of(folder: Path) -> list[tuple[names.ResourceType, dict[str, Any]]]:
    """The objects that a kustomization of plain resources lists, in its order."""
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    loaded = [one for file in listed for one in yaml.safe_load_all((folder / file).read_text())]
    return [(names.KINDS[one["kind"]], one) for one in loaded]


async def _watch(
    play: Stage, resource: names.ResourceType, saw: Callable[[Mapping[str, Any]], None]
) -> None:
    store: Store[dict[str, Any]] = Store()

    def changed(key: Key) -> None:
        obj = store.get(key)
        if obj is not None:
            saw(obj)

    reflector = Reflector(play.mode.client, resource, store, lambda obj: obj, changed)
    await reflector.run()
