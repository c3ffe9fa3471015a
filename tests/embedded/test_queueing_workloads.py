"""The queue against the embedded API server: what a Workload's owner sees, as with Kueue."""

from collections.abc import AsyncIterator

import pytest
from support.embedded import EmbeddedServer
from support.scheduling_cluster import GPU, QueueCluster, cluster, eventually, queue_running

from clusterops.api import names

pytestmark = pytest.mark.embedded


@pytest.fixture
async def world(embedded_server: EmbeddedServer, namespace: str) -> AsyncIterator[QueueCluster]:
    """A namespace with 8 GPUs behind LocalQueue `cq`, and the queue running."""
    async with cluster(embedded_server.kubeconfig, namespace) as found:
        await found.flavor()
        await found.queue(8)
        async with queue_running(embedded_server.kubeconfig):
            yield found


async def test_a_workload_that_fits_is_admitted_with_its_flavors(world: QueueCluster) -> None:
    await world.workload("a", 4)
    await world.admitted("a")
    admission = (await world.get("a"))["status"]["admission"]
    assert admission == {
        "clusterQueue": world.cluster_queue_name(),
        "podSetAssignments": [
            {
                "name": "main",
                "flavors": {GPU: world.cluster_queue_name("default")},
                "resourceUsage": {GPU: "4"},
                "count": 1,
            }
        ],
    }
    reserved = await world.condition("a", "QuotaReserved")
    assert reserved["reason"] == "QuotaReserved"
    assert reserved["message"] == f"Quota reserved in ClusterQueue {world.cluster_queue_name()}"
    assert reserved["observedGeneration"] == 1
    await eventually(
        lambda: _has_events(world, "a", {"QuotaReserved", "Admitted"}), "events of the admission"
    )


async def _has_events(world: QueueCluster, name: str, reasons: set[str]) -> bool:
    return reasons <= await world.events(name)


async def test_what_does_not_fit_is_told_what_is_missing(world: QueueCluster) -> None:
    await world.workload("big", 8, priority=5)
    await world.admitted("big")
    await world.workload("late", 4)
    waiting = await world.until("late", "QuotaReserved", "False", "Pending")
    flavor = world.cluster_queue_name("default")
    assert waiting["message"] == (
        "couldn't assign flavors to pod set main: insufficient unused quota for "
        f"nvidia.com/gpu in flavor {flavor}, 4 more needed"
    )


async def test_preemption_holds_quota_until_release_and_then_admits_the_preemptor(
    world: QueueCluster,
) -> None:
    await world.workload("victim", 8)
    await world.admitted("victim")
    preemptor = await world.workload("urgent", 4, priority=10)
    preempted = await world.until("victim", "Preempted", reason="InClusterQueue")
    path = "/" + world.cluster_queue_name()
    assert preempted["message"] == (
        f"Preempted to accommodate a workload (UID: {preemptor['metadata']['uid']}, JobUID: "
        "job-urgent) due to prioritization in the ClusterQueue; "
        f"preemptor path: {path}; preemptee path: {path}"
    )
    assert await world.has("victim", "Evicted", reason="Preempted")
    waiting = await world.until("urgent", "QuotaReserved", "False", "Pending")
    assert waiting["message"].endswith("Pending the preemption of 1 workload(s)")
    victim = await world.get("victim")
    assert "admission" in victim["status"]
    assert await world.has("victim", "Admitted")
    assert victim["status"]["schedulingStats"]["evictions"] == [
        {"reason": "Preempted", "underlyingCause": "", "count": 1}
    ]
    await world.release("victim")
    await world.admitted("urgent")
    await world.until("victim", "QuotaReserved", "False", "Pending")
    # And back again when the urgent one is done.
    await world.set_condition("urgent", "Finished", "True", "Succeeded")
    await world.admitted("victim")
    evicted = await world.condition("victim", "Evicted")
    assert evicted["status"] == "False"
    assert evicted["message"].startswith("Previously: Preempted to accommodate")


