"""Views of a job and its surroundings for tests of pure decisions: good defaults, named exceptions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from clusterops.api import names
from clusterops.api.reasons import Cause, Phase
from clusterops.core.observed import (
    Admission,
    AssignedPodSet,
    Attempt,
    Checkpoint,
    JobSpec,
    JobStatus,
    PriorityClassRef,
    RankReport,
    TrainingJob,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from clusterops.core.observed_object import Condition, Metadata, Owner
from clusterops.core.observed_pods import (
    ContainerState,
    ContainerStatus,
    Node,
    NodeSpec,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    Taint,
    Terminated,
    Waiting,
)
from clusterops.core.workload import ANNOTATION_POD_SETS, pod_sets_digest, workload_name

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
TEMPLATE = {
    "metadata": {"labels": {"team": "nlp"}},
    "spec": {
        "containers": [
            {
                "name": "train",
                "image": "trainer:1",
                "command": ["python", "train.py"],
                "resources": {"limits": {names.RESOURCE_GPU: 2}},
            }
        ]
    },
}


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def job(
    status: JobStatus | None = None, *, deleting: bool = False, finalizer: bool = True, **spec: Any
) -> TrainingJob:
    fields: dict[str, Any] = {
        "queue_name": "research",
        "template": TEMPLATE,
        "priority_class_name": "high",
        "replicas": 2,
        "checkpoint": Checkpoint("/checkpoints/a", 120),
    }
    return TrainingJob(
        Metadata(
            name="a",
            namespace="research",
            uid="uid-a",
            resource_version="7",
            generation=3,
            creation_timestamp=ago(900),
            deletion_timestamp=ago(1) if deleting else None,
            finalizers=(names.FINALIZER_JOB,) if finalizer else (),
        ),
        JobSpec(**{**fields, **spec}),
        status or JobStatus(),
    )


def running(attempt: int = 1, **fields: Any) -> JobStatus:
    """The status of a job whose attempt runs."""
    own = {
        "started_at": ago(100),
        "first_step": 0,
        **{k: fields.pop(k) for k in list(fields) if k in Attempt.__struct_fields__},
    }
    defaults: dict[str, Any] = {
        "phase": Phase.RUNNING,
        "attempt": attempt,
        "attempts": (Attempt(attempt, **own),),
        "attempt_begun_at": ago(110),
        "gpus": 4,
    }
    return JobStatus(**{**defaults, **fields})


def ending(cause: Cause, seconds_left: float = 60.0, **fields: Any) -> JobStatus:
    """The status of a job whose attempt was given notice."""
    deadline = NOW + timedelta(seconds=seconds_left)
    status = running(cause=cause, message="why", grace_deadline=deadline, **fields)
    return msgspec.structs.replace(status, phase=Phase.CHECKPOINTING)


def condition(kind: str, true: bool = True, reason: str = "", message: str = "") -> Condition:
    return Condition(kind, "True" if true else "False", reason, message, ago(30), 1)


def workload(
    of: TrainingJob | None = None,
    *conditions: Condition,
    admitted: bool = True,
    count: int | None = None,
    deleting: bool = False,
    active: bool = True,
    finalizer: bool = True,
) -> Workload:
    of = of or job()
    own = list(conditions)
    kinds = {found.type for found in own}
    if admitted:
        own += [condition(k) for k in ("QuotaReserved", "Admitted") if k not in kinds]
    assigned = AssignedPodSet("main", {names.RESOURCE_GPU: "h100"}, count or of.spec.replicas)
    return Workload(
        Metadata(
            name=workload_name(of),
            namespace="research",
            uid="uid-w",
            resource_version="9",
            annotations={ANNOTATION_POD_SETS: pod_sets_digest(of)},
            deletion_timestamp=ago(1) if deleting else None,
            finalizers=(names.FINALIZER_PODS_GONE,) if finalizer else (),
            owner_references=(Owner("TrainingJob", "a", "uid-a", True),),
        ),
        WorkloadSpec("research", active, 1000, PriorityClassRef("high")),
        WorkloadStatus(tuple(own), Admission("cq", (assigned,)) if admitted else None),
    )


def pod(
    rank: int,
    phase: str = "Running",
    *,
    attempt: int = 1,
    exit_code: int | None = None,
    reason: str = "",
    ended_ago: float = 5.0,
    deleting: bool = False,
    ends_within: int | None = None,
    grace: int = 120,
    waiting: str = "",
    node: str = "n0",
    conditions: tuple[Condition, ...] = (),
) -> Pod:
    state = ContainerState()
    if exit_code is not None:
        state = ContainerState(terminated=Terminated(exit_code, reason, "", ago(ended_ago)))
    elif waiting:
        state = ContainerState(waiting=Waiting(waiting, "not found"))
    return Pod(
        Metadata(
            name=names.pod_name("a", attempt, rank),
            namespace="research",
            uid=f"uid-{attempt}-{rank}",
            labels={
                names.LABEL_JOB: "a",
                names.LABEL_ATTEMPT: str(attempt),
                names.LABEL_RANK: str(rank),
            },
            annotations=(
                None if ends_within is None else {names.ANNOTATION_ENDS_WITHIN: str(ends_within)}
            ),
            deletion_timestamp=ago(1) if deleting else None,
            owner_references=(Owner("TrainingJob", "a", "uid-a", True),),
        ),
        PodSpec(node, grace),
        PodStatus(
            phase,
            "" if exit_code is not None else reason,
            "",
            conditions,
            (ContainerStatus("train", state),),
        ),
    )


def node(name: str = "n0", *, unready_for: float | None = None, faulty: bool = False) -> Node:
    since = 1000.0 if unready_for is None else unready_for
    ready = Condition("Ready", "True" if unready_for is None else "Unknown", "", "", ago(since))
    taints = (Taint(names.TAINT_HEALTH, "", "NoSchedule"),) if faulty else ()
    return Node(Metadata(name=name), NodeSpec(taints), NodeStatus((ready,)))


def report(
    rank: int, step: int, durable: int | None = None, *, finished: bool = False, **fields: Any
) -> RankReport:
    defaults: dict[str, Any] = {"age_seconds": 1.0, "durable_age_seconds": 1.0, **fields}
    return RankReport(rank, step, durable_step=durable, finished=finished, **defaults)
