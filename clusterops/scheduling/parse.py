"""Raw Kueue JSON (v1beta2) into the values of `objects`.

Written for objects that an API server has accepted: unknown fields are ignored, absent ones have
Kueue's defaults. What still cannot be understood in a Workload becomes its `defect`, so that one
odd object never stops the queue; in a queue or cohort it raises `InvalidQuantity`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from clusterops.api.names import (
    KUEUE_ANNOTATION_ADMISSION_GATED_BY,
    KUEUE_ANNOTATION_PRIORITY_BOOST,
    KUEUE_LABEL_JOB_UID,
)
from clusterops.scheduling import quantities
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
    SelectorTerm,
    Taint,
    Toleration,
    Workload,
)

Json = Mapping[str, Any]


def seconds(text: str | None) -> float:
    """An RFC 3339 time as epoch seconds; 0 for none or for what is no time."""
    if not text:
        return 0.0
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def cluster_queue(raw: Json) -> ClusterQueue:
    """A ClusterQueue. Raises InvalidQuantity."""
    spec = raw.get("spec") or {}
    metadata = raw["metadata"]
    return ClusterQueue(
        name=metadata["name"],
        cohort=spec.get("cohortName") or "",
        strategy=spec.get("queueingStrategy") or "BestEffortFIFO",
        groups=_groups(spec),
        quotas=_quotas(spec),
        preemption=_preemption(spec.get("preemption") or {}),
        fungibility=_fungibility(spec.get("flavorFungibility") or {}),
        stop=spec.get("stopPolicy") or "None",
        admission_checks=_admission_checks(spec),
        namespace_selector=label_selector(spec.get("namespaceSelector")),
        terminating="deletionTimestamp" in metadata,
    )


def cohort(raw: Json) -> Cohort:
    """A Cohort. Raises InvalidQuantity."""
    spec = raw.get("spec") or {}
    return Cohort(raw["metadata"]["name"], spec.get("parentName") or "", _quotas(spec))


def local_queue(raw: Json) -> LocalQueue:
    """A LocalQueue."""
    spec, metadata = raw.get("spec") or {}, raw["metadata"]
    return LocalQueue(
        namespace=metadata["namespace"],
        name=metadata["name"],
        cluster_queue=spec.get("clusterQueue") or "",
        stop=spec.get("stopPolicy") or "None",
        terminating="deletionTimestamp" in metadata,
    )


def resource_flavor(raw: Json) -> ResourceFlavor:
    """A ResourceFlavor."""
    spec = raw.get("spec") or {}
    return ResourceFlavor(
        name=raw["metadata"]["name"],
        node_labels=dict(spec.get("nodeLabels") or {}),
        node_taints=tuple(taint(item) for item in spec.get("nodeTaints") or ()),
        tolerations=tuple(toleration(item) for item in spec.get("tolerations") or ()),
    )


def workload(raw: Json) -> Workload:
    """A Workload; never raises for what a user could have written."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    requeue = status.get("requeueState") or {}
    pod_sets, defect = _pod_sets(spec.get("podSets") or ())
    admission = _admission(status.get("admission"), pod_sets)
    return Workload(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        queue=spec.get("queueName") or "",
        pod_sets=pod_sets,
        priority=int(spec.get("priority") or 0),
        boost=_boost(annotations.get(KUEUE_ANNOTATION_PRIORITY_BOOST)),
        created=seconds(metadata.get("creationTimestamp")),
        generation=int(metadata.get("generation") or 0),
        active=spec.get("active") is not False,
        terminating="deletionTimestamp" in metadata,
        owned=bool(metadata.get("ownerReferences")),
        job_uid=labels.get(KUEUE_LABEL_JOB_UID) or "",
        priority_class=_priority_class(spec.get("priorityClassRef") or {}),
        gates=annotations.get(KUEUE_ANNOTATION_ADMISSION_GATED_BY) or "",
        conditions={item["type"]: _condition(item) for item in status.get("conditions") or ()},
        admission=admission,
        reclaimable={
            item["name"]: int(item.get("count") or 0)
            for item in status.get("reclaimablePods") or ()
        },
        requeue_at=seconds(requeue["requeueAt"]) if requeue.get("requeueAt") else None,
        requeue_count=int(requeue.get("count") or 0),
        max_execution_seconds=spec.get("maximumExecutionTimeSeconds"),
        past_execution_seconds=int(status.get("accumulatedPastExecutionTimeSeconds") or 0),
        defect=defect,
    )


