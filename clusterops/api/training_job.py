"""TrainingJob: what a researcher writes, and what the operator answers in its status.

Fields and defaults are the contract of the kind; the CRD is generated from here, its printer columns
and CEL rules from `crd`. Rules that need two fields are `spanning_faults`, so that a manifest is
refused by the command line and by the operator with the same words.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    WithJsonSchema,
    model_validator,
)

from clusterops.api import pod_template
from clusterops.api.reasons import Cause, Phase, WaitReason
from clusterops.api.wire import (
    Conditions,
    Count,
    DnsSubdomain,
    Fault,
    Metadata,
    Seconds,
    Steps,
    Text,
    Timestamp,
    WireModel,
    map_list,
)

MAX_REPLICAS = 10_000
MAX_POD_NAME = 63
# Room that a pod's name keeps for the number of the attempt: preemptions do not count down from
# anything, so a job that lives for years may well reach five digits.
ATTEMPT_DIGITS = 5
KEPT_ATTEMPTS = 20

PodTemplate = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "description": "A core/v1 PodTemplateSpec: one container with a command, GPUs by "
            "resources.limits.",
        }
    ),
]


class Checkpoint(WireModel):
    """Where a job saves, and how long it may take over it when asked to leave."""

    directory: Annotated[StrictStr, Field(min_length=1, max_length=4096, pattern="^/")] | None = (
        None
    )
    """Inside a volumeMount whose volume outlives the pod. null = the job keeps no checkpoints."""
    grace_period_seconds: Annotated[StrictInt, Field(ge=1, le=86_400)] = 120
    """The longest time between the notice of a preemption and the release of its GPUs."""


class TrainingJobSpec(WireModel):
    """What the user wants to run."""

    queue_name: DnsSubdomain
    """The LocalQueue of the job's namespace that it waits in."""
    priority_class_name: DnsSubdomain | None = None
    """A WorkloadPriorityClass. null = priority 0."""
    replicas: Annotated[StrictInt, Field(ge=1, le=MAX_REPLICAS)] = 1
    """How many pods run at once, one rank of pods each."""
    min_replicas: Annotated[StrictInt, Field(ge=1, le=MAX_REPLICAS)] | None = None
    """The job may start, or go on, with as few pods as this. null = all or nothing."""
    processes_per_pod: Annotated[StrictInt, Field(ge=1, le=1024)] = 1
    """Ranks in each pod; more than 1 when the command is torchrun or starts its own processes."""
    template: PodTemplate
    checkpoint: Checkpoint = Checkpoint()
    """Where and how the job saves."""
    backoff_limit: Annotated[StrictInt, Field(ge=0, le=1000)] = 3
    """How often the job may fail by its own fault and be tried again. Nothing else uses it up."""
    active_deadline_seconds: Annotated[Seconds, Field(ge=1)] | None = None
    """The job is ended after this much running time, waiting not counted. null = never."""
    suspend: StrictBool = False
    """true = save, leave, and stay out of the queue until false."""
    stop: Literal["Checkpoint", "Now"] | None = None
    """Cancels the job and keeps the object: after a last checkpoint, or at once."""
    ttl_seconds_after_finished: Seconds | None = None
    """The object is deleted this long after its end. null = kept."""


class Progress(WireModel):
    """How far the training is, as its ranks report."""

    step: Steps | None = None
    """Completed optimizer steps: the smallest number any rank reported."""
    total_steps: Steps | None = None
    """How many there will be, when the job says so."""
    durable_step: Steps | None = None
    """The step of the newest checkpoint that is safely on disk."""
    steps_per_second: StrictFloat | None = None
    """The recent rate."""
    updated_at: Timestamp | None = None
    """When this was written."""


class Attempt(WireModel):
    """One admission of the job, from its pods' creation to their end."""

    number: Count
    """From 1."""
    started_at: Timestamp | None = None
    """When all its pods ran."""
    ended_at: Timestamp | None = None
    """When the last pod was gone; absent while it lives."""
    cause: Cause | None = None
    """Why it ended."""
    message: Text | None = None
    """The cause in words, with names and numbers."""
    nodes: tuple[DnsSubdomain, ...] | None = None
    """Where its pods ran, by rank."""
    faulty_nodes: tuple[DnsSubdomain, ...] | None = None
    """Those of them whose fault ended it: the job keeps off them for a while."""
    first_step: Steps | None = None
    """The step it began after."""
    last_step: Steps | None = None
    """The last step it completed."""
    durable_step: Steps | None = None
    """The step of its newest durable checkpoint."""
    lost_steps: Steps | None = None
    """Completed steps that are to be done again; absent where it reported none, so nobody knows."""
    lost_gpu_seconds: StrictFloat | None = None
    """GPU time of those steps; of the whole attempt where nothing is known of its steps."""


