"""The Workload that stands for a job in its queue, and the writes that change its state.

Bodies and new statuses are pure values. A status write takes the raw object that was just read, so
that conditions of others stay as they are, and returns None when there is nothing (left) to write:
that is what makes each of them safe to repeat.
"""

import copy
import hashlib
import json
from datetime import datetime
from typing import Any

from clusterops.api import names
from clusterops.core.observed import Observed, TrainingJob, Workload

ANNOTATION_POD_SETS = f"{names.GROUP}/pod-sets-digest"
"""Tells whether a Workload still asks for what its job asks for, without comparing templates."""

PRIORITY_CLASS_GROUP = names.KUEUE_GROUP
POD_SET = "main"


def workload_name(job: TrainingJob) -> str:
    """One name per job object, so that a job created anew never meets its namesake's Workload."""
    uid = hashlib.sha256(job.metadata.uid.encode()).hexdigest()[:8]
    return f"trainingjob-{job.metadata.name}-{uid}"


def desired_workload(job: TrainingJob, priority: int) -> dict[str, Any]:
    """The Workload to create: owned by the job, holding quota until its finalizer goes."""
    return {
        "apiVersion": names.WORKLOADS.api_version,
        "kind": names.WORKLOADS.kind,
        "metadata": {
            "namespace": job.metadata.namespace,
            "name": workload_name(job),
            "labels": {
                names.KUEUE_LABEL_JOB_UID: job.metadata.uid,
                names.LABEL_JOB: job.metadata.name,
            },
            "annotations": {ANNOTATION_POD_SETS: pod_sets_digest(job)},
            "finalizers": [names.FINALIZER_PODS_GONE],
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "queueName": job.spec.queue_name,
            "active": True,
            "podSets": pod_sets(job),
            **_priority(job, priority),
        },
    }


