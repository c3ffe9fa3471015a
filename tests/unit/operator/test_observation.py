"""The view of a job that decisions are made on: what is gone and what is only not seen yet."""

import msgspec
import pytest
from support.operator_builders import condition, job, pod, running, workload

from clusterops.core.observed import Admission, Workload, WorkloadSpec, WorkloadStatus
from clusterops.core.observed_object import Metadata
from clusterops.core.settings import Settings
from clusterops.operator.heartbeats import HeartbeatTable
from clusterops.operator.observation import Observation, Stores, preemptor_uid
from clusterops.operator.ports import PortBook

KUEUES_WORDS = (
    "Preempted to accommodate a workload (UID: uid-p, JobUID: uid-j) due to prioritization in the "
    "ClusterQueue; preemptor path: /cq; preemptee path: /cq"
)
VICTIM = workload(
    job(running()),
    condition("Evicted", True, "Preempted", KUEUES_WORDS),
    condition("Preempted", True, "InClusterQueue", KUEUES_WORDS),
)


def preemptor(*conditions: str, admitted: bool = False) -> Workload:
    return Workload(
        Metadata(name="p", namespace="research", uid="uid-p"),
        WorkloadSpec("research", True, 2000),
        WorkloadStatus(
            tuple(condition(kind) for kind in conditions), Admission("cq") if admitted else None
        ),
    )


@pytest.fixture
def seen() -> Observation:
    ports = PortBook(29_400, 29_401)
    return Observation(Stores(), HeartbeatTable(), ports, Settings(), lambda: 0.0)


def put(seen: Observation, *workloads: Workload) -> None:
    for found in workloads:
        seen.stores.workloads.put((found.metadata.namespace, found.metadata.name), found)


def test_the_preemptor_is_read_from_kueues_message() -> None:
    assert preemptor_uid(VICTIM) == "uid-p"
    assert preemptor_uid(workload(job())) == ""
    fair = condition("Preempted", True, "InCohortFairSharing", "no uid here")
    assert preemptor_uid(workload(job(), condition("Evicted"), fair)) == ""


def test_a_preemptor_waits_until_it_is_admitted_or_gone(seen: Observation) -> None:
    put(seen, VICTIM, preemptor())
    view = seen.observe(job(running()))
    assert view.preemptor is not None
    assert view.preemptor.waiting
    put(seen, preemptor("QuotaReserved", admitted=True))
    assert not seen.observe(job(running())).preemptor.waiting  # type: ignore[union-attr]
    seen.stores.workloads.remove(("research", "p"))
    assert not seen.observe(job(running())).preemptor.waiting  # type: ignore[union-attr]


def test_a_preemptor_is_named_by_its_job_where_it_has_one(seen: Observation) -> None:
    put(seen, VICTIM, preemptor())
    assert seen.observe(job(running())).preemptor.name == "research/p"  # type: ignore[union-attr]
    urgent = job()
    urgent = msgspec.structs.replace(
        urgent, metadata=msgspec.structs.replace(urgent.metadata, name="urgent", uid="uid-urgent")
    )
    seen.stores.jobs.put((urgent.metadata.namespace, "urgent"), urgent)
    owners = (msgspec.structs.replace(VICTIM.metadata.owner_references[0], uid="uid-urgent"),)  # type: ignore[index]
    owned = preemptor()
    metadata = msgspec.structs.replace(owned.metadata, owner_references=owners)
    put(seen, msgspec.structs.replace(owned, metadata=metadata))
    named = seen.observe(job(running())).preemptor
    assert named is not None
    assert named.name == f"{urgent.metadata.namespace}/urgent"


def test_a_preemptor_that_the_store_has_not_seen_yet_is_not_gone(seen: Observation) -> None:
    put(seen, workload(job(running())))  # the store is older than the eviction
    view = seen._assemble(job(running()), VICTIM, ())
    assert view.preemptor is not None
    assert view.preemptor.waiting


def test_fellow_victims_are_ready_once_their_attempt_is_closed_and_no_pod_lives(
    seen: Observation,
) -> None:
    def renamed(uid: str) -> tuple[object, ...]:
        other = job(running())
        other = msgspec.structs.replace(
            other, metadata=msgspec.structs.replace(other.metadata, name="b", uid=uid)
        )
        owners = (msgspec.structs.replace(VICTIM.metadata.owner_references[0], uid=uid),)  # type: ignore[index]
        metadata = msgspec.structs.replace(VICTIM.metadata, name="w-b", owner_references=owners)
        return other, msgspec.structs.replace(VICTIM, metadata=metadata)

    other, its_workload = renamed("uid-b")
    put(seen, VICTIM, its_workload)  # type: ignore[arg-type]
    seen.stores.jobs.put(("research", "b"), other)  # type: ignore[arg-type]
    (fellow,) = seen.observe(job(running())).fellow_victims
    assert (fellow.name, fellow.ready) == ("research/b", False)
    idle = msgspec.structs.replace(other, status=job().status)  # type: ignore[type-var]
    seen.stores.jobs.put(("research", "b"), idle)  # type: ignore[arg-type]
    (fellow,) = seen.observe(job(running())).fellow_victims
    assert fellow.ready
    stray = pod(0)
    owners = (msgspec.structs.replace(stray.metadata.owner_references[0], uid="uid-b"),)  # type: ignore[index]
    alive = msgspec.structs.replace(
        stray, metadata=msgspec.structs.replace(stray.metadata, owner_references=owners)
    )
    seen.stores.pods.put(("research", "x"), alive)
    (fellow,) = seen.observe(job(running())).fellow_victims
    assert not fellow.ready