class Counts(WireModel):
    """Sums over the whole life of the job, attempts no longer listed included.

    `lostSteps` is absent once an attempt lost work and had reported no steps.
    """

    attempts: Count | None = None
    preemptions: Count | None = None
    faults: Count | None = None
    user_errors: Count | None = None
    lost_steps: Steps | None = None
    lost_gpu_seconds: StrictFloat | None = None


class TrainingJobStatus(WireModel):
    """What the operator observed and must remember. Written by the operator alone."""

    phase: Phase | None = None
    """Where the job is in its life."""
    reason: WaitReason | Cause | None = None
    """Why it waits, or why it ended; empty while it runs."""
    message: Text | None = None
    """The reason in words, with names and numbers."""
    observed_generation: Annotated[StrictInt, Field(ge=0)] | None = None
    """The generation of the spec that this status is about."""
    conditions: Conditions = map_list("type", at_most=32)
    """Standard conditions; Succeeded and Failed end the job."""
    gpus: Count | None = None
    """GPUs the job asks for, or holds when it started with fewer pods."""
    progress: Progress | None = None
    attempt: Count | None = None
    """The number of the current or last attempt."""
    attempts: tuple[Attempt, ...] = map_list("number", at_most=KEPT_ATTEMPTS)
    """The last 20 attempts, oldest first."""
    counts: Counts | None = None
    grace_deadline: Timestamp | None = None
    """When the GPUs are taken back at the latest; set while a notice runs."""
    attempt_begun_at: Timestamp | None = None
    """When the current attempt was admitted."""
    master_port: Annotated[StrictInt, Field(ge=0, le=65_535)] | None = None
    """The port of its rank 0's rendezvous, when pods run as processes of one machine."""
    backoff_until: Timestamp | None = None
    """When the next attempt may be queued."""
    ran_seconds: StrictFloat | None = None
    """Running time of all ended attempts."""
    reprieved_attempt: Count | None = None
    """The last attempt that was given a notice which was then withdrawn."""


class TrainingJob(WireModel):
    """A training job: pods that start together, are preempted by notice, and resume from checkpoints."""

    api_version: Literal["clusterops.io/v1alpha1"]
    kind: Literal["TrainingJob"]
    metadata: Metadata
    spec: TrainingJobSpec
    status: TrainingJobStatus | None = None

    @classmethod
    def spanning_faults(cls, wire: Mapping[str, Any]) -> Iterator[Fault]:
        """Every rule of a job that needs more than one field."""
        spec = wire.get("spec")
        if not isinstance(spec, Mapping):
            return
        yield from _name_faults(wire.get("metadata"), spec)
        yield from _replica_faults(spec)
        for fault in pod_template.faults(
            spec.get("template"),
            checkpoint_directory=_checkpoint_directory(spec),
            processes_per_pod=_whole(spec.get("processesPerPod"), default=1),
        ):
            yield Fault(("spec", *fault.path), fault.message)

    @model_validator(mode="after")
    def _spanning(self) -> Self:
        return self.refuse_spanning_faults()

    @property
    def gpus(self) -> int:
        """How many GPUs the job asks for with all its pods."""
        return self.spec.replicas * pod_template.gpus(self.spec.template)


def longest_name(replicas: int) -> int:
    """How long the name of a job of so many pods may be, so that every pod's name is a DNS label."""
    return MAX_POD_NAME - len("--") - ATTEMPT_DIGITS - len(str(max(replicas, 1) - 1))


def _name_faults(metadata: Any, spec: Mapping[str, Any]) -> Iterator[Fault]:
    if not isinstance(metadata, Mapping):
        return
    name = metadata.get("name")
    generated = metadata.get("generateName")
    if not name and not generated:
        yield Fault(("metadata", "name"), "is required")
        return
    field = "name" if name else "generateName"
    text = name or f"{generated}xxxxx"
    if not isinstance(text, str):
        return
    longest = longest_name(_whole(spec.get("replicas"), default=1))
    if len(text) > longest:
        yield Fault(
            ("metadata", field),
            f"must be at most {longest} characters, not {len(text)}: pods are named "
            f"JOB-ATTEMPT-RANK and a pod's name has at most {MAX_POD_NAME}",
        )
    if "." in text or not text[:1].isalpha():
        yield Fault(
            ("metadata", field),
            'must begin with a letter and hold no ".": the job\'s Service and pods carry its name',
        )


def _replica_faults(spec: Mapping[str, Any]) -> Iterator[Fault]:
    fewest = spec.get("minReplicas")
    replicas = _whole(spec.get("replicas"), default=1)
    if isinstance(fewest, int) and not isinstance(fewest, bool) and fewest > replicas:
        yield Fault(("spec", "minReplicas"), f"must be at most replicas ({replicas}), not {fewest}")


def _checkpoint_directory(spec: Mapping[str, Any]) -> str | None:
    checkpoint = spec.get("checkpoint")
    directory = checkpoint.get("directory") if isinstance(checkpoint, Mapping) else None
    return directory if isinstance(directory, str) and directory.startswith("/") else None


def _whole(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
