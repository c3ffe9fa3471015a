"""What the cluster knows: ends of jobs and repairs, each told once with the same number for ever."""

import asyncio
import contextlib

import pytest
from support.kube_cluster import FakeCluster, FakeTransport

from clusterops.api import names
from clusterops.kube.client import Client
from clusterops.kube.errors import Unreachable
from clusterops.kube.retry import RetryPolicy
from health.actions import Action
from health.cluster_source import ClusterSource, PodEnd, Repair, pod_end, repaired
from health.events import ActionTaken, Ending, JobEnded, Verified
from health.publisher import Publisher

JOB = {"metadata": {"labels": {names.LABEL_JOB: "llm"}, "uid": "u1"}}


def pod(**status):
    return {
        **JOB,
        "metadata": {**JOB["metadata"], "name": "llm-1-0", "namespace": "r"},
        "status": status,
    }


@pytest.mark.parametrize(
    ("status", "how"),
    [
        ({"phase": "Running"}, None),
        ({"phase": "Succeeded"}, Ending.COMPLETED),
        ({"phase": "Failed"}, Ending.FAILED),
        ({}, None),
    ],
)
def test_a_pods_phase_says_how_its_job_ended(status, how):
    assert pod_end(pod(**status)) == PodEnd("u1", "r/llm", how, None)


def test_a_pod_that_is_being_deleted_was_ended_from_outside():
    found = pod(phase="Running")
    found["metadata"]["deletionTimestamp"] = "2026-11-30T19:00:00Z"
    assert pod_end(found).how is Ending.EVICTED


@pytest.mark.parametrize("finished", ["2026-11-30T19:00:00Z", "nonsense", None, 5])
def test_the_containers_say_when(finished):
    ended = pod_end(pod(containerStatuses=[{"state": {"terminated": {"finishedAt": finished}}}]))
    assert ended.ended_at == (1796065200.0 if finished == "2026-11-30T19:00:00Z" else None)


@pytest.mark.parametrize(
    ("rung", "state", "facts"),
    [
        ("reset_gpu", "Failed", [ActionTaken(Action.RESET_GPU, succeeded=False, incident="i")]),
        ("reboot_node", "Done", [Verified()]),
        ("reboot_node", "Running", []),
        ("restart_app", "Done", []),
        ("nonsense", "Done", []),
    ],
)
def test_a_remediation_that_failed_or_was_verified_is_a_fact(rung, state, facts):
    assert repaired(Repair("i", "b1", rung, state)) == facts


@contextlib.asynccontextmanager
async def following(cluster, told):
    source = ClusterSource(
        Client(FakeTransport(cluster)), "n1", told.append, wall_of_boot=1_750_000_000.0
    )
    task = asyncio.create_task(source.run())
    try:
        yield source
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the source has no event to wait on
            await asyncio.sleep(0.01)


async def test_ends_and_repairs_are_told_and_a_restarted_daemon_tells_the_same_numbers():
    cluster, told = FakeCluster(), []
    cluster.put("pods", "r", "llm-1-0", **pod(phase="Running"))
    cluster.put("nodehealths", "", "n1", spec={})
    async with following(cluster, told):
        await until(lambda: cluster.changed)
        cluster.put("pods", "r", "llm-1-0", **pod(phase="Failed"))
        await until(lambda: told)
        wanted = {"incident": "i", "bootId": "b1", "rung": "reboot_node", "state": "Done"}
        cluster.put("nodehealths", "", "n1", spec={"remediation": wanted})
        await until(lambda: len(told) == 2)
    assert [seen.what for seen in told] == [JobEnded("r/llm", Ending.FAILED), Verified()]
    again: list = []
    async with following(cluster, again):
        await until(lambda: len(again) == 2)
    assert sorted(s.sequence for s in again) == sorted(s.sequence for s in told)


async def test_a_pod_that_vanishes_was_ended_from_outside():
    cluster, told = FakeCluster(), []
    cluster.put("pods", "r", "llm-1-0", **pod(phase="Running"))
    async with following(cluster, told) as source:
        await until(lambda: source._running)
        cluster.remove("pods", "r", "llm-1-0")
        await until(lambda: told)
    assert told[0].what == JobEnded("r/llm", Ending.EVICTED)


STATUS = {"verdict": "Healthy", "heartbeatAt": "t1", "conditions": [
    {"type": "Watching", "status": "True", "lastTransitionTime": "t1"}]}  # fmt: skip


async def test_the_status_is_written_by_itself_and_the_operators_half_left_alone():
    cluster = FakeCluster()
    cluster.put("nodehealths", "", "n1", spec={"remediation": {"incident": "i"}})
    publisher = Publisher(Client(FakeTransport(cluster)), "n1", lambda: STATUS)
    await publisher.write(STATUS)
    later = {**STATUS, "conditions": [{**STATUS["conditions"][0], "lastTransitionTime": "t2"}]}
    await publisher.write(later)
    held = cluster.content("nodehealths")[("", "n1")]
    assert held["spec"] == {"remediation": {"incident": "i"}}
    assert held["status"]["conditions"][0]["lastTransitionTime"] == "t1"


async def test_the_object_is_made_when_it_is_not_there():
    cluster = FakeCluster()
    await Publisher(Client(FakeTransport(cluster)), "n1", lambda: STATUS).write(STATUS)
    assert cluster.content("nodehealths")[("", "n1")]["status"]["verdict"] == "Healthy"


async def test_while_the_server_is_away_the_newest_status_waits():
    cluster = FakeCluster()
    transport = FakeTransport(cluster)
    away = True

    def refuse(method, path):
        if away:
            raise Unreachable("connection refused")

    transport.before = refuse
    status = dict(STATUS)
    quick = RetryPolicy(attempts=1, unreachable_attempts=1, deadline_seconds=1.0)
    publisher = Publisher(Client(transport, retry=quick), "n1", lambda: status)
    task = asyncio.create_task(publisher.run())
    await until(lambda: publisher.failures_in_a_row >= 1)
    status["verdict"] = "RebootNode"
    away = False
    await until(lambda: publisher.writes)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert cluster.content("nodehealths")[("", "n1")]["status"]["verdict"] == "RebootNode"
