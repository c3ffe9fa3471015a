"""What a decision about one job may know, as frozen values projected from the API.

Each struct names only the fields that are read; decoding skips the rest. Names on the wire are
camelCase, times are aware datetimes in UTC. `Observed` gathers one moment's view of everything that
concerns one job; `decide` gets it together with the job and the time.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from clusterops.api.reasons import Cause, Phase, WaitReason
from clusterops.core.observed_object import Condition, Metadata, Wire
from clusterops.core.observed_pods import Node, Pod

# The job


class Checkpoint(Wire, frozen=True):
    """Where a job saves and how long it may take over it."""

    directory: str | None = None
    grace_period_seconds: int = 120


class JobSpec(Wire, frozen=True):
    """What the user wants; the API server has validated it."""

    queue_name: str
    template: dict[str, Any]
    priority_class_name: str | None = None
    replicas: int = 1
    min_replicas: int | None = None
    processes_per_pod: int = 1
    checkpoint: Checkpoint = Checkpoint()
    backoff_limit: int = 3
    active_deadline_seconds: int | None = None
    suspend: bool = False
    stop: Literal["Checkpoint", "Now"] | None = None
    ttl_seconds_after_finished: int | None = None


class Progress(Wire, frozen=True):
    """How far the training is. `step` is the smallest any rank reported, `durable_step` the newest saved."""

    step: int | None = None
    total_steps: int | None = None
    durable_step: int | None = None
    steps_per_second: float | None = None
    updated_at: datetime | None = None


class Attempt(Wire, frozen=True, omit_defaults=True):
    """One admission of the job. A `cause` without `ended_at` says why it is being ended."""

    number: int
    started_at: datetime | None = None
    ended_at: datetime | None = None
    cause: Cause | None = None
    message: str | None = None
    nodes: tuple[str, ...] | None = None
    faulty_nodes: tuple[str, ...] | None = None
    first_step: int | None = None
    last_step: int | None = None
    durable_step: int | None = None
    lost_steps: int | None = None
    lost_gpu_seconds: float | None = None


class Counts(Wire, frozen=True):
    """Sums over the whole life of the job. `lost_steps` is None before the first attempt, and from
    the end of one whose lost steps are unknown.
    """

    attempts: int = 0
    preemptions: int = 0
    faults: int = 0
    user_errors: int = 0
    lost_steps: int | None = None
    lost_gpu_seconds: float = 0.0


class JobStatus(Wire, frozen=True):
    """Everything the operator must remember about a job; a restarted operator reads only this.

    `reason` is a WaitReason, or a Cause once the job has ended. Beyond the documented fields: `attempt_begun_at` is when the current attempt was admitted,
    `master_port` its rendezvous port, `backoff_until` when the next attempt may be queued and
    `ran_seconds` the running time of all ended attempts and `reprieved_attempt` the last one
    that was given a notice which was then withdrawn: its ranks may leave all the same.
    """

    phase: Phase = Phase.PENDING
    reason: str = WaitReason.NONE
    message: str = ""
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    gpus: int = 0
    progress: Progress | None = None
    attempt: int = 0
    attempts: tuple[Attempt, ...] = ()
    counts: Counts = Counts()
    grace_deadline: datetime | None = None
    attempt_begun_at: datetime | None = None
    master_port: int | None = None
    backoff_until: datetime | None = None
    ran_seconds: float = 0.0
    reprieved_attempt: int = 0

    @property
    def open_attempt(self) -> Attempt | None:
        """The attempt that has not ended, None between attempts."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.ended_at is None else None

    def condition(self, kind: str) -> Condition | None:
        """The condition of one type, None when it was never set."""
        return next((found for found in self.conditions if found.type == kind), None)


class TrainingJob(Wire, frozen=True):
    """A TrainingJob as the operator reads it. `malformed` says why the spec cannot be read, if so."""

    metadata: Metadata
    spec: JobSpec
    status: JobStatus = JobStatus()
    malformed: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)."""
        return (self.metadata.namespace, self.metadata.name)


# Kueue's objects


class AssignedPodSet(Wire, frozen=True):
    """What one pod set was given."""

    name: str = ""
    flavors: dict[str, str] | None = None
    count: int | None = None


class Admission(Wire, frozen=True):
    """A reservation of quota."""

    cluster_queue: str = ""
    pod_set_assignments: tuple[AssignedPodSet, ...] = ()


class PodSetUpdate(Wire, frozen=True):
    """What an admission check asks to be added to the pods."""

    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: tuple[dict[str, Any], ...] | None = None


class CheckState(Wire, frozen=True):
    """The state of one admission check."""

    name: str = ""
    state: str = ""
    message: str = ""
    pod_set_updates: tuple[PodSetUpdate, ...] | None = None


class PriorityClassRef(Wire, frozen=True):
    """Which class a Workload's priority came from."""

    name: str = ""


class WorkloadSpec(Wire, frozen=True):
    """The part of a Workload's spec that may differ from what the job wants."""

    queue_name: str = ""
    active: bool | None = None
    priority: int | None = None
    priority_class_ref: PriorityClassRef | None = None


