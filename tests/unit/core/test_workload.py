"""The Workload of a job, and every write to its status."""

from typing import Any

import pytest
from support.operator_builders import NOW, TEMPLATE, job, workload

from clusterops.api import names
from clusterops.core import workload as workloads


def raw(*true: str, admission: bool = True, **reasons: str) -> dict[str, Any]:
    conditions = [
        {
            "type": k,
            "status": "True",
            "reason": reasons.get(k, k),
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for k in true
    ]
    status: dict[str, Any] = {"conditions": conditions, "other": 1}
    if admission:
        status["admission"] = {"clusterQueue": "cq"}
    return {"metadata": {"generation": 4}, "status": status}


def conditions(status: dict[str, Any] | None) -> dict[str, tuple[str, str]]:
    assert status is not None
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def test_the_workload_is_what_kueue_expects_of_an_outside_owner() -> None:
    made = workloads.desired_workload(job(), 1000)
    metadata, spec = made["metadata"], made["spec"]
    assert metadata["labels"][names.KUEUE_LABEL_JOB_UID] == "uid-a"
    assert metadata["finalizers"] == [names.FINALIZER_PODS_GONE]
    assert metadata["ownerReferences"][0]["controller"] is True
    assert spec["priority"] == 1000
    assert spec["priorityClassRef"] == {
        "group": "kueue.x-k8s.io",
        "kind": "WorkloadPriorityClass",
        "name": "high",
    }
    (pod_set,) = spec["podSets"]
    assert pod_set["count"] == 2
    assert pod_set["template"]["metadata"] == {"labels": {"team": "nlp"}}
    assert pod_set["template"]["spec"]["restartPolicy"] == "Never"


def test_an_elastic_job_says_how_few_pods_it_starts_with() -> None:
    (elastic,) = workloads.pod_sets(job(min_replicas=1))
    assert elastic["minCount"] == 1
    (rigid,) = workloads.pod_sets(job(min_replicas=2))
    assert "minCount" not in rigid


def test_two_jobs_of_one_name_have_different_workloads() -> None:
    import msgspec

    other = job()
    metadata = msgspec.structs.replace(other.metadata, uid="uid-b")
    other = msgspec.structs.replace(other, metadata=metadata)
    assert workloads.workload_name(job()) != workloads.workload_name(other)


def test_a_changed_job_is_followed_as_far_as_kueue_allows() -> None:
    edited = job(replicas=1, queue_name="other", priority_class_name="low")
    waiting = workload(job(), admitted=False)
    patch = workloads.update_patch(edited, waiting, 100)
    assert set(patch["spec"]) == {"priority", "priorityClassRef", "queueName", "podSets"}
    held = workloads.update_patch(edited, workload(job()), 100)
    assert set(held["spec"]) == {"priority", "priorityClassRef"}
    assert workloads.update_patch(job(), workload(job()), 1000) == {}


def test_the_release_is_one_write_with_everything_in_it() -> None:
    status = workloads.released_status(
        raw("QuotaReserved", "Admitted", "PodsReady", "Evicted", Evicted="Preempted"),
        False,
        "m",
        90,
        NOW,
    )
    assert status is not None
    assert "admission" not in status
    assert status["other"] == 1
    assert status["accumulatedPastExecutionTimeSeconds"] == 90
    found = conditions(status)
    assert found["QuotaReserved"] == ("False", "Pending")
    assert found["Admitted"] == ("False", "NoReservation")
    assert found["PodsReady"] == ("False", "WaitForStart")
    assert found["Requeued"] == ("True", "Preempted")
    assert found["Evicted"] == ("True", "Preempted")


def test_a_held_release_stays_out_of_the_queue_and_a_start_timeout_is_kueues_to_end() -> None:
    held = raw("QuotaReserved", "Evicted", Evicted="PodsReadyTimeout")
    found = conditions(workloads.released_status(held, True, "m", 0, NOW))
    assert found["QuotaReserved"] == ("False", "OnHold")
    assert found["Requeued"] == ("False", "PodsReadyTimeout")


@pytest.mark.parametrize(
    "guarded", [raw("QuotaReserved", "Admitted"), raw("Evicted", admission=False)]
)
def test_only_what_is_evicted_and_holds_quota_is_released(guarded: dict[str, Any]) -> None:
    assert workloads.released_status(guarded, False, "m", 0, NOW) is None


def test_writes_are_skipped_when_they_would_change_nothing() -> None:
    assert workloads.evicted_status(raw("Evicted"), "Suspended", "m", NOW) is None
    assert workloads.evicted_status(raw(admission=False), "Suspended", "m", NOW) is None
    assert workloads.cancelled_eviction_status(raw(), "r", "m", NOW) is None
    assert workloads.pods_ready_status(raw("PodsReady"), NOW) is None
    assert workloads.finished_status(raw("Finished"), "Succeeded", "m", NOW) is None
    assert workloads.held_status(raw(), "m", NOW) is None
    assert workloads.woken_status(raw(admission=False), NOW) is None


def test_an_eviction_is_cancelled_in_both_conditions() -> None:
    status = workloads.cancelled_eviction_status(raw("Evicted", "Preempted"), "why", "m", NOW)
    assert conditions(status) == {"Evicted": ("False", "why"), "Preempted": ("False", "why")}


def test_a_hold_ends_and_a_blocked_requeue_is_unblocked() -> None:
    held = workloads.held_status(raw(admission=False), "m", NOW)
    woken = workloads.woken_status({"metadata": {}, "status": held}, NOW)
    assert conditions(woken)["QuotaReserved"] == ("False", "Pending")
    blocked = {"conditions": [{"type": "Requeued", "status": "False", "reason": "Other"}]}
    unblocked = workloads.woken_status({"metadata": {}, "status": blocked}, NOW)
    assert conditions(unblocked)["Requeued"][0] == "True"
    kueues = {"conditions": [{"type": "Requeued", "status": "False", "reason": "Deactivated"}]}
    assert workloads.woken_status({"metadata": {}, "status": kueues}, NOW) is None


def test_the_raw_object_is_not_changed() -> None:
    before = raw("Evicted")
    workloads.released_status(before, False, "m", 1, NOW)
    assert before == raw("Evicted")


def test_gpus_are_counted_once_per_container() -> None:
    resources = {"limits": {names.RESOURCE_GPU: "2"}, "requests": {names.RESOURCE_GPU: 2}}
    containers = [{"name": "a", "resources": resources}, {"name": "b"}]
    assert workloads.gpus_per_pod(job(template={"spec": {"containers": containers}})) == 2
    assert workloads.gpus_per_pod(job(template=TEMPLATE)) == 2
