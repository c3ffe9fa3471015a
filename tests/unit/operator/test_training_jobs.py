"""Whole lives in virtual time: the controller, the applier and the endpoint together."""

from typing import Any

import pytest
from support.operator_trainers import gets_term
from support.operator_world import NAMESPACE, World

from clusterops.api import names
from clusterops.api.reasons import Cause, Phase, WaitReason
from clusterops.kube.errors import Forbidden


@pytest.fixture
def world() -> World:
    made = World(7)
    made.lag = False
    return made


def status(world: World, name: str) -> Any:
    job = world.job(name)
    assert job is not None
    return job.status


async def test_all_victims_of_one_preemptor_release_at_the_same_instant(world: World) -> None:
    released: dict[str, float] = {}

    def note(plural: str, before: Any, after: Any) -> None:
        if plural == "workloads" and before and after:
            held, holds = "admission" in before.get("status", {}), "admission" in after["status"]
            if held and not holds:
                released[after["metadata"]["labels"][names.LABEL_JOB]] = world.clock.seconds

    world.server.on_change.append(note)
    world.submit("quick", save_seconds=0.5, total=200)
    world.submit("slow", save_seconds=12.0, total=200)
    await world.run(8)
    world.submit("urgent", priority="urgent", replicas=2, gpus=4, total=10)
    await world.run(9)
    assert status(world, "quick").phase is Phase.REQUEUED
    assert status(world, "quick").reason == WaitReason.WAITING_FOR_OTHER_VICTIMS
    await world.run(20)
    assert set(released) == {"quick", "slow"}
    assert abs(released["quick"] - released["slow"]) <= 1.5
    assert [status(world, job).attempts[0].lost_steps for job in ("quick", "slow")] == [0, 0]
    await world.until_final("quick", "slow", "urgent", within=900)


@pytest.mark.parametrize("obeys", [True, False])
async def test_pods_of_a_preempted_attempt_stay_for_their_logs(world: World, obeys: bool) -> None:
    world.submit("victim", total=200, heartbeats=False, save_seconds=2.0 if obeys else 1000.0)
    await world.run(8)
    world.submit("urgent", priority="urgent", replicas=2, gpus=4, total=5)
    await world.until_final("urgent", within=120)
    first = {names.LABEL_JOB: "victim", names.LABEL_ATTEMPT: "1"}
    kept = [
        pod
        for pod in world.server.all("pods")
        if first.items() <= pod["metadata"]["labels"].items()
    ]
    codes = [pod["status"]["containerStatuses"][0]["state"]["terminated"] for pod in kept]
    assert [code["exitCode"] for code in codes] == ([143, 143] if obeys else [137, 137])
    assert status(world, "victim").attempts[0].cause is Cause.PREEMPTED


async def test_where_pods_may_not_be_changed_they_are_deleted_at_their_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = world.client.patch

    async def forbidding(resource: Any, *where: Any, **how: Any) -> Any:
        if resource is names.PODS:
            raise Forbidden(403, "Forbidden", "cannot patch pods")
        return await patch(resource, *where, **how)

    monkeypatch.setattr(world.client, "patch", forbidding)
    world.submit("job", total=200, heartbeats=False)
    await world.run(8)
    world.edit("job", stop="Checkpoint")
    await world.until_final("job", within=60)
    assert status(world, "job").phase is Phase.CANCELLED
    assert world.server.all("pods") == []


async def test_a_port_that_somebody_else_holds_is_a_failed_start_and_another_is_tried(
    world: World,
) -> None:
    world.submit("job", replicas=1, total=20)
    await world.run(4)
    first = status(world, "job").master_port
    (pod,) = world.server.all("pods")
    world._pod_status(pod, "Failed", 75)
    await world.run(3)
    assert status(world, "job").attempts[0].cause is Cause.START_FAILED
    assert status(world, "job").reason == WaitReason.BACKING_OFF
    await world.run(15)
    assert status(world, "job").attempt == 2
    assert status(world, "job").master_port != first
    await world.until_final("job", within=200)
    assert status(world, "job").counts.user_errors == 0


async def test_a_lost_node_restarts_the_job_elsewhere_without_charging_the_user(
    world: World,
) -> None:
    world.submit("job", replicas=2, total=100, backoffLimit=0)
    await world.run(8)
    node = world.server.all("pods")[0]["spec"]["nodeName"]
    world.node_ready(node, False)
    await world.until_final("job", within=400)
    assert status(world, "job").phase is Phase.SUCCEEDED
    assert status(world, "job").counts.faults >= 1
    assert status(world, "job").counts.user_errors == 0


async def test_what_the_server_refuses_is_told_in_the_status_and_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = world.client.create

    async def forbidding(resource: Any, obj: Any) -> Any:
        if resource is names.PODS:
            raise Forbidden(403, "Forbidden", 'violates PodSecurity "restricted"\x1b[31m')
        return await create(resource, obj)

    monkeypatch.setattr(world.client, "create", forbidding)
    world.submit("job", replicas=1, total=5)
    await world.run(6)
    attempt = status(world, "job").attempts[0]
    assert attempt.cause is Cause.START_FAILED
    assert "PodSecurity" in attempt.message
    assert "\x1b" not in attempt.message
    assert status(world, "job").reason == WaitReason.BACKING_OFF
    monkeypatch.setattr(world.client, "create", create)
    await world.until_final("job", within=200)
    assert status(world, "job").phase is Phase.SUCCEEDED


