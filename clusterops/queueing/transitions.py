"""The writes a queue makes on a Workload's status, as functions from one status to the next.

Each takes the raw status and returns a new one; nothing is changed in place. The words and the
fields are Kueue's, so that an owner of Workloads cannot tell the two apart.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from clusterops.scheduling import quantities
from clusterops.scheduling.objects import Admission

Status = Mapping[str, Any]

_LONGEST_MESSAGE = 32 * 1024


def timestamp(now: float) -> str:
    """Epoch seconds as Kubernetes writes times: RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(status: Status, kind: str) -> Mapping[str, Any] | None:
    """The raw condition of a type."""
    return next((each for each in status.get("conditions") or () if each["type"] == kind), None)


def is_true(status: Status, kind: str) -> bool:
    """True when the condition is present and True."""
    found = condition(status, kind)
    return found is not None and found["status"] == "True"


def with_condition(
    status: Status,
    kind: str,
    true: bool,
    reason: str,
    message: str,
    *,
    generation: int,
    now: float,
) -> dict[str, Any]:
    """The status with one condition set; its time changes only when True turns False or back."""
    word = "True" if true else "False"
    fresh = {
        "type": kind,
        "status": word,
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
        "observedGeneration": generation,
        "lastTransitionTime": timestamp(now),
    }
    conditions: list[Mapping[str, Any]] = list(status.get("conditions") or ())
    for index, before in enumerate(conditions):
        if before["type"] == kind:
            if before["status"] == word:
                fresh["lastTransitionTime"] = before.get("lastTransitionTime") or timestamp(now)
            conditions[index] = fresh
            break
    else:
        conditions.append(fresh)
    return {**status, "conditions": conditions}


def without_condition(status: Status, kind: str) -> dict[str, Any]:
    """The status without a condition."""
    rest = [each for each in status.get("conditions") or () if each["type"] != kind]
    return {**status, "conditions": rest}


def admission_json(admission: Admission) -> dict[str, Any]:
    """A reservation as `status.admission`."""
    return {
        "clusterQueue": admission.cluster_queue,
        "podSetAssignments": [
            {
                "name": pods.name,
                "flavors": dict(pods.flavors),
                "resourceUsage": {
                    resource: quantities.show(resource, amount)
                    for resource, amount in pods.usage.items()
                },
                "count": pods.count,
            }
            for pods in admission.assignments
        ],
    }


def reserved(
    status: Status, admission: Admission, checks: tuple[str, ...], *, generation: int, now: float
) -> dict[str, Any]:
    """Quota given. Admitted too, unless the queue has admission checks that are not ready yet."""
    message = f"Quota reserved in ClusterQueue {admission.cluster_queue}"
    after = with_condition(
        {**status, "admission": admission_json(admission)},
        "QuotaReserved",
        True,
        "QuotaReserved",
        message,
        generation=generation,
        now=now,
    )
    for kind in ("Evicted", "Preempted"):
        before = condition(after, kind)
        if before is not None and before["status"] == "True":
            after = with_condition(
                after,
                kind,
                False,
                "QuotaReserved",
                f"Previously: {before.get('message') or ''}",
                generation=generation,
                now=now,
            )
    after = with_checks(after, checks, now)
    return synced_admitted(after, generation=generation, now=now)


def with_checks(status: Status, checks: tuple[str, ...], now: float) -> dict[str, Any]:
    """The status with the state of exactly these admission checks, new ones Pending."""
    known = {each["name"]: each for each in status.get("admissionChecks") or ()}
    states = [
        known.get(name)
        or {
            "name": name,
            "state": "Pending",
            "message": "",
            "lastTransitionTime": timestamp(now),
        }
        for name in checks
    ]
    if states == list(status.get("admissionChecks") or ()):
        return dict(status)
    rest = {key: value for key, value in status.items() if key != "admissionChecks"}
    return {**rest, "admissionChecks": states} if states else rest


