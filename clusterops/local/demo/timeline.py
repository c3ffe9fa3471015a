"""What was seen, when: folds observed objects and log lines into the story of each job. Pure.

Times are seconds on the demo's monotonic clock at which something was seen here. That is never
earlier than it happened, so that an interval measured from a notice to a first step is not flattered.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from clusterops.api import names
from clusterops.api.reasons import Phase

STEP = re.compile(r"\bstep (\d+)/(\d+)\b")
STARTS = "start at step"


@dataclass
class JobStory:
    """One job as seen so far. `status` is the newest status of the TrainingJob."""

    name: str
    phase: str = ""
    notice_at: float | None = None
    notice_seconds: float = 0.0
    first_step_at: float | None = None
    resumed_at: float | None = None
    """When a later attempt first said where it goes on."""
    resumed_step: int = 0
    reached: int = 0
    """The furthest step that the attempt before had printed."""
    last_step: int = 0
    status: dict[str, Any] = field(default_factory=dict)
    outcome: str = ""
    finished_at: float | None = None


@dataclass(frozen=True)
class NodeStory:
    """The health of one node as seen so far."""

    name: str
    verdict: str = ""
    rung: str = ""
    state: str = ""
    tickets: tuple[str, ...] = ()


_STATES = {
    "Draining": "has to be: jobs leave the node",
    "Running": "is under way",
    "Verifying": "was done: the node has to prove that it is well",
    "Failed": "did not help",
    "Done": "is over: the node has proven that it is well, and takes jobs again",
}


def _with(known: tuple[str, ...], ticket: Any) -> tuple[str, ...]:
    return known if not ticket or str(ticket) in known else (*known, str(ticket))


@dataclass(frozen=True)
class Told:
    """One line for the audience."""

    at: float
    job: str
    text: str


@dataclass(frozen=True)
class GpuHold:
    """One pod's hold on its GPUs, wall-clock seconds as its node reported them; `end=None` = holds."""

    pod: str
    gpus: int
    start: str
    end: str | None


class Timeline:
    """Collects what was seen. Feed it every observed version; it returns what is worth telling."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobStory] = {}
        self.nodes: dict[str, NodeStory] = {}
        self.verdicts: dict[str, tuple[float, ...]] = {}
        """When the verdict on each node changed."""
        self._holds: dict[str, GpuHold] = {}

    def story(self, job: str) -> JobStory:
        """The story of a job, empty before it was first seen."""
        return self.jobs.setdefault(job, JobStory(job))

    def see_job(self, training_job: Mapping[str, Any], at: float) -> list[Told]:
        """An observed TrainingJob: tells every change of phase with its message."""
        story = self.story(str(training_job["metadata"]["name"]))
        status = training_job.get("status") or {}
        phase = str(status.get("phase") or Phase.PENDING)
        story.status = status
        if phase == story.phase:
            return []
        before, story.phase = story.phase, phase
        if phase == Phase.CHECKPOINTING:
            story.notice_at = at
        elif before == Phase.CHECKPOINTING and story.notice_at is not None:
            story.notice_seconds += at - story.notice_at
        if phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED):
            story.outcome, story.finished_at = phase, at
        message = str(status.get("message") or "")
        return [Told(at, story.name, f"{phase:<13} {message}".rstrip())]

    def see_pod(self, pod: Mapping[str, Any]) -> None:
        """An observed pod: remembers from when to when it held GPUs."""
        statuses = (pod.get("status") or {}).get("containerStatuses") or []
        for status in statuses:
            state = status.get("state") or {}
            ended = state.get("terminated") or {}
            start = ended.get("startedAt") or (state.get("running") or {}).get("startedAt")
            if start:
                name = str(pod["metadata"]["name"])
                self._holds[name] = GpuHold(name, gpus_of(pod), start, ended.get("finishedAt"))

    def see_log(self, job: str, line: str, at: float) -> list[Told]:
        """A line that rank 0 printed: tells the first step of an attempt and each later report."""
        story = self.story(job)
        match = STEP.search(line)
        if match is None:
            return []
        before, story.last_step = story.last_step, int(match.group(1))
        if story.first_step_at is None:
            story.first_step_at = at
        elif line.startswith(STARTS):
            story.resumed_at, story.resumed_step, story.reached = at, story.last_step, before
        return [Told(at, job, line.strip())]

    def see_health(self, node_health: Mapping[str, Any], at: float) -> list[Told]:
        """An observed NodeHealth: tells every new verdict, and every step of what is done about it."""
        name = str(node_health["metadata"]["name"])
        before = self.nodes.get(name, NodeStory(name))
        status = node_health.get("status") or {}
        remedy = (node_health.get("spec") or {}).get("remediation") or {}
        story = self.nodes[name] = replace(
            before,
            verdict=str(status.get("verdict") or before.verdict),
            rung=str(remedy.get("rung") or ""),
            state=str(remedy.get("state") or ""),
            tickets=_with(before.tickets, remedy.get("ticket")),
        )
        told = []
        if story.verdict != before.verdict and before.verdict:
            why = f" {status.get('message') or ''}" if story.verdict != "Healthy" else ""
            told.append(Told(at, name, f"{story.verdict}:{why}" if why else story.verdict))
        if (story.rung, story.state) != (before.rung, before.state):
            told.append(Told(at, name, f"{story.rung} {_STATES.get(story.state, story.state)}"))
        if story.tickets != before.tickets:
            told.append(Told(at, name, f"ticket {story.tickets[-1]} is with the vendor"))
        if story.verdict != before.verdict:
            self.verdicts[name] = (*self.verdicts.get(name, ()), at)
        return told

    def peak_gpus(self) -> int:
        """The most GPUs held at any instant, from the nodes' own timestamps."""
        # Ends sort before starts of the same second: a GPU given back and taken again is one GPU.
        changes = sorted(
            change
            for hold in self._holds.values()
            for change in (
                (hold.start, 1, hold.gpus),
                *(((hold.end, 0, -hold.gpus),) if hold.end else ()),
            )
        )
        held = peak = 0
        for _, _, gpus in changes:
            held += gpus
            peak = max(peak, held)
        return peak


def gpus_of(pod: Mapping[str, Any]) -> int:
    """GPUs that a pod asks for."""
    total = 0
    for container in (pod.get("spec") or {}).get("containers") or []:
        limits = (container.get("resources") or {}).get("limits") or {}
        total += int(limits.get(names.RESOURCE_GPU) or 0)
    return total
