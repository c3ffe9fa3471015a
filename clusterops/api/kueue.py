"""Kueue's objects as far as we use them, for places without Kueue: version v1beta2.

The fields that we read or write are typed as Kueue types them; all others are kept as they come. In
a cluster Kueue brings its own definitions; these serve the embedded API server, where an object
written for the one must be accepted by the other.
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictBool, StrictInt, StrictStr, WithJsonSchema

from clusterops.api.wire import (
    Conditions,
    DnsSubdomain,
    Metadata,
    Quantity,
    Text,
    Timestamp,
    WireModel,
    map_list,
)

Int32 = Annotated[StrictInt, Field(ge=-(2**31), le=2**31 - 1)]
Amount = Annotated[StrictInt, Field(ge=0, le=2**31 - 1)]
ResourceName = Annotated[StrictStr, Field(min_length=1, max_length=317)]
StopPolicy = Literal["None", "Hold", "HoldAndDrain"]

Open = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]
"""An object of a type that is not ours to check, kept as it comes."""

Selector = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "nullable": True}
    ),
]


class KueueModel(WireModel):
    """Base of Kueue's kinds: what we do not know is kept, not refused."""

    model_config = ConfigDict(extra="allow")


class FairSharing(KueueModel):
    """The share of unused quota that this queue or cohort is entitled to."""

    weight: Quantity | None = None


class FairSharingStatus(KueueModel):
    """How far above its share it is."""

    weighted_share: Annotated[StrictInt, Field(ge=0)] | None = None


class ResourceQuota(KueueModel):
    """How much of one resource in one flavor."""

    name: ResourceName
    nominal_quota: Quantity
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotas(KueueModel):
    """The quotas in one flavor."""

    name: DnsSubdomain
    resources: Annotated[tuple[ResourceQuota, ...], Field(min_length=1)] = map_list(
        "name", at_most=64
    )


class ResourceGroup(KueueModel):
    """Resources that are taken from the same flavor, and the flavors in the order of trial."""

    covered_resources: Annotated[tuple[ResourceName, ...], Field(min_length=1, max_length=64)]
    flavors: Annotated[tuple[FlavorQuotas, ...], Field(min_length=1)] = map_list("name", at_most=64)


class BorrowWithinCohort(KueueModel):
    """Whether a job may preempt in other queues while its own queue borrows."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    max_priority_threshold: Int32 | None = None


class Preemption(KueueModel):
    """Whom a pending job may displace."""

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    borrow_within_cohort: BorrowWithinCohort | None = None


class FlavorFungibility(KueueModel):
    """When to try the next flavor."""

    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor", "Borrow"] = "MayStopSearch"
    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor", "Preempt"] = "TryNextFlavor"
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None


class ClusterQueueSpec(KueueModel):
    """Quota, and the rules by which it is given out."""

    cohort_name: DnsSubdomain | None = None
    """The cohort that it lends to and borrows from."""
    queueing_strategy: Literal["StrictFIFO", "BestEffortFIFO"] = "BestEffortFIFO"
    """Whether a job that does not fit blocks the ones behind it."""
    namespace_selector: Selector | None = None
    """Namespaces whose jobs may use it; null = none, {} = all."""
    resource_groups: Annotated[tuple[ResourceGroup, ...], Field(max_length=16)] = ()
    """The quotas."""
    preemption: Preemption = Preemption()
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    stop_policy: StopPolicy = "None"
    """Hold = no new jobs, HoldAndDrain = running ones leave too."""
    fair_sharing: FairSharing | None = None
    admission_checks_strategy: Open | None = None


class ResourceUsage(KueueModel):
    """How much of one resource is taken."""

    name: ResourceName
    total: Quantity | None = None
    borrowed: Quantity | None = None


class FlavorUsage(KueueModel):
    """What is taken of one flavor."""

    name: DnsSubdomain
    resources: tuple[ResourceUsage, ...] = map_list("name", at_most=64)


class QueueStatus(KueueModel):
    """What a queue holds at the moment."""

    conditions: Conditions = map_list("type", at_most=16)
    flavors_reservation: tuple[FlavorUsage, ...] = map_list("name", at_most=64)
    flavors_usage: tuple[FlavorUsage, ...] = map_list("name", at_most=64)
    pending_workloads: Amount | None = None
    reserving_workloads: Amount | None = None
    admitted_workloads: Amount | None = None
    fair_sharing: FairSharingStatus | None = None


class ClusterQueue(KueueModel):
    """A pool of quota."""

    api_version: Literal["kueue.x-k8s.io/v1beta2"]
    kind: Literal["ClusterQueue"]
    metadata: Metadata
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: QueueStatus | None = None


class LocalQueueSpec(KueueModel):
    """Which ClusterQueue the jobs of this namespace wait for."""

    cluster_queue: DnsSubdomain
    stop_policy: StopPolicy = "None"
    fair_sharing: FairSharing | None = None


class LocalQueue(KueueModel):
    """The door of one namespace to a ClusterQueue."""

    api_version: Literal["kueue.x-k8s.io/v1beta2"]
    kind: Literal["LocalQueue"]
    metadata: Metadata
    spec: LocalQueueSpec
    status: QueueStatus | None = None


class CohortSpec(KueueModel):
    """A node of the tree in which quota is lent, with quota of its own."""

    parent_name: DnsSubdomain | None = None
    resource_groups: Annotated[tuple[ResourceGroup, ...], Field(max_length=16)] = ()
    fair_sharing: FairSharing | None = None


class CohortStatus(KueueModel):
    """How far above its share the cohort is."""

    fair_sharing: FairSharingStatus | None = None


class Cohort(KueueModel):
    """Queues that lend each other what they do not use."""

    api_version: Literal["kueue.x-k8s.io/v1beta2"]
    kind: Literal["Cohort"]
    metadata: Metadata
    spec: CohortSpec = CohortSpec()
    status: CohortStatus | None = None


class Taint(KueueModel):
    """A mark on nodes that keeps pods away unless they tolerate it."""

    key: Annotated[StrictStr, Field(min_length=1, max_length=317)]
    value: StrictStr | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class ResourceFlavorSpec(KueueModel):
    """Which nodes the flavor stands for, and what its pods must tolerate."""

    node_labels: dict[StrictStr, StrictStr] | None = None
    node_taints: Annotated[tuple[Taint, ...], Field(max_length=8)] = ()
    tolerations: Annotated[tuple[Open, ...], Field(max_length=8)] = ()
    topology_name: DnsSubdomain | None = None


class ResourceFlavor(KueueModel):
    """A kind of node."""

    api_version: Literal["kueue.x-k8s.io/v1beta2"]
    kind: Literal["ResourceFlavor"]
    metadata: Metadata
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class WorkloadPriorityClass(KueueModel):
    """A named priority, apart from the priority of pods."""

    api_version: Literal["kueue.x-k8s.io/v1beta2"]
    kind: Literal["WorkloadPriorityClass"]
    metadata: Metadata
    value: Int32
    """The priority; higher is more urgent."""
    description: Text | None = None
    """When to use it."""


class PriorityClassRef(KueueModel):
    """Where a Workload's priority came from."""

    group: StrictStr
    kind: StrictStr
    name: DnsSubdomain


