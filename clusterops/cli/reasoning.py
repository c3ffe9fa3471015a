"""The causal sentence about one job, from what is written in its status and what the queues hold.

First what the operator and Kueue say; then, for a job that waits for quota, the numbers behind it:
what it needs, what is free, who holds the rest, who is ahead. Nothing here decides.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from clusterops.api.names import TRAINING_JOBS
from clusterops.api.reasons import Cause, Phase
from clusterops.api.text import listed
from clusterops.cli import attempt_lines, cautions, cluster_view, jobs, last_words, outlook
from clusterops.cli.connection import Session
from clusterops.cli.output import age, clock, counted, number
from clusterops.kube.errors import Forbidden
from clusterops.scheduling import explain as scheduling
from clusterops.scheduling import quantities
from clusterops.scheduling.objects import Workload
from clusterops.scheduling.prediction import would_preempt
from clusterops.scheduling.snapshot import Snapshot

SHOWN_HOLDERS = 5
ASKED_HOLDERS = 20  # the largest: how far they are is asked job by job
Json = Mapping[str, Any]


class Holder(NamedTuple):
    """A job, or another workload, that holds some of what is short."""

    namespace: str
    name: str
    amount: int
    priority: int
    leaving: bool


class Reasoning(NamedTuple):
    """Why a job is where it is. `position` counts from 0 in its queue, None when not in it."""

    job: str
    phase: str
    reason: str
    sentence: str
    details: tuple[str, ...] = ()
    would_help: str = ""
    holders: tuple[Holder, ...] = ()
    position: int | None = None
    logs: str = ""
    """The command that prints what the last failure left behind; empty when nothing failed."""
    last_lines: tuple[str, ...] = ()
    """What the rank to blame for a user's error printed last."""


async def about(session: Session, job: Json) -> Reasoning:
    """The reasoning about a job; reads queues and nodes only when it is not running yet."""
    if waits(job):
        view = await cluster_view.look(session)
        # Wall time is the right one here: it is compared with the timestamps of objects.
        now = datetime.now(UTC).timestamp()
        why = waiting(job, view, now)
        if why.holders:
            why = waiting(job, view, now, await _jobs_of(session, why.holders[:ASKED_HOLDERS]))
    else:
        why = from_status(job)
    not_yet = waits(job) or why.phase in (Phase.ADMITTED, Phase.STARTING)
    nodes = await cluster_view.nodes(session) if not_yet else []
    return advised(why, job, nodes, session.usual)._replace(
        last_lines=await last_words.of(session, job)
    )


async def _jobs_of(session: Session, holders: Sequence[Holder]) -> list[Json]:
    """The jobs among the holders, as far as the person may see them."""

    async def find(holder: Holder) -> Json | None:
        try:
            return await session.client.find(TRAINING_JOBS, holder.namespace, holder.name)
        except Forbidden:
            return None

    found = await asyncio.gather(*(find(holder) for holder in holders))
    return [job for job in found if job is not None]


def advised(why: Reasoning, job: Json, nodes: Sequence[Json], namespace: str) -> Reasoning:
    """With what the person should know besides: a pod that no node holds, work that is not saved,
    where to read about the last failure. `namespace` is the one commands use by default.
    """
    details = list(why.details)
    outsized = cautions.outsized(job, nodes)
    if outsized:
        details.insert(0, f"{outsized}: no node can run it")
        why = why._replace(would_help="fewer GPUs a pod in more replicas, or a larger node")
    over = jobs.phase_of(dict(job)).final
    starts_over = "" if over else cautions.starts_over(job)
    if starts_over:
        details.append(starts_over)
    ended = [
        each for each in (job.get("status") or {}).get("attempts") or () if each.get("endedAt")
    ]
    logs = ""
    if ended and attempt_lines.failed(ended[-1]):
        logs = attempt_lines.log_command(job, ended[-1], namespace=namespace)
    return why._replace(details=tuple(details), logs=logs)


