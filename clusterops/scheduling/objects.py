"""What the queue decides about, as immutable values: queues, cohorts, flavors and workloads.

These hold only what a decision reads, in integers and epoch seconds. `parse` makes them from raw
Kueue JSON. A `Snapshot` in `snapshot` holds a consistent set of them.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

Strategy = Literal["BestEffortFIFO", "StrictFIFO"]
StopPolicy = Literal["None", "Hold", "HoldAndDrain"]
Policy = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any"]


class FlavorResource(NamedTuple):
    """One resource of one flavor: the unit in which quota is counted."""

    flavor: str
    resource: str


Amounts = Mapping[FlavorResource, int]


class Quota(msgspec.Struct, frozen=True):
    """Quota of one flavor-resource at one node of the cohort tree. None = no limit."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


class ResourceGroup(msgspec.Struct, frozen=True):
    """Resources that are given from one flavor together, and the flavors in the order of trial."""

    covered: tuple[str, ...]
    flavors: tuple[str, ...]


class Preemption(msgspec.Struct, frozen=True):
    """Whom a ClusterQueue may preempt. `borrow_threshold`: highest priority of a victim while borrowing."""

    within_cluster_queue: Policy = "Never"
    reclaim_within_cohort: Policy = "Never"
    borrow_within_cohort: Literal["Never", "LowerPriority"] = "Never"
    borrow_threshold: int | None = None


class FlavorFungibility(msgspec.Struct, frozen=True):
    """When to go on to the next flavor although this one could do."""

    when_can_borrow: str = "MayStopSearch"
    when_can_preempt: str = "TryNextFlavor"
    preference: str = "BorrowingOverPreemption"


class SelectorTerm(msgspec.Struct, frozen=True):
    """One requirement on a label: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class ClusterQueue(msgspec.Struct, frozen=True):
    """A queue with quota of its own, in a cohort or alone."""

    name: str
    cohort: str = ""
    strategy: Strategy = "BestEffortFIFO"
    groups: tuple[ResourceGroup, ...] = ()
    quotas: Mapping[FlavorResource, Quota] = {}
    preemption: Preemption = Preemption()
    fungibility: FlavorFungibility = FlavorFungibility()
    stop: StopPolicy = "None"
    admission_checks: tuple[str, ...] = ()
    # None admits no namespace, an empty tuple all of them, as label selectors do.
    namespace_selector: tuple[SelectorTerm, ...] | None = ()
    terminating: bool = False

    def group_of(self, resource: str) -> ResourceGroup | None:
        """The group that provides a resource, None when the queue has no quota of it."""
        return next((group for group in self.groups if resource in group.covered), None)


class Cohort(msgspec.Struct, frozen=True):
    """An inner node of the quota tree; exists also when only named by a queue."""

    name: str
    parent: str = ""
    quotas: Mapping[FlavorResource, Quota] = {}


class Taint(msgspec.Struct, frozen=True):
    """A taint of nodes or of a flavor."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        middle = f"={self.value}" if self.value else ""
        return f"{self.key}{middle}:{self.effect}"


class Toleration(msgspec.Struct, frozen=True):
    """What a pod puts up with. An empty key with Exists tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """True when a pod with this toleration may go where the taint is."""
        if self.effect and self.effect != taint.effect:
            return False
        if not self.key:
            return self.operator == "Exists"
        return self.key == taint.key and (self.operator == "Exists" or self.value == taint.value)


class ResourceFlavor(msgspec.Struct, frozen=True):
    """A kind of nodes: their labels and taints, and tolerations given to pods that use it."""

    name: str
    node_labels: Mapping[str, str] = {}
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class LocalQueue(msgspec.Struct, frozen=True):
    """A namespace's door to a ClusterQueue."""

    namespace: str
    name: str
    cluster_queue: str
    stop: StopPolicy = "None"
    terminating: bool = False