def taint(raw: Json) -> Taint:
    """A node's or flavor's taint."""
    return Taint(raw["key"], raw.get("value") or "", raw.get("effect") or "NoSchedule")


def toleration(raw: Json) -> Toleration:
    """A pod's toleration."""
    return Toleration(
        key=raw.get("key") or "",
        operator=raw.get("operator") or "Equal",
        value=raw.get("value") or "",
        effect=raw.get("effect") or "",
    )


def label_selector(raw: Json | None) -> tuple[SelectorTerm, ...] | None:
    """A label selector as terms that must all hold; None selects nothing, `{}` everything."""
    if raw is None:
        return None
    labels = raw.get("matchLabels") or {}
    return (
        *(SelectorTerm(key, "In", (value,)) for key, value in sorted(labels.items())),
        *(_term(item) for item in raw.get("matchExpressions") or ()),
    )


def node_selection(pod_spec: Json) -> NodeSelection:
    """Where a pod may go: nodeSelector, required node affinity, tolerations."""
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = tuple(
        tuple(_term(item) for item in term.get("matchExpressions") or ())
        for term in required.get("nodeSelectorTerms") or ()
    )
    return NodeSelection(
        labels=dict(pod_spec.get("nodeSelector") or {}),
        terms=terms,
        tolerations=tuple(toleration(item) for item in pod_spec.get("tolerations") or ()),
    )


def node_name_term(raw: Json) -> SelectorTerm:
    """A `matchFields` requirement on a node's name, as one on the label that carries the name."""
    return msgspec.structs.replace(_term(raw), key="kubernetes.io/hostname")


