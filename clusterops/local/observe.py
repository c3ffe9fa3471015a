"""What a person sees of local mode: parts, nodes, jobs; once for `status`, live for `up`."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any, Protocol

from clusterops.api import names
from clusterops.kube import connect
from clusterops.kube.client import Client
from clusterops.kube.errors import KubeError
from clusterops.local.state_folder import StateFolder

REFRESH_SECONDS = 1.0


@dataclass(frozen=True)
class PartLine:
    """One process. `pid` is None between two lives."""

    name: str
    pid: int | None
    restarts: int


@dataclass(frozen=True)
class NodeLine:
    """One node and its GPUs."""

    name: str
    ready: bool
    gpus: int
    simulated: bool


@dataclass(frozen=True)
class JobLine:
    """One TrainingJob, in the words of its status."""

    namespace: str
    name: str
    phase: str
    message: str


@dataclass(frozen=True)
class Observed:
    """Local mode at one instant. `problem` is empty when the API server answered."""

    folder: str
    pid: int | None
    parts: Sequence[PartLine]
    nodes: Sequence[NodeLine]
    jobs: Sequence[JobLine]
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """For `-o json`."""
        return asdict(self)

    def phases(self) -> dict[str, int]:
        """How many jobs are in each phase."""
        return dict(sorted(Counter(job.phase for job in self.jobs).items()))


async def observe(folder: StateFolder, client: Client | None = None) -> Observed:
    """Looks once. Without a client it connects by the folder's kubeconfig."""
    parts = read_parts(folder)
    try:
        async with contextlib.AsyncExitStack() as stack:
            asked = client
            if asked is None:
                # While local mode is still starting there may be no kubeconfig.
                own = connect.load(folder.kubeconfig)
                stack.push_async_callback(own.close)
                asked = Client(own.transport)
            nodes, _ = await asked.list(names.NODES)
            jobs, _ = await asked.list(names.TRAINING_JOBS)
    except KubeError as error:
        return Observed(str(folder.root), folder.running_pid(), parts, (), (), str(error))
    return Observed(
        str(folder.root),
        folder.running_pid(),
        parts,
        tuple(node_line(node) for node in nodes),
        tuple(job_line(job) for job in jobs),
    )


def read_parts(folder: StateFolder) -> tuple[PartLine, ...]:
    """What the supervisor last wrote about its parts; empty when it wrote nothing."""
    try:
        rows = json.loads(folder.parts_file.read_text())
    except (OSError, ValueError):
        return ()
    return tuple(PartLine(row["name"], row["pid"], row["restarts"]) for row in rows)


def node_line(node: Mapping[str, Any]) -> NodeLine:
    """A node in one line."""
    status = node.get("status") or {}
    labels = node["metadata"].get("labels") or {}
    return NodeLine(
        str(node["metadata"]["name"]),
        is_ready(node),
        int((status.get("allocatable") or {}).get(names.RESOURCE_GPU) or 0),
        labels.get(names.LABEL_SIMULATED) == "true",
    )


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether a node's Ready condition is True."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def job_line(job: Mapping[str, Any]) -> JobLine:
    """A job in one line."""
    status = job.get("status") or {}
    metadata = job["metadata"]
    return JobLine(
        str(metadata["namespace"]),
        str(metadata["name"]),
        str(status.get("phase") or "Pending"),
        str(status.get("message") or ""),
    )


def render(seen: Observed) -> str:
    """The whole as plain text."""
    lines = [f"local mode in {seen.folder}, process {seen.pid}"]
    if seen.problem:
        lines.append(f"the API server does not answer: {seen.problem}")
    for part in seen.parts:
        state = f"process {part.pid}" if part.pid else "ended, starting again"
        again = f", restarted {part.restarts} times" if part.restarts else ""
        lines.append(f"  part  {part.name:<18} {state}{again}")
    for node in seen.nodes:
        kind = "simulated GPUs" if node.simulated else "GPUs"
        ready = "ready" if node.ready else "NOT READY"
        lines.append(f"  node  {node.name:<18} {ready}, {node.gpus} {kind}")
    counts = ", ".join(f"{count} {phase}" for phase, count in seen.phases().items())
    lines.append(f"  jobs  {counts or 'none yet; submit one with: clusterops submit'}")
    return "\n".join(lines)


class Screen(Protocol):
    """Where `up` shows what goes on."""

    def line(self, text: str) -> None:
        """One line that stays."""

    def ready(self, commands: Sequence[str]) -> None:
        """Everything runs; these are the commands to go on with."""

    def show(self, seen: Observed) -> None:
        """The state as it is now."""

    def close(self) -> None:
        """Nothing will be shown any more."""


class PlainScreen:
    """Lines for logs and pipes: what changed, never the same thing twice."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._phases: dict[tuple[str, str], str] = {}

    def line(self, text: str) -> None:
        """One line that stays."""
        print(text, file=self._stream, flush=True)

    def ready(self, commands: Sequence[str]) -> None:
        """Everything runs; these are the commands to go on with."""
        self.line("local mode is up; Ctrl-C stops it. Next:")
        for command in commands:
            self.line(f"  {command}")

    def show(self, seen: Observed) -> None:
        """Tells each job whose phase changed."""
        for job in seen.jobs:
            key = (job.namespace, job.name)
            if self._phases.get(key) != job.phase:
                self._phases[key] = job.phase
                self.line(
                    f"{job.namespace}/{job.name} {job.phase} {printable(job.message)}".rstrip()
                )

    def close(self) -> None:
        """Nothing will be shown any more."""


class LiveScreen(PlainScreen):
    """A terminal: the state in place, lines above it."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(stream)
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(file=stream), auto_refresh=False)

    def line(self, text: str) -> None:
        """One line that stays."""
        self._live.console.print(text, markup=False, highlight=False)

    def ready(self, commands: Sequence[str]) -> None:
        """Everything runs; these are the commands to go on with."""
        super().ready(commands)
        self._live.start()

    def show(self, seen: Observed) -> None:
        """The state in place."""
        from rich.text import Text

        rows = [render(seen)]
        rows += [
            f"        {job.namespace}/{job.name}  {job.phase}  {printable(job.message)}"
            for job in seen.jobs[-12:]
        ]
        self._live.update(Text("\n".join(rows)), refresh=True)

    def close(self) -> None:
        """Leaves the last state on the screen."""
        self._live.stop()


def screen(stream: IO[str]) -> Screen:
    """The screen that fits: live on a terminal, plain lines elsewhere."""
    return LiveScreen(stream) if stream.isatty() else PlainScreen(stream)


def printable(text: str) -> str:
    """Text of others without control characters, which could drive the terminal."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


async def live(folder: StateFolder, client: Client, on: Screen, stop: asyncio.Event) -> None:
    """Shows the state about once a second until `stop` is set."""
    while not stop.is_set():
        on.show(await observe(folder, client))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REFRESH_SECONDS):
                await stop.wait()
    on.close()