async def test_a_cancelled_preemption_lets_the_victim_go_on(world: QueueCluster) -> None:
    await world.workload("victim", 8)
    await world.admitted("victim")
    await world.workload("urgent", 8, priority=10)
    await world.until("victim", "Evicted", reason="Preempted")
    await world.client.delete(names.WORKLOADS, world.namespace, "urgent")
    for kind in ("Evicted", "Preempted"):
        await world.set_condition("victim", kind, "False", "PreemptionCancelled")
    # Still preemptible later, and only then.
    await world.workload("later", 1, priority=20)
    await world.until("victim", "Evicted", reason="Preempted")
    assert "UID: " in (await world.condition("victim", "Preempted"))["message"]


async def test_lowering_the_count_in_the_window_admits_a_smaller_preemptor(
    world: QueueCluster,
) -> None:
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: 1}}}
    pods = {"name": "main", "count": 8, "template": {"spec": {"containers": [container]}}}
    await world.workload("elastic", 1, podSets=[pods])
    await world.admitted("elastic")
    await world.workload("urgent", 4, priority=10)
    await world.until("elastic", "Evicted", reason="Preempted")
    await world.client.patch(
        names.WORKLOADS, world.namespace, "elastic", {"spec": {"podSets": [{**pods, "count": 4}]}}
    )
    await world.admitted("urgent")


async def test_partial_admission_gives_as_many_pods_as_fit(world: QueueCluster) -> None:
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: 1}}}
    pods = {
        "name": "main",
        "count": 12,
        "minCount": 2,
        "template": {"spec": {"containers": [container]}},
    }
    await world.workload("elastic", 1, podSets=[pods])
    await world.admitted("elastic")
    found = await world.get("elastic")
    assert found["status"]["admission"]["podSetAssignments"][0]["count"] == 8
    assert found["spec"]["podSets"][0]["count"] == 12


async def test_deactivation_evicts_and_frees_quota_at_once(world: QueueCluster) -> None:
    await world.workload("running", 8)
    await world.admitted("running")
    await world.workload("next", 8)
    await world.client.patch(
        names.WORKLOADS, world.namespace, "running", {"spec": {"active": False}}
    )
    evicted = await world.until("running", "Evicted", reason="Deactivated")
    assert evicted["message"] == "The workload is deactivated"
    await world.admitted("next")
    assert "admission" in (await world.get("running"))["status"]


async def test_a_gate_keeps_a_workload_out_and_evicts_nobody(world: QueueCluster) -> None:
    await world.workload("running", 8)
    await world.admitted("running")
    gate = {names.KUEUE_ANNOTATION_ADMISSION_GATED_BY: names.GATE_CHECKPOINT_FIRST}
    await world.workload("gated", 8, priority=10, annotations=gate)
    gated = await world.until("gated", "QuotaReserved", "False", "AdmissionGated")
    assert gated["message"] == f"Admission is gated by: {names.GATE_CHECKPOINT_FIRST}"
    assert not await world.has("running", "Evicted")
    patch = {"metadata": {"annotations": {names.KUEUE_ANNOTATION_ADMISSION_GATED_BY: None}}}
    await world.client.patch(names.WORKLOADS, world.namespace, "gated", patch)
    await world.until("running", "Evicted", reason="Preempted")


async def test_on_hold_is_left_alone_until_it_is_pending_again(world: QueueCluster) -> None:
    await world.workload("filler", 8, priority=5)
    await world.admitted("filler")
    await world.workload("held", 4)
    await world.until("held", "QuotaReserved", "False", "Pending")
    await world.set_condition("held", "QuotaReserved", "False", "OnHold")
    await world.set_condition("filler", "Finished", "True", "Succeeded")
    await world.workload("marker", 4)
    await world.admitted("marker")
    assert await world.has("held", "QuotaReserved", "False", "OnHold")
    await world.set_condition("held", "QuotaReserved", "False", "Pending")
    await world.admitted("held")


