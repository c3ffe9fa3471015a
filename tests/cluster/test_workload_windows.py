"""Between eviction and release: who waits, who cannot steal, and how a window ends without a release."""

from datetime import timedelta
from typing import Any

import pytest
from support.controlplane_tenant import Tenant, condition
from support.controlplane_workloads import Workloads, now

from clusterops.core import workload as writes


@pytest.fixture
def workloads(tenant: Tenant) -> Workloads:
    return Workloads(tenant)


@pytest.fixture
def window(workloads: Workloads) -> Workloads:
    """Two victims of two GPUs each, and the preemptor that needs both."""
    workloads.create("victim-1", gpus=2)
    workloads.create("victim-2", gpus=2)
    workloads.until_admitted("victim-1", "victim-2")
    workloads.create("preemptor", gpus=4, priority=1000)
    workloads.until_evicted("victim-1")
    workloads.until_evicted("victim-2")
    return workloads


def test_an_evicted_victim_keeps_its_quota_until_it_is_released(window: Workloads) -> None:
    preempted = condition(window.get("victim-1"), "Preempted")
    assert preempted["reason"] == "InClusterQueue"
    assert window.get("preemptor")["metadata"]["uid"] in preempted["message"]
    window.settled("last")
    assert window.holds_quota("victim-1")
    assert not window.admitted("preemptor")


def test_one_status_write_releases_and_the_victim_queues_again(window: Workloads) -> None:
    window.release("victim-1")
    window.release("victim-2")
    window.until_admitted("preemptor")
    for name in ("victim-1", "victim-2"):
        assert not window.get(name)["status"].get("admission")
        assert window.is_(name, "Requeued", "Preempted")
    window.write("preemptor", lambda raw: writes.finished_status(raw, "Succeeded", "done", now()))
    window.until_admitted("victim-1", "victim-2")


def test_what_one_victim_freed_is_not_stolen_by_who_comes_below_the_preemptor(
    window: Workloads,
) -> None:
    window.release("victim-1")
    window.create("newcomer", gpus=2, priority=500)
    window.settled("last")
    assert not window.admitted("newcomer")
    assert not window.admitted("victim-1")
    window.release("victim-2")
    window.until_admitted("preemptor")
    assert not window.admitted("newcomer")


def test_a_window_whose_preemptor_is_gone_stays_open_until_it_is_cancelled(
    window: Workloads,
) -> None:
    window.delete("preemptor")
    window.settled("last")
    for name in ("victim-1", "victim-2"):
        assert window.is_(name, "Evicted")
        window.go_on(name)
    window.settled("later")
    for name in ("victim-1", "victim-2"):
        assert window.admitted(name)
        assert not window.is_(name, "Evicted")
    assert window.used() == 4
    # And such a job can be a victim again.
    window.create("another", gpus=4, priority=1000)
    window.until_evicted("victim-1")


def test_a_cancelled_eviction_is_repeated_while_the_preemptor_waits(window: Workloads) -> None:
    since = condition(window.get("victim-1"), "Evicted")["reason"]
    window.go_on("victim-1")
    window.until_evicted("victim-1", since)


def test_a_victim_that_shrinks_within_its_window_goes_on(workloads: Workloads) -> None:
    workloads.create("elastic", count=4)
    workloads.until_admitted("elastic")
    workloads.create("preemptor", count=2, priority=1000)
    workloads.until_evicted("elastic")
    assert workloads.resized("elastic", 2).status == 200
    workloads.until_admitted("preemptor")
    # Kueue leaves the eviction standing: with the preemptor in, its owner takes it back.
    workloads.go_on("elastic")
    workloads.settled("last")
    assert workloads.admitted("elastic")
    assert not workloads.is_("elastic", "Evicted")
    assert workloads.used() == 4


def test_a_victim_that_finishes_within_its_window_frees_its_quota(workloads: Workloads) -> None:
    workloads.create("a", gpus=4)
    workloads.until_admitted("a")
    workloads.create("b", gpus=4, priority=1000)
    workloads.until_evicted("a")
    workloads.write("a", lambda raw: writes.finished_status(raw, "Succeeded", "done", now()))
    workloads.until_admitted("b")


def test_an_eviction_of_ours_holds_the_quota(workloads: Workloads) -> None:
    workloads.create("a", gpus=4)
    workloads.until_admitted("a")
    workloads.evict("a", "NodeFailures")
    workloads.create("b", gpus=4, priority=50)
    workloads.until_pending("b")
    assert workloads.holds_quota("a")