class WorkloadStatus(Wire, frozen=True):
    """A Workload's state as Kueue and this operator write it."""

    conditions: tuple[Condition, ...] | None = None
    admission: Admission | None = None
    admission_checks: tuple[CheckState, ...] | None = None
    accumulated_past_execution_time_seconds: int | None = None


class Workload(Wire, frozen=True):
    """The Workload of one job."""

    metadata: Metadata
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    def condition(self, kind: str) -> Condition | None:
        """The condition of one type, None when it was never set."""
        return next((found for found in self.status.conditions or () if found.type == kind), None)

    def is_true(self, kind: str) -> bool:
        """True when the condition is present and True."""
        found = self.condition(kind)
        return found is not None and found.true

    @property
    def active(self) -> bool:
        """False while it is deactivated."""
        return self.spec.active is not False

    @property
    def reserved(self) -> bool:
        """True while its admission stands; Kueue counts its quota as used."""
        return self.status.admission is not None and self.is_true("QuotaReserved")

    @property
    def admitted(self) -> bool:
        """True when pods may run: quota reserved and every check passed."""
        return self.reserved and self.is_true("Admitted")

    @property
    def evicted(self) -> bool:
        """True when quota it still holds is to be given back. A pending one may carry Evicted too."""
        return self.status.admission is not None and self.is_true("Evicted")

    @property
    def finished(self) -> bool:
        return self.is_true("Finished")


class Flavor(msgspec.Struct, frozen=True):
    """What pods of a ResourceFlavor need in order to reach its nodes."""

    node_labels: Mapping[str, str] = {}
    tolerations: tuple[Mapping[str, Any], ...] = ()


# The rest of the view


class HealthWord(msgspec.Struct, frozen=True):
    """What a node's health daemon last said. `heard_at` is of the node's own clock, as the times at
    which its containers ended are; None = it has said nothing yet.
    """

    heard_at: datetime | None = None
    faulty: bool = False
    """Something is to be done to the node's GPUs."""
    under_way: bool = False
    """Something is being done."""


class RankReport(msgspec.Struct, frozen=True):
    """The newest heartbeat of one rank of the current attempt. Ages come from a monotonic clock.

    `durable_age_seconds` is how long this operator has known `durable_step`.
    """

    rank: int
    step: int
    age_seconds: float
    total_steps: int | None = None
    durable_step: int | None = None
    durable_age_seconds: float = 0.0
    finished: bool = False
    problem: str = ""


class QueueView(msgspec.Struct, frozen=True):
    """The job's queue. `never_fits` says in words why it can never have what the job asks for."""

    found: bool = True
    missing: str = ""
    stopped: str = ""
    never_fits: str = ""


class Preemptor(msgspec.Struct, frozen=True):
    """Who evicted the job: `waiting` while it still needs the quota."""

    uid: str
    name: str = ""
    waiting: bool = True


class FellowVictim(msgspec.Struct, frozen=True):
    """Another job evicted for the same preemptor. `ready` = its pods are gone, it can release."""

    name: str
    ready: bool
    deadline: datetime


class Observed(msgspec.Struct, frozen=True):
    """Everything about one job at one moment. `pods` are those owned by the job, of all attempts.

    `reports` are of the current attempt. `priority` is the value of the job's class, None when
    that class does not exist. `offered_port` is a rendezvous port that no live attempt uses.
    `refused` is what the API server said when it refused to create something for the job.
    `words` are what the health daemons said of its pods' nodes, where there are any.
    """

    workload: Workload | None = None
    pods: tuple[Pod, ...] = ()
    nodes: Mapping[str, Node] = {}
    reports: tuple[RankReport, ...] = ()
    steps_per_second: float | None = None
    queue: QueueView = QueueView()
    priority: int | None = 0
    flavors: Mapping[str, Flavor] = {}
    preemptor: Preemptor | None = None
    fellow_victims: tuple[FellowVictim, ...] = ()
    offered_port: int | None = None
    refused: str = ""
    words: Mapping[str, HealthWord] = {}


def training_job(wire: Mapping[str, Any]) -> TrainingJob:
    """Projects a raw TrainingJob. One that no schema ever checked may come out `malformed`."""
    try:
        return msgspec.convert(wire, TrainingJob)
    except msgspec.ValidationError as error:
        metadata = msgspec.convert(wire.get("metadata", {}), Metadata)
        return TrainingJob(metadata, JobSpec("", {}), JobStatus(), malformed=str(error))


def workload(wire: Mapping[str, Any]) -> Workload:
    """Projects a raw Workload. Raises msgspec.ValidationError."""
    return msgspec.convert(wire, Workload)


def pod(wire: Mapping[str, Any]) -> Pod:
    """Projects a raw Pod. Raises msgspec.ValidationError."""
    return msgspec.convert(wire, Pod)


def node(wire: Mapping[str, Any]) -> Node:
    """Projects a raw Node. Raises msgspec.ValidationError."""
    return msgspec.convert(wire, Node)


def flavor(wire: Mapping[str, Any]) -> Flavor:
    """Projects a raw ResourceFlavor."""
    spec = wire.get("spec") or {}
    return Flavor(spec.get("nodeLabels") or {}, tuple(spec.get("tolerations") or ()))