class NodeSelection(msgspec.Struct, frozen=True):
    """Which nodes pods may go to: all of `labels`, and any of `terms` (each all of its parts)."""

    labels: Mapping[str, str] = {}
    terms: tuple[tuple[SelectorTerm, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class PodSet(msgspec.Struct, frozen=True):
    """Pods alike. `requests` are of one pod; `minimum` is the least count it can start with."""

    name: str
    count: int
    requests: Mapping[str, int] = {}
    minimum: int | None = None
    selection: NodeSelection = NodeSelection()

    @property
    def least(self) -> int:
        """The smallest count worth admitting."""
        return self.count if self.minimum is None else self.minimum


class PodSetAssignment(msgspec.Struct, frozen=True):
    """What one pod set was given: flavor and total amount per resource, and how many pods."""

    name: str
    count: int
    flavors: Mapping[str, str] = {}
    usage: Mapping[str, int] = {}


class Admission(msgspec.Struct, frozen=True):
    """A reservation of quota in a ClusterQueue."""

    cluster_queue: str
    assignments: tuple[PodSetAssignment, ...]


class Condition(msgspec.Struct, frozen=True):
    """A status condition; `since` is its lastTransitionTime in epoch seconds."""

    true: bool
    reason: str = ""
    message: str = ""
    since: float = 0.0


class Workload(msgspec.Struct, frozen=True):
    """One job in the queue, waiting or holding quota. Times are epoch seconds."""

    namespace: str
    name: str
    uid: str
    queue: str
    pod_sets: tuple[PodSet, ...] = ()
    priority: int = 0
    boost: int = 0
    created: float = 0.0
    generation: int = 0
    active: bool = True
    terminating: bool = False
    owned: bool = True
    job_uid: str = ""
    priority_class: str = ""
    gates: str = ""
    conditions: Mapping[str, Condition] = {}
    admission: Admission | None = None
    reclaimable: Mapping[str, int] = {}
    requeue_at: float | None = None
    requeue_count: int = 0
    max_execution_seconds: int | None = None
    past_execution_seconds: int = 0
    # Why the requests cannot be counted; such a workload is never admitted.
    defect: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name), unique at one time."""
        return (self.namespace, self.name)

    @property
    def effective_priority(self) -> int:
        """The priority of its class plus its boost: what every comparison uses."""
        return self.priority + self.boost

    def is_true(self, condition: str) -> bool:
        """True when the named condition is present and True."""
        found = self.conditions.get(condition)
        return found is not None and found.true

    @property
    def finished(self) -> bool:
        return self.is_true("Finished")

    @property
    def evicted(self) -> bool:
        return self.is_true("Evicted")

    @property
    def admitted(self) -> bool:
        return self.is_true("Admitted")

    @property
    def reserved(self) -> bool:
        return self.is_true("QuotaReserved")

    @property
    def holds_quota(self) -> bool:
        """True while its reservation counts: a finished or deactivated one no longer does."""
        return self.reserved and self.admission is not None and not self.finished and self.active

    @property
    def on_hold(self) -> bool:
        """True when its owner keeps it out of the queue until it says otherwise."""
        reservation = self.conditions.get("QuotaReserved")
        return reservation is not None and not reservation.true and reservation.reason == "OnHold"

    def counts_after_reclaim(self) -> dict[str, int]:
        """Pods still wanted, by pod set: those given back by the owner no longer count."""
        return {
            pods.name: max(0, pods.count - self.reclaimable.get(pods.name, 0))
            for pods in self.pod_sets
        }

    def usage(self) -> dict[FlavorResource, int]:
        """What its reservation holds. Lowering a count gives quota back at once."""
        held: dict[FlavorResource, int] = {}
        if self.admission is None:
            return held
        counts = self.counts_after_reclaim()
        for given in self.admission.assignments:
            wanted = min(given.count, counts.get(given.name, given.count))
            for resource, amount in given.usage.items():
                flavor = given.flavors.get(resource)
                if flavor is None:
                    continue
                if given.count and wanted < given.count:
                    amount = amount // given.count * wanted
                unit = FlavorResource(flavor, resource)
                held[unit] = held.get(unit, 0) + amount
        return held
