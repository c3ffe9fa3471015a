"""What a Workload needs apart from the choice who runs: the first thing due, one row each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from support.scheduling_world import queue, world

from clusterops.queueing import lifecycle, transitions
from clusterops.queueing.lifecycle import KUEUE_DEFAULTS, Step, Timing
from clusterops.scheduling import parse
from clusterops.scheduling.objects import (
    Admission,
    ClusterQueue,
    LocalQueue,
    PodSetAssignment,
)

NOW = 100_000.0
GPU = "nvidia.com/gpu"
ADMISSION = Admission("cq", (PodSetAssignment("main", 1, {GPU: "default"}, {GPU: 1}),))
AT: Any = {"generation": 1, "now": NOW}


def raw(status: Any = None, *, owned: bool = True, gates: str = "", **spec: Any) -> dict[str, Any]:
    container = {"resources": {"limits": {GPU: 1}}}
    template = {"spec": {"containers": [container]}}
    metadata: dict[str, Any] = {
        "namespace": "ns",
        "name": "w",
        "uid": "u",
        "generation": 1,
        "labels": {"kueue.x-k8s.io/job-uid": "j"},
    }
    if owned:
        metadata["ownerReferences"] = [{"uid": "o"}]
    if gates:
        metadata["annotations"] = {"kueue.x-k8s.io/admission-gated-by": gates}
    return {
        "metadata": metadata,
        "spec": {"queueName": "cq", "podSets": [{"count": 1, "template": template}], **spec},
        "status": status or {},
    }


def reserved(ago: float = 0.0, checks: tuple[str, ...] = ()) -> Any:
    return transitions.reserved({}, ADMISSION, checks, generation=1, now=NOW - ago)


def with_ready(status: Any, true: bool, reason: str, ago: float = 0.0) -> Any:
    return transitions.with_condition(
        status, "PodsReady", true, reason, "", generation=1, now=NOW - ago
    )


def requeued(reason: str, status: Any = None) -> Any:
    return transitions.requeued(status or {}, False, reason, "", **AT)


def marked(status: Any) -> Any:
    return transitions.with_condition(
        status, "DeactivationTarget", True, "RequeuingLimitExceeded", "too many", **AT
    )


def step(
    obj: dict[str, Any],
    *,
    cluster_queue: ClusterQueue | None = None,
    local: LocalQueue | None = None,
    timing: Timing = KUEUE_DEFAULTS,
    checks: Any = None,
) -> Step:
    where = world(
        [cluster_queue or queue()],
        [],
        local_queues=[local or LocalQueue("ns", "cq", "cq")],
        checks=checks,
    )
    return lifecycle.next_step(where, parse.workload(obj), obj["status"], timing, NOW)


class Row(NamedTuple):
    name: str
    obj: dict[str, Any]
    condition: tuple[str, str, str]
    more: Mapping[str, Any] = MappingProxyType({})


WRITES = [
    Row("orphan", raw(owned=False), ("Finished", "True", "OwnerNotFound")),
    Row(
        "deactivated",
        raw(reserved(), active=False),
        ("Evicted", "True", "Deactivated"),
    ),
    Row(
        "deactivated for a cause",
        raw(marked(reserved()), active=False),
        ("Evicted", "True", "DeactivatedDueToRequeuingLimitExceeded"),
    ),
    Row("reactivated", raw(requeued("Deactivated")), ("Requeued", "True", "Reactivated")),
    Row(
        "back-off over",
        raw(
            requeued(
                "PodsReadyTimeout",
                {"requeueState": {"count": 1, "requeueAt": transitions.timestamp(NOW - 1)}},
            )
        ),
        ("Requeued", "True", "BackoffFinished"),
    ),
    Row(
        "LocalQueue started again",
        raw(requeued("LocalQueueStopped")),
        ("Requeued", "True", "LocalQueueRestarted"),
    ),
    Row(
        "ClusterQueue started again",
        raw(requeued("ClusterQueueStopped")),
        ("Requeued", "True", "ClusterQueueRestarted"),
    ),
    Row("gated", raw(gates="g"), ("QuotaReserved", "False", "AdmissionGated")),
    Row(
        "a gate hides a missing queue",
        raw(gates="g", queueName="none"),
        ("QuotaReserved", "False", "AdmissionGated"),
    ),
    Row(
        "gate gone",
        raw(transitions.waiting({}, "AdmissionGated", "", **AT)),
        ("QuotaReserved", "False", "Pending"),
    ),
    Row("no LocalQueue", raw(queueName="none"), ("QuotaReserved", "False", "Inadmissible")),
    Row(
        "LocalQueue held",
        raw(),
        ("QuotaReserved", "False", "Inadmissible"),
        {"local": LocalQueue("ns", "cq", "cq", "Hold")},
    ),
    Row(
        "a stopped queue overwrites OnHold",
        raw(transitions.waiting({}, "OnHold", "", **AT)),
        ("QuotaReserved", "False", "Inadmissible"),
        {"cluster_queue": queue(stop="Hold")},
    ),
    Row(
        "LocalQueue drained",
        raw(reserved()),
        ("Evicted", "True", "LocalQueueStopped"),
        {"local": LocalQueue("ns", "cq", "cq", "HoldAndDrain")},
    ),
    Row(
        "ClusterQueue drained",
        raw(reserved()),
        ("Evicted", "True", "ClusterQueueStopped"),
        {"cluster_queue": queue(stop="HoldAndDrain")},
    ),
    Row(
        "a reservation that waits for checks loses it when the queue stops",
        raw(reserved(checks=("c",))),
        ("QuotaReserved", "False", "Inadmissible"),
        {"cluster_queue": queue(stop="Hold", admission_checks=("c",)), "checks": {"c": True}},
    ),
    Row(
        "pods never got ready",
        raw(reserved(ago=1800)),
        ("Evicted", "True", "PodsReadyTimeout"),
    ),
    Row(
        "pods did not recover",
        raw(with_ready(reserved(ago=9000), False, "WaitForRecovery", 1800)),
        ("Evicted", "True", "PodsReadyTimeout"),
    ),
    Row(
        "too many starts",
        raw(reserved(ago=1800) | {"requeueState": {"count": 1}}),
        ("DeactivationTarget", "True", "RequeuingLimitExceeded"),
        {"timing": Timing(backoff_limit=1)},
    ),
    Row(
        "ran for too long",
        raw(
            with_ready(reserved(ago=50), True, "Started")
            | {"accumulatedPastExecutionTimeSeconds": 50},
            maximumExecutionTimeSeconds=100,
        ),
        ("DeactivationTarget", "True", "MaximumExecutionTimeExceeded"),
    ),
]


@pytest.mark.parametrize("row", WRITES, ids=lambda row: row.name)
def test_a_write_is_due(row: Row) -> None:
    found = step(row.obj, **row.more)
    assert found.status is not None
    kind, status, reason = row.condition
    written = transitions.condition(found.status, kind)
    assert written is not None
    assert (written["status"], written["reason"]) == (status, reason)


@pytest.mark.parametrize("row", WRITES, ids=lambda row: row.name)
def test_after_the_write_another_step_is_due_or_none_but_never_the_same(row: Row) -> None:
    """Each write brings a workload nearer to rest; a step that repeats would be an endless loop."""
    obj, seen = row.obj, []
    for _ in range(6):
        found = step(obj, **row.more)
        if found.status is None and found.spec is None:
            return
        seen.append((found.status, found.spec))
        assert seen.count(seen[-1]) == 1
        obj = {**obj, "status": found.status or obj["status"]}
        obj["spec"] = {**obj["spec"], **(found.spec or {})}
    raise AssertionError("still writing after six steps")


QUIET = [
    ("waiting", raw(transitions.waiting({}, "Pending", "", **AT)), {}),
    ("new", raw(), {}),
    ("finished", raw(transitions.finished(reserved(), "Succeeded", "", **AT)), {}),
    ("finished orphan", raw(transitions.finished({}, "OwnerNotFound", "", **AT), owned=False), {}),
    ("gated and said so", raw(transitions.waiting({}, "AdmissionGated", "", **AT), gates="g"), {}),
    ("on hold", raw(transitions.waiting({}, "OnHold", "", **AT)), {}),
    (
        "running in a held queue",
        raw(with_ready(reserved(), True, "Started")),
        {"cluster_queue": queue(stop="Hold")},
    ),
    (
        "evicted and still holding in a drained queue",
        raw(transitions.evicted(reserved(), "ClusterQueueStopped", "", **AT)),
        {"cluster_queue": queue(stop="HoldAndDrain")},
    ),
    (
        "evicted workloads are not timed",
        raw(transitions.evicted(reserved(ago=9999), "Preempted", "", **AT)),
        {},
    ),
    ("ready", raw(with_ready(reserved(ago=9999), True, "Started")), {}),
    ("other reasons are never timed", raw(with_ready(reserved(9999), False, "Else", 9999)), {}),
    (
        "recovery without a limit",
        raw(with_ready(reserved(9999), False, "WaitForRecovery", 9999)),
        {"timing": Timing(recovery_timeout=None)},
    ),
    ("released but left Admitted", raw({"conditions": [
        {"type": "Admitted", "status": "True", "lastTransitionTime": transitions.timestamp(NOW)}
    ]}), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "obj", "more"), QUIET, ids=[row[0] for row in QUIET])
def test_nothing_is_due(name: str, obj: dict[str, Any], more: dict[str, Any]) -> None:
    found = step(obj, **more)
    assert (found.status, found.spec, found.events) == (None, None, ())


def test_marked_for_deactivation_becomes_inactive() -> None:
    assert step(raw(marked(reserved()))).spec == {"active": False}


def test_deactivation_drops_the_back_off() -> None:
    status = reserved() | {"requeueState": {"count": 3}}
    found = step(raw(status, active=False))
    assert found.status is not None
    assert "requeueState" not in found.status
    assert [event.reason for event in found.events] == ["EvictedDueToDeactivated"]


def test_waits_are_looked_at_again_in_time() -> None:
    assert step(raw(reserved(ago=1000))).again_in == 800
    back_off = {"requeueState": {"count": 1, "requeueAt": transitions.timestamp(NOW + 60)}}
    assert step(raw(back_off)).again_in == 60


def test_a_timeout_counts_and_backs_off_from_the_eviction() -> None:
    found = step(raw(reserved(ago=1800) | {"requeueState": {"count": 1}}))
    assert found.status is not None
    assert found.status["requeueState"] == {
        "count": 2,
        "requeueAt": transitions.timestamp(NOW + 120),
    }
    assert found.status["schedulingStats"]["evictions"][0]["underlyingCause"] == "WaitForStart"
    evicted = transitions.condition(found.status, "Evicted")
    assert evicted is not None
    assert evicted["message"] == "Exceeded the PodsReady timeout ns/w"


def test_checks_that_are_ready_admit() -> None:
    status = reserved(checks=("c",))
    status["admissionChecks"][0]["state"] = "Ready"
    found = step(raw(status), cluster_queue=queue(admission_checks=("c",)), checks={"c": True})
    assert found.status is not None
    assert transitions.is_true(found.status, "Admitted")
    assert [event.reason for event in found.events] == ["Admitted"]
