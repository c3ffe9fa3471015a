"""The event recorder: counts repetitions, limits itself, never makes anybody wait."""

import asyncio
from datetime import UTC, datetime, timedelta

from support.kube_cluster import FakeCluster, FakeTransport, status_answer
from support.kube_virtual_time import run, settle

from clusterops.kube.client import Client
from clusterops.kube.errors import Unreachable
from clusterops.kube.events import EventRecorder

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


def wall():
    return EPOCH + timedelta(seconds=asyncio.get_running_loop().time() - 1000)


def subject(name="job", namespace="ns"):
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7"}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": "example.org/v1", "kind": "Widget", "metadata": metadata}


class Desk:
    def __init__(self, **options):
        self.cluster = FakeCluster()
        self.transport = FakeTransport(self.cluster)
        self.recorder = EventRecorder(Client(self.transport), "tester", wall_now=wall, **options)

    async def __aenter__(self):
        self.task = asyncio.create_task(self.recorder.run())
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def stored(self):
        return list(self.cluster.content("events").values())


def test_an_event_says_who_what_and_when():
    async def scenario():
        async with Desk(instance="host-1") as desk:
            await settle(10)
            desk.recorder.record(subject(), "Warning", "Evicted", "made room for llm-7b")
            assert await desk.recorder.flush(5)
            (event,) = desk.stored()
            assert event["involvedObject"] == {
                "apiVersion": "example.org/v1",
                "kind": "Widget",
                "name": "job",
                "namespace": "ns",
                "uid": "uid-job",
                "resourceVersion": "7",
            }
            assert (event["type"], event["reason"]) == ("Warning", "Evicted")
            assert event["message"] == "made room for llm-7b"
            assert event["firstTimestamp"] == event["lastTimestamp"] == "2030-01-01T00:00:10Z"
            assert event["count"] == 1
            assert event["source"] == {"component": "tester"}
            assert event["reportingInstance"] == "host-1"

    run(scenario())


def test_the_same_event_is_counted_not_repeated():
    async def scenario():
        async with Desk() as desk:
            for _ in range(3):
                desk.recorder.record(subject(), "Normal", "Waiting", "for quota")
            await desk.recorder.flush(5)
            await settle(60)
            desk.recorder.record(subject(), "Normal", "Waiting", "for quota")
            desk.recorder.record(subject(), "Normal", "Waiting", "for something else")
            await desk.recorder.flush(5)
            counts = {event["message"]: event["count"] for event in desk.stored()}
            assert counts == {"for quota": 4, "for something else": 1}
            first = next(e for e in desk.stored() if e["count"] == 4)
            assert first["firstTimestamp"] < first["lastTimestamp"]
            assert desk.recorder.counts().sent == 5

    run(scenario())


def test_an_event_that_the_server_let_expire_is_made_anew():
    async def scenario():
        async with Desk() as desk:
            desk.recorder.record(subject(), "Normal", "A", "m")
            await desk.recorder.flush(5)
            name = desk.stored()[0]["metadata"]["name"]
            desk.cluster.remove("events", "ns", name)
            desk.recorder.record(subject(), "Normal", "A", "m")
            await desk.recorder.flush(5)
            assert [event["count"] for event in desk.stored()] == [1]

    run(scenario())


def test_events_about_cluster_scoped_objects_live_in_default():
    async def scenario():
        async with Desk() as desk:
            desk.recorder.record(subject("node-1", ""), "Normal", "A", "m")
            await desk.recorder.flush(5)
            assert desk.stored()[0]["metadata"]["namespace"] == "default"
            assert "namespace" not in desk.stored()[0]["involvedObject"]

    run(scenario())


def test_one_noisy_object_cannot_drown_the_others():
    async def scenario():
        async with Desk() as desk:
            for number in range(60):
                desk.recorder.record(subject("noisy"), "Normal", "A", f"message {number}")
            desk.recorder.record(subject("quiet"), "Normal", "A", "once")
            assert await desk.recorder.flush(60)
            by_name = [event["involvedObject"]["name"] for event in desk.stored()]
            assert by_name.count("noisy") == 25
            assert by_name.count("quiet") == 1
            assert desk.recorder.counts().suppressed == 35
            await settle(301)
            desk.recorder.record(subject("noisy"), "Normal", "A", "message 0")
            await desk.recorder.flush(5)
            assert max(event["count"] for event in desk.stored()) == 2

    run(scenario())


def test_a_full_queue_drops_and_counts_and_record_never_waits():
    async def scenario():
        desk = Desk(capacity=10)
        for number in range(15):
            desk.recorder.record(subject(f"j{number}"), "Normal", "A", "m")
        assert desk.recorder.counts().dropped == 5
        assert not await desk.recorder.flush(1)
        async with desk:
            assert await desk.recorder.flush(30)
            assert len(desk.stored()) == 10

    run(scenario())


def test_a_server_that_refuses_or_is_away_costs_events_only():
    async def scenario():
        async with Desk() as desk:
            desk.transport.script.append(status_answer(403, "Forbidden", "namespace terminating"))
            desk.transport.script.append(Unreachable("refused"))
            desk.recorder.record(subject("a"), "Normal", "A", "m")
            desk.recorder.record(subject("b"), "Normal", "A", "m")
            desk.recorder.record(subject("c"), "Normal", "A", "m")
            assert await desk.recorder.flush(60)
            assert [e["involvedObject"]["name"] for e in desk.stored()] == ["c"]
            assert desk.recorder.counts().failed == 2

    run(scenario())


def test_a_long_message_is_cut_and_a_long_name_still_fits():
    async def scenario():
        async with Desk() as desk:
            desk.recorder.record(subject("n" * 253), "Normal", "A", "x" * 5000)
            await desk.recorder.flush(5)
            (event,) = desk.stored()
            assert len(event["message"]) == 1024
            assert len(event["metadata"]["name"]) <= 253

    run(scenario())


def test_events_of_one_second_are_listed_in_the_order_in_which_they_happened():
    async def scenario():
        async with Desk() as desk:
            for reason in ("Admitted", "Running", "Completed", "Archived"):
                desk.recorder.record(subject(), "Normal", reason, "it is so")
            assert await desk.recorder.flush(5)
            by_name = sorted(desk.stored(), key=lambda event: event["metadata"]["name"])
            reasons = [event["reason"] for event in by_name]
            assert reasons == ["Admitted", "Running", "Completed", "Archived"]

    run(scenario())