async def test_a_refused_workload_leaves_the_job_waiting_with_the_words(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forbidding(resource: Any, obj: Any) -> Any:
        raise Forbidden(403, "Forbidden", "denied by vworkload.kb.io")

    monkeypatch.setattr(world.client, "create", forbidding)
    world.submit("job")
    await world.run(4)
    assert status(world, "job").reason == WaitReason.STUCK
    assert "vworkload.kb.io" in status(world, "job").message
    writes = len(world.server.log["trainingjobs"])
    await world.run(50)
    assert len(world.server.log["trainingjobs"]) == writes, "said once, not again and again"


async def test_a_deleted_job_saves_ends_its_pods_and_only_then_goes(world: World) -> None:
    world.submit("job", total=200)
    await world.run(8)
    world.delete("job")
    await world.run(1)
    assert world.laws.alive("job")
    await world.run(20)
    assert world.job("job") is None
    assert world.workload("job") is None
    assert not world.server.all("pods")
    assert world.trainers[("job", 1)].saved_for_notice


async def test_stop_now_leaves_no_time_to_save(world: World) -> None:
    world.submit("job", total=200, save_seconds=100)
    await world.run(8)
    world.edit("job", stop="Now")
    await world.until_final("job", within=60)
    assert status(world, "job").phase is Phase.CANCELLED
    assert not world.trainers[("job", 1)].saved_for_notice


async def test_only_pods_of_the_last_three_attempts_are_kept(world: World) -> None:
    fails = dict.fromkeys(range(1, 5), 3)
    world.submit("job", replicas=1, total=10, fail_at=fails, backoffLimit=9)
    world.plans["job"]["fail_at"] = fails
    await world.until_final("job", within=900)
    assert status(world, "job").attempt == 5
    assert status(world, "job").counts.user_errors == 4
    kept = {pod["metadata"]["labels"][names.LABEL_ATTEMPT] for pod in world.server.all("pods")}
    assert kept == {"3", "4", "5"}


async def test_running_time_counts_over_attempts_and_ends_the_job(world: World) -> None:
    world.submit("job", total=1000, activeDeadlineSeconds=30)
    await world.run(15)
    world.edit("job", suspend=True)
    await world.run(60)
    world.edit("job", suspend=False)
    await world.until_final("job", within=60)
    assert status(world, "job").phase is Phase.FAILED
    assert status(world, "job").reason == Cause.DEADLINE_EXCEEDED
    assert 29 <= status(world, "job").ran_seconds <= 45


async def test_a_job_without_heartbeats_gets_term_and_its_window(world: World) -> None:
    world.submit("job", heartbeats=False, total=200, save_seconds=3)
    await world.run(8)
    world.edit("job", suspend=True)
    await world.run(2)
    alive = world.laws.alive("job")
    assert alive
    assert all(gets_term(pod) for pod in alive)
    await world.run(20)
    assert status(world, "job").phase is Phase.SUSPENDED
    assert world.durable["job"] > 0


async def test_a_foreign_pod_of_the_same_name_is_named(world: World) -> None:
    foreign = {
        "metadata": {"namespace": NAMESPACE, "name": "job-1-0", "labels": {}},
        "spec": {},
        "status": {"phase": "Succeeded"},
    }
    world.server.on_change.remove(world.laws._check)
    world.server.create("pods", foreign)
    world._nodes = lambda: None  # type: ignore[method-assign]
    world._train = lambda: None  # type: ignore[method-assign]
    world.submit("job", replicas=1)
    await world.run(5)
    assert status(world, "job").attempts[0].cause is Cause.START_FAILED
    assert "does not belong" in status(world, "job").attempts[0].message


async def test_pods_that_are_only_not_seen_yet_are_not_taken_for_deleted(world: World) -> None:
    world.submit("job", total=200)
    await world.run(8)
    for key in world.stores.pods.keys():  # noqa: SIM118 - a store is no mapping
        world.stores.pods.remove(key)
    await world.controller.reconcile((NAMESPACE, "job"))
    assert status(world, "job").open_attempt.cause is None


async def test_an_outdated_view_of_job_and_workload_starts_no_pods(world: World) -> None:
    admitted: dict[str, Any] = {}

    def keep(plural: str, before: Any, after: Any) -> None:
        if (
            plural == "trainingjobs"
            and after
            and after.get("status", {}).get("phase") == "Admitted"
        ):
            admitted.setdefault("job", after)
        if plural == "workloads" and after and "admission" in after.get("status", {}):
            admitted.setdefault("workload", after)

    world.server.on_change.append(keep)
    world.submit("job", total=200)
    await world.run(8)
    world.edit("job", suspend=True)
    await world.run(20)
    assert status(world, "job").phase is Phase.SUSPENDED
    pods = len(world.server.log["pods"])
    for plural, kind in (("trainingjobs", "job"), ("workloads", "workload")):
        raw = admitted[kind]
        world._see(plural, (NAMESPACE, raw["metadata"]["name"]), raw)
    for key in world.stores.pods.keys():  # noqa: SIM118
        world.stores.pods.remove(key)
    await world.controller.reconcile((NAMESPACE, "job"))
    assert len(world.server.log["pods"]) == pods
    assert status(world, "job").attempt == 1