def owner_reference(job: TrainingJob) -> dict[str, Any]:
    """What everything that belongs to the job carries."""
    return {
        "apiVersion": names.TRAINING_JOBS.api_version,
        "kind": names.TRAINING_JOBS.kind,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_sets(job: TrainingJob) -> list[dict[str, Any]]:
    """All pods of a job are alike: one pod set."""
    template = copy.deepcopy(job.spec.template)
    metadata = template.get("metadata") or {}
    kept = {field: metadata[field] for field in ("labels", "annotations") if metadata.get(field)}
    pod_spec = {"restartPolicy": "Never", **(template.get("spec") or {})}
    pod_set: dict[str, Any] = {
        "name": POD_SET,
        "count": job.spec.replicas,
        "template": {"metadata": kept, "spec": pod_spec},
    }
    if job.spec.min_replicas is not None and job.spec.min_replicas < job.spec.replicas:
        pod_set["minCount"] = job.spec.min_replicas
    return [pod_set]


def pod_sets_digest(job: TrainingJob) -> str:
    """A short digest of `pod_sets`, the same whatever the order of keys."""
    text = json.dumps(pod_sets(job), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def update_patch(job: TrainingJob, workload: Workload, priority: int) -> dict[str, Any]:
    """The merge patch that brings a Workload back in line with its job; empty when it is.

    Queue and pod sets are immutable while quota is reserved; priority never is.
    """
    spec: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    class_name = workload.spec.priority_class_ref.name if workload.spec.priority_class_ref else None
    if (workload.spec.priority or 0) != priority or class_name != job.spec.priority_class_name:
        spec.update(_priority(job, priority) or {"priorityClassRef": None, "priority": priority})
    if not workload.reserved:
        if workload.spec.queue_name != job.spec.queue_name:
            spec["queueName"] = job.spec.queue_name
        digest = pod_sets_digest(job)
        if workload.metadata.annotation(ANNOTATION_POD_SETS) != digest:
            spec["podSets"] = pod_sets(job)
            metadata["annotations"] = {ANNOTATION_POD_SETS: digest}
    patch: dict[str, Any] = {}
    if metadata:
        patch["metadata"] = metadata
    if spec:
        patch["spec"] = spec
    return patch


def _priority(job: TrainingJob, priority: int) -> dict[str, Any]:
    if job.spec.priority_class_name is None:
        return {"priority": priority} if priority else {}
    return {
        "priorityClassRef": {
            "group": PRIORITY_CLASS_GROUP,
            "kind": names.WORKLOAD_PRIORITY_CLASSES.kind,
            "name": job.spec.priority_class_name,
        },
        "priority": priority,
    }


def gpus_per_pod(job: TrainingJob) -> int:
    """GPUs that the containers of one pod ask for together."""
    containers = (job.spec.template.get("spec") or {}).get("containers") or []
    total = 0
    for container in containers:
        resources = container.get("resources") or {}
        for kind in ("limits", "requests"):
            amount = (resources.get(kind) or {}).get(names.RESOURCE_GPU)
            if amount is not None:
                total += int(amount) if str(amount).isdigit() else 0
                break
    return total


# Status writes


def evicted_status(
    raw: dict[str, Any], reason: str, message: str, now: datetime
) -> dict[str, Any] | None:
    """Evicted=True by us, quota held. None when it is evicted already or holds nothing."""
    status = _status(raw)
    if not status.get("admission") or _true(status, "Evicted"):
        return None
    _set(raw, status, "Evicted", True, reason, message, now)
    return status


def cancelled_eviction_status(
    raw: dict[str, Any], reason: str, message: str, now: datetime
) -> dict[str, Any] | None:
    """Evicted=False and Preempted=False: the job goes on with its quota."""
    status = _status(raw)
    if not status.get("admission") or not _true(status, "Evicted"):
        return None
    _set(raw, status, "Evicted", False, reason, message, now)
    if _true(status, "Preempted"):
        _set(raw, status, "Preempted", False, reason, message, now)
    return status


def pods_ready_status(raw: dict[str, Any], now: datetime) -> dict[str, Any] | None:
    """PodsReady=True, which stops the queue's own start timer."""
    status = _status(raw)
    if not status.get("admission") or _true(status, "PodsReady"):
        return None
    _set(raw, status, "PodsReady", True, "Started", "All pods are running", now)
    return status


def released_status(
    raw: dict[str, Any], hold: bool, message: str, ran_seconds: int, now: datetime
) -> dict[str, Any] | None:
    """The one write that gives the quota back.

    Guard: Evicted and admission both set, since the server would also take the release of a
    running Workload. PodsReady is never reset by itself; without Admitted=False the Workload would
    never be queued again.
    """
    status = _status(raw)
    evicted = _condition(status, "Evicted")
    if not status.get("admission") or evicted is None or evicted.get("status") != "True":
        return None
    why = str(evicted.get("reason") or "Preempted")
    del status["admission"]
    _set(raw, status, "QuotaReserved", False, "OnHold" if hold else "Pending", message, now)
    _set(raw, status, "Admitted", False, "NoReservation", message, now)
    _set(raw, status, "PodsReady", False, "WaitForStart", "Not all pods are running", now)
    # Kueue ends its own back-off after a start time-out by turning this True.
    _set(raw, status, "Requeued", why != "PodsReadyTimeout", why, message, now)
    past = int(status.get("accumulatedPastExecutionTimeSeconds") or 0)
    if ran_seconds > 0:
        status["accumulatedPastExecutionTimeSeconds"] = past + ran_seconds
    return status


def held_status(raw: dict[str, Any], message: str, now: datetime) -> dict[str, Any] | None:
    """QuotaReserved=False/OnHold: out of the queue until woken."""
    status = _status(raw)
    reserved = _condition(status, "QuotaReserved") or {}
    if status.get("admission") or reserved.get("reason") == "OnHold":
        return None
    _set(raw, status, "QuotaReserved", False, "OnHold", message, now)
    return status


def woken_status(raw: dict[str, Any], now: datetime) -> dict[str, Any] | None:
    """Back into the queue after a hold or a deactivation."""
    status = _status(raw)
    if status.get("admission"):
        return None
    changed = False
    reserved = _condition(status, "QuotaReserved") or {}
    if reserved.get("reason") == "OnHold":
        _set(raw, status, "QuotaReserved", False, "Pending", "Waits for quota", now)
        changed = True
    requeued = _condition(status, "Requeued") or {}
    if requeued.get("status") == "False" and requeued.get("reason") not in (
        "Deactivated",
        "PodsReadyTimeout",
    ):
        _set(raw, status, "Requeued", True, "Reactivated", "Waits for quota", now)
        changed = True
    return status if changed else None


def finished_status(
    raw: dict[str, Any], reason: str, message: str, now: datetime
) -> dict[str, Any] | None:
    """Finished=True: the quota is free for good, the admission stays for the record."""
    status = _status(raw)
    if _true(status, "Finished"):
        return None
    _set(raw, status, "Finished", True, reason, message, now)
    return status


def wants_wake(observed: Observed) -> bool:
    """True when `woken_status` would change the Workload."""
    workload = observed.workload
    if workload is None or workload.status.admission is not None:
        return False
    reserved, requeued = workload.condition("QuotaReserved"), workload.condition("Requeued")
    if reserved is not None and reserved.reason == "OnHold":
        return True
    return (
        requeued is not None
        and requeued.status == "False"
        and requeued.reason not in ("Deactivated", "PodsReadyTimeout")
    )


def _status(raw: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(raw.get("status") or {})


def _condition(status: dict[str, Any], kind: str) -> dict[str, Any] | None:
    conditions = status.get("conditions") or []
    return next((found for found in conditions if found.get("type") == kind), None)


def _true(status: dict[str, Any], kind: str) -> bool:
    found = _condition(status, kind)
    return found is not None and found.get("status") == "True"


def _set(
    raw: dict[str, Any],
    status: dict[str, Any],
    kind: str,
    true: bool,
    reason: str,
    message: str,
    now: datetime,
) -> None:
    value = "True" if true else "False"
    conditions = status.setdefault("conditions", [])
    found = _condition(status, kind)
    if found is None:
        found = {"type": kind}
        conditions.append(found)
    if found.get("status") != value or not found.get("lastTransitionTime"):
        found["lastTransitionTime"] = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    # Kueue's CRD allows at most 32768 characters.
    found.update(status=value, reason=reason, message=message[:32_000])
    generation = (raw.get("metadata") or {}).get("generation")
    if generation is not None:
        found["observedGeneration"] = generation