def pod_requests(pod_spec: Json) -> dict[str, int]:
    """What one pod asks for, in the resources' units.

    Containers and sidecars are summed, an ordinary init container counts where it asks for more
    than all that run later; a limit stands in for a missing request. Raises InvalidQuantity.
    """
    total: dict[str, int] = {}
    for container in pod_spec.get("containers") or ():
        _accumulate(total, _container_requests(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod_spec.get("initContainers") or ():
        asks = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            _accumulate(sidecars, asks)
            asks = {}
        for resource in (*asks, *sidecars):
            needed = asks.get(resource, 0) + sidecars.get(resource, 0)
            peak[resource] = max(peak.get(resource, 0), needed)
    _accumulate(total, sidecars)
    for resource, amount in peak.items():
        total[resource] = max(total.get(resource, 0), amount)
    overhead = pod_spec.get("overhead") or {}
    _accumulate(total, {name: quantities.parse(name, text) for name, text in overhead.items()})
    return {resource: max(0, total[resource]) for resource in sorted(total)}


def _accumulate(total: dict[str, int], more: Mapping[str, int]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _container_requests(container: Json) -> dict[str, int]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: quantities.parse(name, text) for name, text in asked.items()}


def _pod_sets(raw: Sequence[Json]) -> tuple[tuple[PodSet, ...], str]:
    """The pod sets, and what is wrong with them if they cannot be counted."""
    found = []
    for item in raw:
        pod_spec = (item.get("template") or {}).get("spec") or {}
        try:
            requests = pod_requests(pod_spec)
        except quantities.InvalidQuantity as wrong:
            return (), f"resources validation failed: pod set {item.get('name')}: {wrong}"
        found.append(
            PodSet(
                name=item.get("name") or "main",
                count=int(item.get("count", 1)),
                requests=requests,
                minimum=item.get("minCount"),
                selection=node_selection(pod_spec),
            )
        )
    return tuple(found), "" if found else "the workload has no pod sets"


def _admission(raw: Json | None, pod_sets: Sequence[PodSet]) -> Admission | None:
    if not raw:
        return None
    counts = {pods.name: pods.count for pods in pod_sets}
    assignments = []
    for item in raw.get("podSetAssignments") or ():
        given = item.get("count")
        usage = item.get("resourceUsage") or {}
        assignments.append(
            PodSetAssignment(
                name=item.get("name") or "main",
                count=int(given) if given is not None else counts.get(item.get("name"), 0),
                flavors=dict(item.get("flavors") or {}),
                usage={name: _lenient(name, text) for name, text in usage.items()},
            )
        )
    return Admission(raw.get("clusterQueue") or "", tuple(assignments))


def _lenient(resource: str, text: object) -> int:
    """An amount that we or Kueue wrote; one that is no quantity counts as nothing."""
    try:
        return quantities.parse(resource, text)
    except quantities.InvalidQuantity:
        return 0


def _condition(raw: Json) -> Condition:
    return Condition(
        true=raw.get("status") == "True",
        reason=raw.get("reason") or "",
        message=raw.get("message") or "",
        since=seconds(raw.get("lastTransitionTime")),
    )


def _boost(text: str | None) -> int:
    """A priority boost; what is no signed 32-bit number is ignored, as Kueue does without the gate."""
    if text is None:
        return 0
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 10:
        return 0
    value = int(text)
    return value if -(2**31) <= value < 2**31 else 0


def _priority_class(raw: Json) -> str:
    """The name of the WorkloadPriorityClass; other kinds of class are not ours to follow."""
    return (raw.get("name") or "") if raw.get("kind") == "WorkloadPriorityClass" else ""


def _term(raw: Json) -> SelectorTerm:
    return SelectorTerm(raw["key"], raw.get("operator") or "In", tuple(raw.get("values") or ()))


def _groups(spec: Json) -> tuple[ResourceGroup, ...]:
    return tuple(
        ResourceGroup(
            tuple(group.get("coveredResources") or ()),
            tuple(flavor["name"] for flavor in group.get("flavors") or ()),
        )
        for group in spec.get("resourceGroups") or ()
    )


def _quotas(spec: Json) -> dict[FlavorResource, Quota]:
    return {
        FlavorResource(flavor["name"], resource["name"]): Quota(
            nominal=quantities.parse(resource["name"], resource.get("nominalQuota", 0)),
            borrowing_limit=_limit(resource, "borrowingLimit"),
            lending_limit=_limit(resource, "lendingLimit"),
        )
        for group in spec.get("resourceGroups") or ()
        for flavor in group.get("flavors") or ()
        for resource in flavor.get("resources") or ()
    }


def _limit(resource: Json, field: str) -> int | None:
    text = resource.get(field)
    return None if text is None else quantities.parse(resource["name"], text)


def _preemption(raw: Json) -> Preemption:
    borrow = raw.get("borrowWithinCohort") or {}
    return Preemption(
        within_cluster_queue=raw.get("withinClusterQueue") or "Never",
        reclaim_within_cohort=raw.get("reclaimWithinCohort") or "Never",
        borrow_within_cohort=borrow.get("policy") or "Never",
        borrow_threshold=borrow.get("maxPriorityThreshold"),
    )


def _fungibility(raw: Json) -> FlavorFungibility:
    """Kueue's older names for the two answers, Borrow and Preempt, mean that the search may stop."""
    borrow, preempt = raw.get("whenCanBorrow"), raw.get("whenCanPreempt")
    return FlavorFungibility(
        when_can_borrow=borrow or "MayStopSearch",
        when_can_preempt=preempt or "TryNextFlavor",
        preference=raw.get("preference") or "BorrowingOverPreemption",
    )


def _admission_checks(spec: Json) -> tuple[str, ...]:
    strategy = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    return tuple(sorted(item["name"] for item in strategy))