def synced_admitted(status: Status, *, generation: int, now: float) -> dict[str, Any]:
    """Admitted follows from the reservation and the checks; time spent admitted is added up."""
    holds = is_true(status, "QuotaReserved")
    ready = all(each.get("state") == "Ready" for each in status.get("admissionChecks") or ())
    before = condition(status, "Admitted")
    admitted = before is not None and before["status"] == "True"
    if admitted == (holds and ready):
        return dict(status)
    if holds and ready:
        return with_condition(
            status,
            "Admitted",
            True,
            "Admitted",
            "The workload is admitted",
            generation=generation,
            now=now,
        )
    reason, message = "NoReservation", "The workload has no reservation"
    if not holds and not ready:
        reason = "NoReservationUnsatisfiedChecks"
        message = "The workload has no reservation and not all checks ready"
    elif holds:
        reason, message = "UnsatisfiedChecks", "The workload has not all checks ready"
    assert before is not None
    since = datetime.fromisoformat(before["lastTransitionTime"]).timestamp()
    past = int(status.get("accumulatedPastExecutionTimeSeconds") or 0)
    after = with_condition(
        status, "Admitted", False, reason, message, generation=generation, now=now
    )
    return {**after, "accumulatedPastExecutionTimeSeconds": past + max(0, int(now - since))}


def waiting(
    status: Status, reason: str, message: str, *, generation: int, now: float
) -> dict[str, Any]:
    """No quota: Pending, Inadmissible or AdmissionGated. A reservation that there was is gone."""
    after = with_condition(
        status, "QuotaReserved", False, reason, message, generation=generation, now=now
    )
    after.pop("admission", None)
    return synced_admitted(after, generation=generation, now=now)


def evicted(
    status: Status, reason: str, message: str, *, cause: str = "", generation: int, now: float
) -> dict[str, Any]:
    """Asked to leave. The reservation stays until the owner gives it back.

    A deactivation's cause is part of the condition's reason; the count of evictions keeps it apart.
    """
    shown = f"{reason}DueTo{cause}" if reason == "Deactivated" and cause else reason
    after = with_condition(status, "Evicted", True, shown, message, generation=generation, now=now)
    checks = [
        {
            **each,
            "state": "Pending",
            "message": f"Reset to Pending after eviction. Previously: {each.get('state')}",
            "lastTransitionTime": timestamp(now),
        }
        if each.get("state") != "Pending"
        else each
        for each in status.get("admissionChecks") or ()
    ]
    if checks:
        after["admissionChecks"] = checks
    return _counted(after, reason, cause)


def preempted(
    status: Status, reason: str, message: str, *, generation: int, now: float
) -> dict[str, Any]:
    """Evicted for a more urgent workload, which the message names."""
    after = with_condition(
        status, "Preempted", True, reason, message, generation=generation, now=now
    )
    return evicted(after, "Preempted", message, generation=generation, now=now)


def finished(
    status: Status, reason: str, message: str, *, generation: int, now: float
) -> dict[str, Any]:
    """Over; holds nothing any more although the reservation stays on record."""
    return with_condition(status, "Finished", True, reason, message, generation=generation, now=now)


def requeued(
    status: Status, true: bool, reason: str, message: str, *, generation: int, now: float
) -> dict[str, Any]:
    """Whether the workload may be queued again."""
    return with_condition(status, "Requeued", true, reason, message, generation=generation, now=now)


def without_requeue_time(status: Status) -> dict[str, Any]:
    """Back-off over: the time is gone, the count stays."""
    state = {
        key: value
        for key, value in (status.get("requeueState") or {}).items()
        if key != "requeueAt"
    }
    return {**status, "requeueState": state}


def backed_off(status: Status, base_seconds: float, most_seconds: float, now: float) -> Status:
    """One more failed start counted; back into the queue after twice as long as the last time."""
    count = int((status.get("requeueState") or {}).get("count") or 0) + 1
    delay = min(most_seconds, base_seconds * 2.0 ** min(count - 1, 32))
    return {**status, "requeueState": {"count": count, "requeueAt": timestamp(now + delay)}}


def _counted(status: Status, reason: str, cause: str) -> dict[str, Any]:
    """The statistics with one more eviction of this kind."""
    stats = dict(status.get("schedulingStats") or {})
    evictions = [dict(each) for each in stats.get("evictions") or ()]
    for each in evictions:
        if each["reason"] == reason and (each.get("underlyingCause") or "") == cause:
            each["count"] = int(each.get("count") or 0) + 1
            break
    else:
        evictions.append({"reason": reason, "underlyingCause": cause, "count": 1})
    return {**status, "schedulingStats": {**stats, "evictions": evictions}}
