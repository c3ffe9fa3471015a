"""The queues as the scheduling room sees them, read from the API for one look."""

import asyncio
from typing import Any

from clusterops.api import names
from clusterops.cli.connection import Session
from clusterops.kube.errors import Forbidden, NotFound
from clusterops.scheduling import parse, snapshot


async def look(session: Session, *, workloads: bool = True) -> snapshot.Snapshot:
    """Queues, cohorts, flavors and, unless they do not matter, everybody's workloads.

    What a person may not read is left out; then less can be said.
    """
    kinds = [
        names.CLUSTER_QUEUES,
        names.COHORTS,
        names.RESOURCE_FLAVORS,
        names.LOCAL_QUEUES,
        names.NAMESPACES,
        names.ADMISSION_CHECKS,
    ]
    if workloads:
        kinds.append(names.WORKLOADS)
    lists = await asyncio.gather(*(_all(session, kind) for kind in kinds))
    raw = dict(zip((kind.kind for kind in kinds), lists, strict=True))
    return snapshot.build(
        cluster_queues=[parse.cluster_queue(each) for each in raw["ClusterQueue"]],
        cohorts=[parse.cohort(each) for each in raw["Cohort"]],
        flavors=[parse.resource_flavor(each) for each in raw["ResourceFlavor"]],
        local_queues=[parse.local_queue(each) for each in raw["LocalQueue"]],
        workloads=[parse.workload(each) for each in raw.get("Workload", ())],
        checks={each["metadata"]["name"]: _active(each) for each in raw["AdmissionCheck"]},
        # None = unknown to this person, so that no queue seems closed to a namespace.
        namespaces={
            each["metadata"]["name"]: each["metadata"].get("labels") or {}
            for each in raw["Namespace"]
        }
        or None,
    )


async def nodes(session: Session) -> list[dict[str, Any]]:
    """Every node; none for a person who may not see them."""
    return await _all(session, names.NODES)


async def jobs(session: Session) -> list[dict[str, Any]]:
    """Every job; those of the session's namespace for a person who may see no more."""
    try:
        items, _ = await session.client.list(names.TRAINING_JOBS)
    except Forbidden:
        items, _ = await session.client.list(names.TRAINING_JOBS, session.namespace)
    return items


async def _all(session: Session, kind: names.ResourceType) -> list[dict[str, Any]]:
    try:
        items, _ = await session.client.list(kind)
    except (Forbidden, NotFound):
        return []
    return items


def _active(check: dict[str, Any]) -> bool:
    conditions = (check.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Active" and each["status"] == "True" for each in conditions)