def test_on_hold_survives_edits_and_ends_when_it_is_taken_back(workloads: Workloads) -> None:
    workloads.create("a", gpus=4)
    workloads.until_admitted("a")
    workloads.evict("a")
    workloads.release("a", hold=True)
    pod_sets = workloads.get("a")["spec"]["podSets"]
    pod_sets[0]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}

    def edited() -> bool:
        return workloads.patch("a", {"spec": {"podSets": pod_sets}}).status == 200

    workloads.until(edited, "the edit")
    workloads.settled("last")
    assert condition(workloads.get("a"), "QuotaReserved")["reason"] == "OnHold"
    workloads.write("a", lambda raw: writes.woken_status(raw, now()))
    workloads.until_admitted("a")


def test_a_pending_workload_can_be_held_before_it_ever_ran(workloads: Workloads) -> None:
    workloads.create("a", gpus=4)
    workloads.until_admitted("a")
    workloads.create("b", gpus=4, priority=50)
    workloads.until_pending("b")
    workloads.write("b", lambda raw: writes.held_status(raw, "a gate put on later", now()))
    workloads.write("a", lambda raw: writes.finished_status(raw, "Succeeded", "done", now()))
    workloads.settled("last")
    assert not workloads.admitted("b")
    workloads.write("b", lambda raw: writes.woken_status(raw, now()))
    workloads.until_admitted("b")


def test_pods_that_are_never_ready_are_evicted_after_half_an_hour(
    workloads: Workloads,
) -> None:
    workloads.create("a", gpus=4)
    workloads.until_admitted("a")
    workloads.write("a", lambda raw: admitted_ago(raw, timedelta(minutes=29)))
    workloads.settled("last")
    assert not workloads.is_("a", "Evicted")
    workloads.write("a", lambda raw: admitted_ago(raw, timedelta(minutes=31)))
    workloads.until_evicted("a", "PodsReadyTimeout")
    status = workloads.get("a")["status"]
    assert status["requeueState"]["count"] == 1
    assert status.get("admission"), "the quota is its owner's to give back"
    assert condition(workloads.get("a"), "PodsReady") == {}, "Kueue never writes it"
    released = workloads.release("a")
    # Kueue's own back-off: it turns this True when it is over.
    requeued = condition(released, "Requeued")
    assert (requeued["status"], requeued["reason"]) == ("False", "PodsReadyTimeout")


def test_a_cut_quota_evicts_nobody(workloads: Workloads) -> None:
    tenant = workloads.tenant
    workloads.create("a", gpus=4)
    workloads.until_admitted("a")
    path = f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{tenant.cluster_queue}"
    patch = {"spec": {"resourceGroups": [tenant.group(2)]}}
    headers = {"Content-Type": "application/merge-patch+json"}
    tenant.plane.send("PATCH", path, patch, headers=headers)
    workloads.settled("last")
    assert workloads.admitted("a")
    assert not workloads.is_("a", "Evicted")
    # The next high job pays for all of it.
    workloads.create("b", gpus=2, priority=1000)
    workloads.until_evicted("a")


def test_a_stopped_queue_holds_pending_ones_and_drains_running_ones_when_told(
    workloads: Workloads,
) -> None:
    tenant = workloads.tenant
    workloads.create("a", gpus=4)
    workloads.until_admitted("a")
    path = f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{tenant.cluster_queue}"
    headers = {"Content-Type": "application/merge-patch+json"}
    tenant.plane.send("PATCH", path, {"spec": {"stopPolicy": "Hold"}}, headers=headers)
    workloads.create("b", gpus=1, priority=50)
    workloads.until(
        lambda: condition(workloads.get("b"), "QuotaReserved").get("reason") == "Inadmissible",
        "the pending one to be inadmissible",
    )
    assert not workloads.is_("a", "Evicted")
    tenant.plane.send("PATCH", path, {"spec": {"stopPolicy": "HoldAndDrain"}}, headers=headers)
    workloads.until_evicted("a", "ClusterQueueStopped")
    assert workloads.get("a")["status"].get("admission")


def admitted_ago(raw: dict[str, Any], ago: timedelta) -> dict[str, Any]:
    """The status, as if it had been admitted so long ago."""
    then = (now() - ago).strftime("%Y-%m-%dT%H:%M:%SZ")
    status: dict[str, Any] = raw["status"]
    return {
        **status,
        "conditions": [
            {**one, "lastTransitionTime": then} if one["type"] == "Admitted" else one
            for one in status["conditions"]
        ],
    }