async def test_missing_queues_are_named_and_their_arrival_is_noticed(world: QueueCluster) -> None:
    await world.workload("early", 2, queue="other")
    missing = await world.until("early", "QuotaReserved", "False", "Inadmissible")
    assert missing["message"] == "LocalQueue other doesn't exist"
    await world.local_queue("other")
    name = world.cluster_queue_name("other")

    async def told_of_the_cluster_queue() -> bool:
        found = await world.condition("early", "QuotaReserved")
        return found["message"] == f"ClusterQueue {name} doesn't exist"

    await eventually(told_of_the_cluster_queue, "the missing ClusterQueue to be named")
    await world.cluster_queue(2, "other", flavor="default")
    await world.admitted("early")


async def test_hold_and_drain_evicts_and_hold_does_not(world: QueueCluster) -> None:
    await world.workload("running", 4)
    await world.admitted("running")
    queue = world.cluster_queue_name()
    await world.client.patch(names.CLUSTER_QUEUES, None, queue, {"spec": {"stopPolicy": "Hold"}})
    await world.workload("next", 1)
    inactive = await world.until("next", "QuotaReserved", "False", "Inadmissible")
    assert inactive["message"] == f"ClusterQueue {queue} is inactive"
    assert not await world.has("running", "Evicted")
    await world.client.patch(
        names.CLUSTER_QUEUES, None, queue, {"spec": {"stopPolicy": "HoldAndDrain"}}
    )
    evicted = await world.until("running", "Evicted", reason="ClusterQueueStopped")
    assert evicted["message"] == "The ClusterQueue is stopped"
    await world.client.patch(names.CLUSTER_QUEUES, None, queue, {"spec": {"stopPolicy": "None"}})
    await world.admitted("next")
    assert await world.has("running", "Evicted", reason="ClusterQueueStopped")


async def test_a_class_value_change_rewrites_the_priority_of_its_workloads(
    world: QueueCluster,
) -> None:
    name = world.cluster_queue_name("class")
    meta = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass"}
    await world.client.create(
        names.WORKLOAD_PRIORITY_CLASSES, {**meta, "metadata": {"name": name}, "value": 100}
    )
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}
    await world.workload("a", 1, priority=100, priorityClassRef=reference)
    await world.admitted("a")
    await world.client.patch(names.WORKLOAD_PRIORITY_CLASSES, None, name, {"value": 700})

    async def rewritten() -> bool:
        return (await world.get("a"))["spec"]["priority"] == 700

    await eventually(rewritten, "spec.priority to follow its class")


async def test_a_workload_whose_owner_is_gone_is_finished(world: QueueCluster) -> None:
    await world.workload("orphan", 1, owner=False)
    finished = await world.until("orphan", "Finished", reason="OwnerNotFound")
    assert finished["message"] == "The workload's owner no longer exists"


async def test_queue_statuses_count_who_waits_and_who_holds_what(world: QueueCluster) -> None:
    await world.workload("a", 6, priority=1)
    await world.admitted("a")
    await world.workload("b", 4)

    async def counted() -> bool:
        queue = await world.client.get(names.CLUSTER_QUEUES, None, world.cluster_queue_name())
        status = queue.get("status") or {}
        counts = [status.get(f"{each}Workloads") for each in ("pending", "reserving", "admitted")]
        return counts == [1, 1, 1]

    await eventually(counted, "the ClusterQueue to count its workloads")
    queue = await world.client.get(names.CLUSTER_QUEUES, None, world.cluster_queue_name())
    (flavor,) = queue["status"]["flavorsUsage"]
    assert flavor["resources"] == [{"name": GPU, "total": "6", "borrowed": "0"}]
    (active,) = queue["status"]["conditions"]
    assert (active["status"], active["reason"]) == ("True", "Ready")
    local = await world.client.get(names.LOCAL_QUEUES, world.namespace, "cq")
    assert local["status"]["admittedWorkloads"] == 1
    assert local["status"]["flavorsUsage"][0]["resources"] == [{"name": GPU, "total": "6"}]
