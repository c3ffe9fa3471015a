"""What an outside owner may change of a Workload and when: the operator's writes rest on each of these."""

import pytest
from support.controlplane_tenant import Tenant, condition, eventually
from support.controlplane_workloads import Workloads, now

from clusterops.api import names
from clusterops.core import workload as writes


@pytest.fixture
def workloads(tenant: Tenant) -> Workloads:
    return Workloads(tenant)


def test_an_owned_workload_is_admitted_within_its_quota(workloads: Workloads) -> None:
    workloads.create("a", gpus=2, count=2)
    workloads.until_admitted("a")
    assigned = workloads.get("a")["status"]["admission"]["podSetAssignments"][0]
    assert assigned["count"] == 2
    assert assigned["flavors"] == {names.RESOURCE_GPU: workloads.tenant.flavor}


def test_with_the_label_of_a_job_but_without_owner_it_is_finished_at_once(
    workloads: Workloads,
) -> None:
    body = workloads.body("orphan")
    del body["metadata"]["ownerReferences"]
    workloads.tenant.plane.send("POST", workloads.path(), body)
    workloads.until(
        lambda: workloads.is_("orphan", "Finished", "OwnerNotFound"), "the orphan to be finished"
    )


def test_pod_sets_are_immutable_while_reserved_and_editable_after_release(
    workloads: Workloads,
) -> None:
    workloads.create("a", gpus=4)
    workloads.until_admitted("a")
    node = {"nodeSelector": {"kubernetes.io/hostname": "another"}}
    pod_sets = workloads.get("a")["spec"]["podSets"]
    pod_sets[0]["template"]["spec"].update(node)
    refused = workloads.patch("a", {"spec": {"podSets": pod_sets}})
    assert refused.status == 403
    assert b"immutable" in refused.content
    assert workloads.patch("a", {"spec": {"queueName": "other"}}).status == 422
    workloads.evict("a")
    assert workloads.patch("a", {"spec": {"podSets": pod_sets}}).status == 403
    workloads.release("a", hold=True)
    eventually(
        lambda: workloads.patch("a", {"spec": {"podSets": pod_sets}}).status == 200,
        "the released pod set to take a node selector",
    )


def test_a_count_may_be_lowered_while_reserved_and_frees_quota_at_once(
    workloads: Workloads,
) -> None:
    workloads.create("a", count=4)
    workloads.until_admitted("a")
    workloads.create("b", count=2, priority=50)
    workloads.until_pending("b")
    assert workloads.resized("a", 2).status == 200
    workloads.until_admitted("b")
    # The admission goes on saying what was admitted; up again it never goes.
    assert workloads.get("a")["status"]["admission"]["podSetAssignments"][0]["count"] == 4
    assert workloads.resized("a", 3).status == 403


def test_partial_admission_takes_what_there_is_and_leaves_the_spec(workloads: Workloads) -> None:
    body = workloads.body("a", count=8)
    body["spec"]["podSets"][0]["minCount"] = 2
    workloads.tenant.plane.send("POST", workloads.path(), body)
    workloads.until_admitted("a")
    found = workloads.get("a")
    assert found["status"]["admission"]["podSetAssignments"][0]["count"] == 4
    assert found["spec"]["podSets"][0]["count"] == 8


def test_deactivation_frees_quota_at_once_and_without_a_window(workloads: Workloads) -> None:
    workloads.create("a", gpus=4)
    workloads.until_admitted("a")
    workloads.create("b", gpus=4, priority=50)
    workloads.until_pending("b")
    workloads.edit("a", active=False)
    workloads.until_admitted("b")
    # Nobody released it: its pods would still be there.
    assert workloads.is_("a", "Evicted", "Deactivated")
    assert workloads.get("a")["status"].get("admission")


def test_priority_is_mutable_while_running_and_lowering_it_invites_preemption(
    workloads: Workloads,
) -> None:
    workloads.create("a", gpus=4, priority=200)
    workloads.until_admitted("a")
    workloads.create("b", gpus=4, priority=100)
    workloads.until_pending("b")
    workloads.edit("a", priority=50)
    workloads.until_evicted("a")


def test_a_changed_class_value_reaches_the_workloads_of_that_class(workloads: Workloads) -> None:
    tenant = workloads.tenant
    name = f"class-{tenant.suffix}"
    path = "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses"
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": 100,
    }
    tenant.plane.send("POST", path, body)
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}
    workloads.create("a", priority=100, priorityClassRef=reference)
    workloads.until_admitted("a")
    headers = {"Content-Type": "application/merge-patch+json"}
    tenant.plane.send("PATCH", f"{path}/{name}", {"value": 150}, headers=headers)
    workloads.until(lambda: workloads.get("a")["spec"]["priority"] == 150, "the new value")
    tenant.plane.send("DELETE", f"{path}/{name}")