def waits(job: Json) -> bool:
    """Whether the job wants quota and has none."""
    phase = jobs.phase_of(dict(job))
    return phase in (Phase.PENDING, Phase.REQUEUED) and not job["spec"].get("suspend")


def from_status(job: Json) -> Reasoning:
    """The reasoning about a job that runs, moves or has ended: its own status says all."""
    status = job.get("status") or {}
    phase, name = jobs.phase_of(dict(job)), job["metadata"]["name"]
    sentence = f"{name} {_STATES[phase].format(**_facts(job))}"
    why = jobs.reason_sentence(status)
    if why and why not in sentence:
        sentence += f": {why}"
    would_help = _RESUME.format(**job["metadata"]) if phase is Phase.SUSPENDED else ""
    return Reasoning(
        name,
        str(phase),
        status.get("reason") or "",
        _closed(sentence),
        _history(status),
        would_help,
    )


def waiting(job: Json, view: Snapshot, now: float, running: Sequence[Json] = ()) -> Reasoning:
    """The reasoning about a job without quota, from the queues as they are, and from how far the
    `running` jobs say they are.
    """
    status, name = job.get("status") or {}, job["metadata"]["name"]
    phase = str(jobs.phase_of(dict(job)))
    own = _workload_of(job, view)
    said = jobs.reason_sentence(status)
    waited = age(_waits_since(job), datetime.fromtimestamp(now, UTC))
    if own is None:
        sentence = said or "the operator has not put it into its queue yet"
        return Reasoning(
            name, phase, status.get("reason") or "",
            _closed(f"{name} has waited {waited}: {sentence}"),
            _history(status), "" if said else "is the operator running? clusterops status",
        )  # fmt: skip
    found = scheduling.explain(view, own, now)
    holders = tuple(
        Holder(each.namespace, jobs.behind(each.name), each.amount, each.priority, each.leaving)
        for each in found.holders
    )
    details = [_need(short) for short in found.shortages[1:]]  # the sentence has the first
    if found.shortages:
        # The numbers say it better than the message about flavors that Kueue would write.
        sentence = f"{name} has waited {waited}: it {_need(found.shortages[0])}"
        if found.position is not None:
            sentence += f", place {found.position + 1} of {found.length} in the queue"
        details.append(f"the queue says: {found.sentence}")
        endings = outlook.endings_of(found.holders, running)
        when = outlook.earliest(found.shortages[0], endings, ahead=found.position or 0)
        if any(each.seconds is not None for each in endings):
            details.append(when)
    else:
        sentence = f"{name} has waited {waited}: {found.sentence}"
        if said and said not in sentence:
            details.append(f"the operator says: {said}")
    if holders:
        sentence += f"; {_held_by(holders, job['metadata']['namespace'])}"
    return Reasoning(
        name, phase, str(found.reason) or status.get("reason") or "", _closed(sentence),
        (*details, *_history(status)), _would_help(found, view, own), holders, found.position,
    )  # fmt: skip


def _waits_since(job: Json) -> str | None:
    """When the wait began: with the end of the last attempt, or with the job."""
    attempts = (job.get("status") or {}).get("attempts") or ()
    since: str | None = attempts[-1].get("endedAt") if attempts else None
    return since or job["metadata"].get("creationTimestamp")


def _closed(sentence: str) -> str:
    """With one full stop: messages of Kubernetes may bring their own."""
    return f"{sentence.rstrip('.')}."


_RESUME = (
    "it goes on after: kubectl patch tj -n {namespace} {name} --type merge "
    '-p \'{{"spec":{{"suspend":false}}}}\''
)
_STATES = {
    Phase.PENDING: "waits",
    Phase.ADMITTED: "has its quota ({gpus}) and waits for its pods to be made",
    Phase.STARTING: "has its quota ({gpus}) and its pods are starting",
    Phase.RUNNING: "runs on {gpus}, attempt {attempt}{progress}",
    Phase.CHECKPOINTING: "is saving before it gives {gpus} back{deadline}{progress}",
    Phase.REQUEUED: "has given its GPUs back and waits for its next attempt",
    Phase.SUSPENDED: "is suspended",
    Phase.SUCCEEDED: "has succeeded in {attempts}{progress}",
    Phase.FAILED: "has failed after {attempts}{progress}",
    Phase.CANCELLED: "was cancelled after {attempts}{progress}",
}


