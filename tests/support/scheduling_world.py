"""Short builders for scheduling tests: queues, workloads and snapshots from a few words."""

from collections.abc import Iterable, Mapping
from typing import Any

from clusterops.scheduling import cycle, snapshot
from clusterops.scheduling.decisions import Admit, Decision, Preempt, Wait, line
from clusterops.scheduling.objects import (
    Admission,
    ClusterQueue,
    Cohort,
    Condition,
    FlavorFungibility,
    FlavorResource,
    LocalQueue,
    NodeSelection,
    PodSet,
    PodSetAssignment,
    Preemption,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Workload,
)
from clusterops.scheduling.snapshot import Snapshot

GPU = "nvidia.com/gpu"
NOW = 10_000.0
KUEUE_FUNGIBILITY = FlavorFungibility()
ANYWHERE = NodeSelection()
ANY = Preemption(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")
LOWER = Preemption(within_cluster_queue="LowerPriority", reclaim_within_cohort="LowerPriority")


def queue(
    name: str = "cq",
    gpus: int | Mapping[str, int | Quota] | Quota = 8,
    *,
    cohort: str = "",
    preemption: Preemption = LOWER,
    strategy: Any = "BestEffortFIFO",
    fungibility: FlavorFungibility = KUEUE_FUNGIBILITY,
    **more: Any,
) -> ClusterQueue:
    """A ClusterQueue with GPUs of one flavor, or of several given by name."""
    flavors = gpus if isinstance(gpus, Mapping) else {"default": gpus}
    quotas = {
        FlavorResource(flavor, GPU): amount if isinstance(amount, Quota) else Quota(amount)
        for flavor, amount in flavors.items()
    }
    return ClusterQueue(
        name=name,
        cohort=cohort,
        strategy=strategy,
        groups=(ResourceGroup((GPU,), tuple(flavors)),),
        quotas=quotas,
        preemption=preemption,
        fungibility=fungibility,
        **more,
    )


def job(
    name: str,
    gpus: int = 1,
    *,
    priority: int = 0,
    queue: str = "cq",
    created: float = 0.0,
    pods: int = 1,
    minimum: int | None = None,
    uid: str = "",
    selection: NodeSelection = ANYWHERE,
    conditions: Mapping[str, Condition] | None = None,
    **more: Any,
) -> Workload:
    """A waiting workload of `pods` pods with `gpus` GPUs each; its LocalQueue has the queue's name."""
    return Workload(
        namespace="ns",
        name=name,
        uid=uid or f"uid-{name}",
        queue=queue,
        pod_sets=(PodSet("main", pods, {GPU: gpus}, minimum, selection),),
        priority=priority,
        created=created,
        conditions=conditions or {},
        **more,
    )


def running(
    name: str,
    gpus: int = 1,
    *,
    queue: str = "cq",
    flavor: str = "default",
    since: float = 100.0,
    evicted: str = "",
    pods: int = 1,
    **more: Any,
) -> Workload:
    """A workload that holds quota since a time; `evicted` = uid of its preemptor."""
    conditions = {
        "QuotaReserved": Condition(True, "QuotaReserved", "", since),
        "Admitted": Condition(True, "Admitted", "", since),
    }
    if evicted:
        text = f"Preempted to accommodate a workload (UID: {evicted}, JobUID: x) due to y"
        conditions["Evicted"] = Condition(True, "Preempted", text, since + 50)
        conditions["Preempted"] = Condition(True, "InClusterQueue", text, since + 50)
    given = PodSetAssignment("main", pods, {GPU: flavor}, {GPU: gpus * pods})
    return job(
        name,
        gpus,
        queue=queue,
        pods=pods,
        conditions=conditions,
        admission=Admission(queue, (given,)),
        **more,
    )


def world(
    queues: Iterable[ClusterQueue],
    workloads: Iterable[Workload],
    *,
    cohorts: Iterable[Cohort] = (),
    flavors: Iterable[ResourceFlavor] | None = None,
    local_queues: Iterable[LocalQueue] | None = None,
    **more: Any,
) -> Snapshot:
    """A snapshot in which each ClusterQueue has a LocalQueue of its name in namespace `ns`."""
    queues = list(queues)
    named = {flavor for each in queues for group in each.groups for flavor in group.flavors}
    return snapshot.build(
        cluster_queues=queues,
        cohorts=cohorts,
        flavors=flavors
        if flavors is not None
        else [ResourceFlavor(flavor) for flavor in sorted(named)],
        local_queues=local_queues
        if local_queues is not None
        else [LocalQueue("ns", each.name, each.name) for each in queues],
        workloads=workloads,
        **more,
    )


def decided(where: Snapshot) -> list[str]:
    """Admissions and preemptions of a round in a few words, in order."""
    return [short(each) for each in cycle.decide(where, NOW) if not isinstance(each, Wait)]


def short(decision: Decision) -> str:
    """`+job` admitted (`+job*5` with fewer pods), `-victim<preemptor:reason` preempted."""
    match decision:
        case Admit(workload, admission):
            given = admission.assignments[0]
            fewer = f"*{given.count}" if given.count != workload.pod_sets[0].count else ""
            flavor = given.flavors.get(GPU, "default")
            return f"+{workload.name}{fewer}" + ("" if flavor == "default" else f"@{flavor}")
        case Preempt(victim, preemptor, reason):
            return f"-{victim.name}<{preemptor.name}:{reason.value}"
        case Wait(workload, why):
            return f"?{workload.name}:{why.value}"


def waits(where: Snapshot) -> dict[str, str]:
    """By name, what those that were looked at and wait are told."""
    return {
        each.workload.name: each.message
        for each in cycle.decide(where, NOW)
        if isinstance(each, Wait)
    }


def transcript(where: Snapshot) -> str:
    """All decisions of a round, one a line."""
    return "\n".join(line(each) for each in cycle.decide(where, NOW))
