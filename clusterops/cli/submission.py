"""Submitting jobs so that nothing is half done: look first, refuse whole, then create.

A job is known by its name. The same job again changes nothing; another job of that name is a
conflict. A job that its queue could never run is refused with the queue's limit.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from clusterops.api.names import LOCAL_QUEUES, TRAINING_JOBS, WORKLOAD_PRIORITY_CLASSES
from clusterops.api.training_job import TrainingJob
from clusterops.cli import cautions, cluster_view, identity
from clusterops.cli.connection import Session
from clusterops.cli.errors import CONFLICT, FAILED, USAGE, CommandError
from clusterops.cli.jobs import phase_of
from clusterops.cli.outlook import outlook
from clusterops.core import observed, workload
from clusterops.kube.errors import AlreadyExists, Forbidden, KubeError, NotFound, Unreachable
from clusterops.scheduling import parse
from clusterops.scheduling.explain import never_fits
from clusterops.scheduling.objects import Workload
from clusterops.scheduling.snapshot import Snapshot

FIELD_MANAGER = "clusterops-cli"
Json = dict[str, Any]


class Submitted(NamedTuple):
    """One job as the server has it. `created` is False when it was there already."""

    job: Json
    created: bool


class Submission(NamedTuple):
    """What was submitted, and what to tell about it: `warnings` of what the jobs will wait for,
    `notes` of what they do without, `outlook` of a dry run: what would become of them.
    """

    done: list[Submitted]
    warnings: list[str]
    notes: list[str]
    outlook: list[str]


async def submit_all(
    session: Session, jobs: Sequence[Json], *, dry_run: bool = False
) -> Submission:
    """Creates the jobs, or none of them.

    Raises:
        CommandError: a job of that name exists and is another one, or could never run.
        KubeError: the server refused one; those created before it are taken back.
    """
    user = await identity.user_of(session)
    jobs = [identity.marked(job, user) for job in jobs]
    present = await asyncio.gather(*(_present(session, job) for job in jobs))
    missing = [job for job, there in zip(jobs, present, strict=True) if there is None]
    warnings, expected = (
        await _looked_up(session, missing, dry_run=dry_run) if missing else ([], [])
    )
    if dry_run or len(missing) > 1:
        # With several, what the server refuses should show before the first one exists.
        checked = await asyncio.gather(*(_create(session, job, dry_run=True) for job in missing))
    created = iter(checked if dry_run else await _create_in_turn(session, missing))
    done = [
        Submitted(there, False) if there is not None else Submitted(next(created), True)
        for there in present
    ]
    fresh = [(each.job, cautions.starts_over(each.job)) for each in done if each.created]
    notes = [
        f"{_name(job)}: {caution} (checkpoint.directory, or --checkpoints CLAIM)"
        for job, caution in fresh
        if caution
    ]
    return Submission(done, warnings, notes, expected)


async def _looked_up(
    session: Session, jobs: Sequence[Json], *, dry_run: bool
) -> tuple[list[str], list[str]]:
    """What queues, classes and nodes say about jobs that are not there yet: warnings, and, of a dry
    run, the outlook.
    """
    view = await cluster_view.look(session, workloads=dry_run)
    warnings = await _check_queues(session, view, jobs)
    warnings += await _check_nodes(session, jobs)
    return warnings, await _outlook(session, view, jobs) if dry_run else []


async def only_queue(session: Session) -> str:
    """The one queue of the namespace, for those who name none.

    Raises:
        CommandError: there is none, or a choice.
    """
    items, _ = await session.client.list(LOCAL_QUEUES, session.namespace)
    queues = sorted(item["metadata"]["name"] for item in items)
    if len(queues) == 1:
        return str(queues[0])
    if not queues:
        raise CommandError(
            f"namespace {session.namespace} has no queue",
            "create a LocalQueue there, or name another --namespace",
            USAGE,
        )
    raise CommandError(
        f"namespace {session.namespace} has {len(queues)} queues: {', '.join(queues)}",
        f"--queue {queues[0]}",
        USAGE,
    )


async def _present(session: Session, job: Json) -> Json | None:
    """The same job when it is there already, None when the name is free."""
    metadata = job["metadata"]
    if not metadata.get("name"):
        return None  # generateName: always a new one
    there = await session.client.find(TRAINING_JOBS, metadata["namespace"], metadata["name"])
    if there is not None:
        differing = differences(there, job)
        if differing:
            raise _conflict(there, differing)
    return there


def _conflict(there: Json, differing: Sequence[str]) -> CommandError:
    """That the name is taken, and by what."""
    metadata = there["metadata"]
    where = f"{metadata['name']} in namespace {metadata['namespace']}"
    if list(differing) == ["spec.stop"]:
        # The same job: somebody cancelled it, and the object stays for those who ask about it.
        what = f"the job {where} was cancelled and is still there ({phase_of(there)})"
    else:
        what = f"there is another job {where}; it differs in {', '.join(differing)}"
    return CommandError(
        what,
        "give this one another name, or delete the other with: kubectl delete tj "
        f"-n {metadata['namespace']} {metadata['name']}",
        CONFLICT,
    )


def differences(there: Json, wanted: Json) -> list[str]:
    """The fields of `spec` in which two jobs differ, defaults filled in on both sides."""
    specs = []
    for job in (there, wanted):
        bare = {key: job[key] for key in ("apiVersion", "kind", "metadata", "spec")}
        spec = TrainingJob.from_wire(bare).spec
        specs.append(spec.model_dump(mode="json", by_alias=True))
    return [f"spec.{field}" for field in specs[1] if specs[0].get(field) != specs[1][field]]


async def _check_queues(session: Session, view: Snapshot, jobs: Sequence[Json]) -> list[str]:
    """Refuses what can never run; warns of names that do not exist (yet)."""
    warnings = []
    for job in jobs:
        space, spec = job["metadata"]["namespace"], job["spec"]
        local = view.local_queues.get((space, spec["queueName"]))
        if local is None:
            others = sorted(name for place, name in view.local_queues if place == space)
            hint = f"; there is {', '.join(others)}" if others else ""
            warnings.append(
                f"queue {spec['queueName']} does not exist in namespace {space}{hint}: "
                "the job waits until it does"
            )
        elif local.cluster_queue in view.queues:
            refusal = never_fits(view, view.queues[local.cluster_queue], _as_workload(job))
            if refusal is not None:
                raise CommandError(
                    f"{_name(job)} can never run in queue {local.name}: {refusal.sentence}",
                    "ask for fewer GPUs or replicas, or use another --queue",
                    USAGE,
                )
        warnings += await _priority_warning(session, spec.get("priorityClassName"))
    return warnings


async def _check_nodes(session: Session, jobs: Sequence[Json]) -> list[str]:
    """Warns of pods that no node could hold: their quota would be held for nothing."""
    nodes = await cluster_view.nodes(session)
    found = [(job, cautions.outsized(job, nodes)) for job in jobs]
    return [
        f"{_name(job)}: {outsized}: it would hold its quota and not run; ask for less a pod, in "
        "more replicas"
        for job, outsized in found
        if outsized
    ]


async def _outlook(session: Session, view: Snapshot, jobs: Sequence[Json]) -> list[str]:
    """What would become of each job if it were submitted now."""
    running = await cluster_view.jobs(session)
    lines = ["each of the jobs is looked at by itself"] if len(jobs) > 1 else []
    # Wall time is the right one here: it is compared with the timestamps of objects.
    now = datetime.now(UTC).timestamp()
    for job in jobs:
        priority = await _priority(session, job["spec"].get("priorityClassName"))
        ready = _as_workload(job, priority)
        lines += [f"{_name(job)}: {line}" for line in outlook(view, ready, running, now)]
    return lines


async def _priority(session: Session, name: str | None) -> int:
    """The value of a priority class; 0 for none, and for one that cannot be read."""
    if name is None:
        return 0
    with suppress(Forbidden):
        found = await session.client.find(WORKLOAD_PRIORITY_CLASSES, None, name)
        return int((found or {}).get("value") or 0)
    return 0


async def _priority_warning(session: Session, name: str | None) -> list[str]:
    if name is None:
        return []
    try:
        if await session.client.find(WORKLOAD_PRIORITY_CLASSES, None, name) is not None:
            return []
        classes, _ = await session.client.list(WORKLOAD_PRIORITY_CLASSES)
    except Forbidden:
        return []
    have = ", ".join(sorted(each["metadata"]["name"] for each in classes))
    hint = f"; there is {have}" if have else ""
    return [f"priority class {name} does not exist{hint}: the job waits until it does"]


def _as_workload(job: Json, priority: int = 0) -> Workload:
    """The job as the scheduling room knows one, before the server has seen it."""
    name = _name(job)
    seen = {**job, "metadata": {**job["metadata"], "name": name, "uid": "not-yet"}}
    return parse.workload(workload.desired_workload(observed.training_job(seen), priority))


def _name(job: Json) -> str:
    metadata = job["metadata"]
    return str(metadata.get("name") or metadata["generateName"])


async def _create_in_turn(session: Session, jobs: Sequence[Json]) -> list[Json]:
    made: list[Json] = []
    try:
        for job in jobs:
            made.append(await _create(session, job))  # noqa: PERF401 what was made must be known
    except (KubeError, CommandError):
        await _take_back(session, made)
        raise
    return made


async def _create(session: Session, job: Json, *, dry_run: bool = False) -> Json:
    try:
        return await session.client.create(
            TRAINING_JOBS, job, field_manager=FIELD_MANAGER, dry_run=dry_run
        )
    except (AlreadyExists, Unreachable):
        # Somebody was faster, or our own request arrived and its answer did not.
        there = None if dry_run else await _present(session, job)
        if there is None:
            raise
        return there


async def _take_back(session: Session, made: Sequence[Json]) -> None:
    """Deletes what this submission created, so that it is whole or not at all."""
    left = []
    for job in made:
        metadata = job["metadata"]
        try:
            await session.client.delete(
                TRAINING_JOBS, metadata["namespace"], metadata["name"], uid=metadata["uid"]
            )
        except NotFound:
            continue
        except KubeError:
            left.append(metadata["name"])
    if left:
        raise CommandError(
            f"the server refused a job, and {', '.join(left)} could not be taken back",
            f"clusterops cancel --now {' '.join(left)}",
            FAILED,
        )