def _facts(job: Json) -> dict[str, str]:
    status = job.get("status") or {}
    attempts = (status.get("counts") or {}).get("attempts") or status.get("attempt") or 0
    progress = jobs.progress_words(dict(status))
    deadline = status.get("graceDeadline")
    return {
        "gpus": counted(status.get("gpus") or 0, "GPU"),
        "attempt": str(status.get("attempt") or 0),
        "attempts": counted(attempts, "attempt"),
        "progress": f", {progress}" if progress else "",
        "deadline": f" at {clock(deadline)} at the latest" if deadline else "",
    }


def _history(status: Json) -> tuple[str, ...]:
    """One line for each attempt that ended, and what all of them lost."""
    lines = []
    for attempt in status.get("attempts") or ():
        if not attempt.get("endedAt"):
            continue
        cause = next((each.sentence for each in Cause if each == attempt.get("cause")), "it ended")
        line = f"attempt {attempt['number']}: {attempt.get('message') or cause}"
        if attempt.get("lastStep") is not None:
            line += f"; stopped at step {number(attempt['lastStep'])}"
        lost = jobs.loss_words(attempt)
        if lost:
            line += f", {lost}"
        lines.append(line)
    return tuple(lines)


def _workload_of(job: Json, view: Snapshot) -> Workload | None:
    """The job's own Workload, told by the uid it carries."""
    uid = job["metadata"].get("uid")
    every = [*view.pending.values()]
    every += [held.workload for holders in view.holders.values() for held in holders.values()]
    return next((each for each in every if each.job_uid == uid), None)


def _need(short: scheduling.Shortage) -> str:
    show = quantities.show
    asked, free, most = (
        show(short.resource, each) for each in (short.asked, max(short.free, 0), short.most)
    )
    return f"needs {asked} {short.resource}, {free} of {most} of flavor {short.flavor} are free"


def _would_help(found: scheduling.Explanation, view: Snapshot, own: Workload) -> str:
    """What the person could change, with names and numbers; empty where nothing would help."""
    if not found.shortages or found.victims:
        return found.would_help
    parts, short = [], found.shortages[0]
    if len(found.shortages) == 1 and short.free > 0 and not found.position:
        asked, free = (quantities.show(short.resource, each) for each in (short.asked, short.free))
        parts.append(f"with {free} {short.resource} instead of {asked} it would fit now")
    top = max((each.priority for each in found.holders), default=own.effective_priority)
    displaced = would_preempt(view, msgspec.structs.replace(own, priority=top + 1, boost=0))
    if displaced:
        names = listed([jobs.behind(each.workload.name) for each in displaced], "and")
        above = max(each.workload.effective_priority for each in displaced)
        parts.append(f"with a priority above {above} it would take the place of {names}")
    return "; ".join(parts)


def _held_by(holders: Sequence[Holder], namespace: str) -> str:
    shown = [_holder_words(each, namespace) for each in holders[:SHOWN_HOLDERS]]
    rest = len(holders) - len(shown)
    return f"held by {listed([*shown, *([f'{rest} more'] if rest else [])], 'and')}"


def _holder_words(holder: Holder, namespace: str) -> str:
    """`char-lm (6, priority 1000)`; one of another namespace is named with it."""
    name = holder.name if holder.namespace == namespace else f"{holder.namespace}/{holder.name}"
    leaving = ", leaving" if holder.leaving else ""
    return f"{name} ({holder.amount}, priority {holder.priority}{leaving})"