class PodSet(KueueModel):
    """Pods of one shape."""

    name: DnsSubdomain = "main"
    count: Amount = 1
    min_count: Annotated[StrictInt, Field(ge=1, le=2**31 - 1)] | None = None
    template: Open
    topology_request: Open | None = None


class WorkloadSpec(KueueModel):
    """What asks for quota."""

    pod_sets: tuple[PodSet, ...] = map_list("name", at_most=18)
    queue_name: DnsSubdomain | None = None
    priority_class_ref: PriorityClassRef | None = None
    priority: Int32 | None = None
    active: StrictBool = True
    maximum_execution_time_seconds: Annotated[StrictInt, Field(ge=1, le=2**31 - 1)] | None = None


class PodSetAssignment(KueueModel):
    """What one pod set was given."""

    name: DnsSubdomain = "main"
    flavors: dict[StrictStr, StrictStr] | None = None
    resource_usage: dict[StrictStr, Quantity] | None = None
    count: Amount | None = None
    topology_assignment: Open | None = None


class Admission(KueueModel):
    """The quota that a Workload holds."""

    cluster_queue: DnsSubdomain
    pod_set_assignments: tuple[PodSetAssignment, ...] = map_list("name", at_most=18)


class RequeueState(KueueModel):
    """How often a Workload came back, and when it may again."""

    count: Amount | None = None
    requeue_at: Timestamp | None = None


class ReclaimablePod(KueueModel):
    """Pods that no longer need their share."""

    name: DnsSubdomain
    count: Amount


class AdmissionCheckState(KueueModel):
    """How one check of a Workload stands."""

    name: Annotated[StrictStr, Field(min_length=1, max_length=316)]
    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    last_transition_time: Timestamp | None = None
    message: Text = ""


class Eviction(KueueModel):
    """How often a Workload was evicted for one reason."""

    reason: Annotated[StrictStr, Field(max_length=316)]
    underlying_cause: Annotated[StrictStr, Field(max_length=316)]
    count: Amount


class SchedulingStats(KueueModel):
    """What happened to a Workload so far."""

    evictions: tuple[Eviction, ...] = map_list("reason", "underlyingCause", at_most=256)


class WorkloadStatus(KueueModel):
    """How far a Workload is."""

    conditions: Conditions = map_list("type", at_most=16)
    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    reclaimable_pods: tuple[ReclaimablePod, ...] = map_list("name", at_most=18)
    admission_checks: tuple[AdmissionCheckState, ...] = map_list("name", at_most=16)
    accumulated_past_execution_time_seconds: Amount | None = None
    scheduling_stats: SchedulingStats | None = None


class Workload(KueueModel):
    """One job's request for quota."""

    api_version: Literal["kueue.x-k8s.io/v1beta2"]
    kind: Literal["Workload"]
    metadata: Metadata
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus | None = None


class TopologyLevel(KueueModel):
    """One level, by the node label that names its domains."""

    node_label: Annotated[StrictStr, Field(min_length=1, max_length=316)]


class TopologySpec(KueueModel):
    """How nodes are near each other, from the widest level to the narrowest."""

    levels: Annotated[tuple[TopologyLevel, ...], Field(min_length=1, max_length=16)]


class Topology(KueueModel):
    """Racks, blocks, hosts."""

    api_version: Literal["kueue.x-k8s.io/v1beta2"]
    kind: Literal["Topology"]
    metadata: Metadata
    spec: TopologySpec


class AdmissionCheckSpec(KueueModel):
    """Who decides the check."""

    controller_name: Annotated[StrictStr, Field(min_length=1, max_length=253)]
    parameters: Open | None = None


class AdmissionCheckStatus(KueueModel):
    """Whether its controller runs."""

    conditions: Conditions = map_list("type", at_most=16)


class AdmissionCheck(KueueModel):
    """A condition beyond quota."""

    api_version: Literal["kueue.x-k8s.io/v1beta2"]
    kind: Literal["AdmissionCheck"]
    metadata: Metadata
    spec: AdmissionCheckSpec
    status: AdmissionCheckStatus | None = None