@pytest.mark.parametrize(
    ("boost", "status"), [("+5", 200), ("-5", 200), ("5.0", 403), (" 5", 403), ("2147483648", 403)]
)
def test_a_boost_is_a_whole_number_of_32_bits(
    workloads: Workloads, boost: str, status: int
) -> None:
    workloads.create("a", gpus=100)
    annotations = {names.KUEUE_ANNOTATION_PRIORITY_BOOST: boost}
    assert workloads.patch("a", {"metadata": {"annotations": annotations}}).status == status


def test_a_boosted_workload_is_spared_for_an_older_one_of_its_class(workloads: Workloads) -> None:
    workloads.create("older", gpus=2)
    workloads.until_admitted("older")
    boost = {names.KUEUE_ANNOTATION_PRIORITY_BOOST: "500"}
    workloads.create("newer", gpus=2, annotations=boost)
    workloads.until_admitted("newer")
    workloads.create("high", gpus=2, priority=1000)
    workloads.until_evicted("older")
    assert not workloads.is_("newer", "Evicted")


def test_of_two_status_writes_over_the_same_version_one_is_taken(workloads: Workloads) -> None:
    workloads.create("a", gpus=4)
    workloads.until_admitted("a")
    raw = workloads.get("a")
    status = writes.pods_ready_status(raw, now())
    assert status is not None
    assert workloads.put_status(raw, status).status == 200
    assert workloads.put_status(raw, status).status == 409
    blind = {**raw, "metadata": {**raw["metadata"], "resourceVersion": ""}}
    assert workloads.put_status(blind, status).status == 422


def test_the_server_takes_the_release_of_a_running_workload_so_the_guard_must_be_ours(
    workloads: Workloads,
) -> None:
    workloads.create("a", gpus=4)
    workloads.until_admitted("a")
    raw = workloads.get("a")
    assert writes.released_status(raw, False, "must not", 0, now()) is None
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": ""}
    status = raw["status"]
    pretended = {**raw, "status": {**status, "conditions": [*status["conditions"], evicted]}}
    released = writes.released_status(pretended, False, "unevicted", 0, now())
    assert released is not None
    released["conditions"] = [one for one in released["conditions"] if one["type"] != "Evicted"]
    assert workloads.put_status(raw, released).status == 200


def test_a_gate_keeps_it_out_of_the_queue_and_can_only_be_removed(workloads: Workloads) -> None:
    gate = {names.KUEUE_ANNOTATION_ADMISSION_GATED_BY: names.GATE_CHECKPOINT_FIRST}
    workloads.create("victim", gpus=4)
    workloads.until_admitted("victim")
    workloads.create("gated", gpus=4, priority=1000, annotations=gate)
    assert workloads.until_pending("gated")["reason"] == "AdmissionGated"
    workloads.settled("last")
    assert not workloads.is_("victim", "Evicted")
    added = {names.KUEUE_ANNOTATION_ADMISSION_GATED_BY: "clusterops.io/other"}
    refused = workloads.patch("victim", {"metadata": {"annotations": added}})
    assert refused.status == 403
    opened = {names.KUEUE_ANNOTATION_ADMISSION_GATED_BY: None}
    assert workloads.patch("gated", {"metadata": {"annotations": opened}}).status == 200
    workloads.until_evicted("victim")


def test_finishing_frees_quota_at_once_and_keeps_the_admission(workloads: Workloads) -> None:
    workloads.create("a", gpus=4)
    workloads.until_admitted("a")
    workloads.create("b", gpus=4, priority=50)
    workloads.until_pending("b")
    workloads.write("a", lambda raw: writes.finished_status(raw, "Succeeded", "done", now()))
    workloads.until_admitted("b")
    assert workloads.get("a")["status"].get("admission")


def test_our_finalizer_holds_the_quota_while_the_pods_end(workloads: Workloads) -> None:
    body = workloads.body("a", gpus=4)
    body["metadata"]["finalizers"] = [names.FINALIZER_PODS_GONE]
    workloads.tenant.plane.send("POST", workloads.path(), body)
    workloads.until_admitted("a")
    workloads.create("b", gpus=4, priority=50)
    workloads.until_pending("b")
    workloads.delete("a")
    workloads.settled("last")
    assert workloads.holds_quota("a")
    assert not workloads.admitted("b")
    assert workloads.patch("a", {"metadata": {"finalizers": None}}).status == 200
    workloads.until_admitted("b")


def test_a_deleted_local_queue_leaves_runners_and_blocks_what_is_released(
    workloads: Workloads,
) -> None:
    tenant = workloads.tenant
    workloads.create("a", gpus=4)
    workloads.until_admitted("a")
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{tenant.namespace}/localqueues/queue"
    tenant.plane.send("DELETE", path)
    workloads.evict("a")
    workloads.release("a")
    workloads.until(
        lambda: condition(workloads.get("a"), "QuotaReserved").get("reason") == "Inadmissible",
        "the released one to be inadmissible",
    )
    tenant.kueue("LocalQueue", "queue", {"clusterQueue": tenant.cluster_queue}, tenant.namespace)
    workloads.until_admitted("a")
