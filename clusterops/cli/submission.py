"""Submitting jobs so that nothing is half done: look first, refuse whole, then create.

A job is known by its name. The same job again changes nothing; another job of that name is a
conflict. A job that its queue could never run is refused with the queue's limit.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from clusterops.api.names import LOCAL_QUEUES, TRAINING_JOBS, WORKLOAD_PRIORITY_CLASSES
from clusterops.api.training_job import TrainingJob
from clusterops.cli import cluster_view
from clusterops.cli.connection import Session
from clusterops.cli.errors import CONFLICT, FAILED, USAGE, CommandError
from clusterops.core import observed, workload
from clusterops.kube.errors import AlreadyExists, Forbidden, KubeError, NotFound, Unreachable
from clusterops.scheduling import parse
from clusterops.scheduling.explain import never_fits

FIELD_MANAGER = "clusterops-cli"
Json = dict[str, Any]


class Submitted(NamedTuple):
    """One job as the server has it. `created` is False when it was there already."""

    job: Json
    created: bool


async def submit_all(
    session: Session, jobs: Sequence[Json], *, dry_run: bool = False
) -> tuple[list[Submitted], list[str]]:
    """Creates the jobs, or none of them; also returns warnings about what they will wait for.

    Raises:
        CommandError: a job of that name exists and is another one, or could never run.
        KubeError: the server refused one; those created before it are taken back.
    """
    present = await asyncio.gather(*(_present(session, job) for job in jobs))
    missing = [job for job, there in zip(jobs, present, strict=True) if there is None]
    warnings = await _check_queues(session, missing)
    if dry_run or len(missing) > 1:
        # With several, what the server refuses should show before the first one exists.
        checked = await asyncio.gather(*(_create(session, job, dry_run=True) for job in missing))
    created = iter(checked if dry_run else await _create_in_turn(session, missing))
    return [
        Submitted(there, False) if there is not None else Submitted(next(created), True)
        for there in present
    ], warnings


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
            raise CommandError(
                f"another job {metadata['name']} exists in namespace {metadata['namespace']}; "
                f"it differs in {', '.join(differing)}",
                "give this one another name, or delete the other with: kubectl delete tj "
                f"-n {metadata['namespace']} {metadata['name']}",
                CONFLICT,
            )
    return there


def differences(there: Json, wanted: Json) -> list[str]:
    """The fields of `spec` in which two jobs differ, defaults filled in on both sides."""
    specs = []
    for job in (there, wanted):
        bare = {key: job[key] for key in ("apiVersion", "kind", "metadata", "spec")}
        spec = TrainingJob.from_wire(bare).spec
        specs.append(spec.model_dump(mode="json", by_alias=True))
    return [f"spec.{field}" for field in specs[1] if specs[0].get(field) != specs[1][field]]


async def _check_queues(session: Session, jobs: Sequence[Json]) -> list[str]:
    """Refuses what can never run; warns of names that do not exist (yet)."""
    if not jobs:
        return []
    view = await cluster_view.look(session, workloads=False)
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


def _as_workload(job: Json) -> Any:
    """The job as the scheduling room knows one, before the server has seen it."""
    name = _name(job)
    seen = {**job, "metadata": {**job["metadata"], "name": name, "uid": "not-yet"}}
    return parse.workload(workload.desired_workload(observed.training_job(seen), 0))


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
