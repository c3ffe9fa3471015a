"""The reflector: whatever the network does to lists and watches, the store equals the server."""

import asyncio
import logging
import random

import msgspec
import pytest
from support.kube_cluster import WIDGETS, FakeCluster, FakeTransport, status_answer
from support.kube_virtual_time import run, settle, until

from clusterops.kube.client import Client
from clusterops.kube.errors import Unreachable
from clusterops.kube.reflector import Reflector, ReflectorTiming
from clusterops.kube.retry import RetryPolicy
from clusterops.kube.store import Store
from clusterops.kube.wire import ObjectMeta

ONE_TRY = RetryPolicy(attempts=1)


def spec_of(obj):
    return obj["spec"]


class World:
    """A cluster, a reflector on it, and the keys that it told."""

    def __init__(self, *, timing=None, project=spec_of, **options):
        self.cluster = FakeCluster()
        self.transport = FakeTransport(self.cluster)
        self.store = Store()
        self.told = []
        self.reflector = Reflector(
            Client(self.transport, retry=ONE_TRY),
            WIDGETS,
            self.store,
            project,
            self.told.append,
            timing=timing,
            rng=random.Random(7),
            **options,
        )

    async def __aenter__(self):
        self.task = asyncio.create_task(self.reflector.run())
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def put(self, name, spec, namespace="ns"):
        self.cluster.put("widgets", namespace, name, spec=spec)

    @property
    def equal(self):
        truth = {key: obj["spec"] for key, obj in self.cluster.content("widgets").items()}
        return dict(self.store.items()) == truth

    def lists(self):
        return [q for method, _, q in self.transport.requests if method == "GET"]

    def watches(self):
        return [q for method, _, q in self.transport.requests if method == "WATCH"]


def test_a_list_in_pages_and_then_each_event_reach_the_store():
    async def scenario():
        world = World(page_size=3)
        for number in range(10):
            world.put(f"w{number}", number)
        async with world:
            await world.reflector.wait_synced(10)
            assert world.equal
            assert [q["limit"] for q in world.lists()] == ["3"] * 4
            assert sorted(world.told) == [("ns", f"w{n}") for n in range(10)]
            world.told.clear()
            world.put("new", 1)
            world.put("w3", "changed")
            world.cluster.remove("widgets", "ns", "w4")
            await until(lambda: world.equal)
            assert world.told == [("ns", "new"), ("ns", "w3"), ("ns", "w4")]

    run(scenario())


def test_the_watch_asks_for_bookmarks_and_lasts_five_to_ten_minutes():
    async def scenario():
        world = World()
        async with world:
            await settle(3000)
        lasts = [int(q["timeoutSeconds"]) for q in world.watches()]
        assert len(lasts) > 4
        assert all(300 <= seconds <= 600 for seconds in lasts[:3])
        assert len(set(lasts)) > 1
        assert {q["allowWatchBookmarks"] for q in world.watches()} == {"true"}

    run(scenario())


def test_an_ended_watch_resumes_where_it_was_without_a_list():
    async def scenario():
        world = World(timing=ReflectorTiming(relist=1e6))
        async with world:
            await world.reflector.wait_synced(10)
            world.put("a", 1)
            await settle(5000)
            world.put("b", 2)
            await until(lambda: world.equal)
        assert len(world.lists()) == 1
        assert len(world.watches()) > 5

    run(scenario())


def test_bookmarks_move_the_version_so_that_compaction_behind_them_costs_no_list():
    async def scenario():
        world = World(timing=ReflectorTiming(relist=1e6))
        async with world:
            await world.reflector.wait_synced(10)
            world.cluster.put("gadgets", "", "busy", spec=1)  # the version moves without widgets
            await settle(61)
            world.cluster.compact()
            await settle(2000)
        assert len(world.lists()) == 1

    run(scenario())


@pytest.mark.parametrize("when", ["at the start of a watch", "within a watch"])
def test_410_lists_again_and_tells_only_what_differs(when):
    async def scenario():
        world = World()
        for name in ("same", "changes", "goes"):
            world.put(name, 1)
        async with world:
            await world.reflector.wait_synced(10)
            world.told.clear()
            gone = status_answer(410, "Expired", "too old resource version")
            # Nothing of what happens now is seen as an event.
            world.transport.events = lambda _: [{"type": "ERROR", "object": gone.body}]
            world.put("changes", 2)
            world.put("comes", 2)
            world.cluster.remove("widgets", "ns", "goes")
            if when == "at the start of a watch":
                world.transport.events = None
                world.transport.stream_script.extend([gone, gone])
                world.cluster.compact()
            await settle()
            world.transport.events = None
            await until(lambda: world.equal)
            assert sorted(set(world.told)) == [("ns", "changes"), ("ns", "comes"), ("ns", "goes")]
        assert len(world.lists()) >= 2

    run(scenario())


def test_410_between_two_pages_lists_without_pages():
    async def scenario():
        world = World(page_size=2)
        for number in range(5):
            world.put(f"w{number}", number)

        def compact_after_first_page(method, path):
            if len(world.lists()) == 1:
                world.cluster.snapshots.clear()

        world.transport.after = compact_after_first_page
        async with world:
            await world.reflector.wait_synced(10)
            assert world.equal
        assert [q.get("limit") for q in world.lists()] == ["2", "2", None]

    run(scenario())


def test_a_silent_watch_is_left_after_75_to_90_seconds():
    async def scenario():
        world = World(timing=ReflectorTiming(relist=1e6))
        world.transport.events = lambda _: ["silence"]
        async with world:
            await world.reflector.wait_synced(10)
            loop = asyncio.get_running_loop()
            start = loop.time()
            world.put("a", 1)
            await until(lambda: len(world.watches()) == 2, within_seconds=200)
            assert 75 <= loop.time() - start <= 92
            assert "nothing came" in world.reflector.state().last_error
            world.transport.events = None
            world.put("b", 2)
            await until(lambda: world.equal, within_seconds=200)

    run(scenario())


def test_a_truncated_line_is_dropped_and_the_event_comes_again():
    async def scenario():
        world = World(timing=ReflectorTiming(relist=1e6))
        cuts = [b'{"type":"ADDED","object":{"metadata":{"na', None]
        world.transport.events = lambda event: [cuts.pop(0), cuts.pop(0)] if cuts else [event]
        async with world:
            await world.reflector.wait_synced(10)
            world.put("a", 1)
            await until(lambda: world.equal)
        assert len(world.lists()) == 1

    run(scenario())


def test_a_line_that_is_no_json_counts_as_a_broken_connection():
    async def scenario():
        world = World(timing=ReflectorTiming(relist=1e6))
        bad = [b"<html>Bad gateway</html>\n"]
        world.transport.events = lambda event: [bad.pop()] if bad else [event]
        async with world:
            await world.reflector.wait_synced(10)
            world.put("a", 1)
            await until(lambda: world.equal)
        assert len(world.lists()) == 1

    run(scenario())


def test_doubled_events_are_told_once():
    async def scenario():
        world = World()
        world.transport.events = lambda event: [event, event]
        async with world:
            await world.reflector.wait_synced(10)
            world.put("a", 1)
            world.put("a", 2)
            world.cluster.remove("widgets", "ns", "a")
            world.put("b", 1)
            await until(lambda: world.equal)
            assert world.told == [("ns", "a"), ("ns", "a"), ("ns", "a"), ("ns", "b")]
            assert world.reflector.state().duplicates == 4
            assert len(world.lists()) == 1

    run(scenario())


def test_an_event_older_than_one_already_seen_makes_it_list_again():
    async def scenario():
        world = World(timing=ReflectorTiming(relist=1e6))
        held = []

        def swap(event):
            held.append(event)
            return [held.pop(), held.pop()] if len(held) == 2 else []

        world.transport.events = swap
        async with world:
            await world.reflector.wait_synced(10)
            world.put("a", 1)
            world.cluster.remove("widgets", "ns", "a")  # comes first: "a" would stay for ever
            await until(lambda: len(world.lists()) == 2)
            assert world.equal
            assert "had already come" in world.reflector.state().last_error

    run(scenario())


def test_a_swallowed_event_is_healed_by_the_periodic_list():
    async def scenario():
        world = World(timing=ReflectorTiming(relist=600))
        world.transport.events = lambda event: [] if event["type"] != "BOOKMARK" else [event]
        async with world:
            await world.reflector.wait_synced(10)
            world.put("a", 1)
            await settle(100)
            assert not world.equal
            await until(lambda: world.equal, within_seconds=800)
            assert world.told == [("ns", "a")]

    run(scenario())


@pytest.mark.parametrize(
    "failure",
    [
        Unreachable("connection refused"),
        status_answer(500, "InternalError"),
        status_answer(403, "Forbidden"),
        status_answer(429, "TooManyRequests", retry_after="3"),
    ],
)
def test_a_failing_list_is_tried_again_until_it_succeeds(failure):
    async def scenario():
        world = World()
        world.put("a", 1)
        world.transport.script.extend([failure] * 4)
        async with world:
            await until(lambda: world.reflector.state().failures_in_a_row == 2)
            assert not world.reflector.synced
            assert world.reflector.state().last_error
            await world.reflector.wait_synced(120)
            assert world.equal

    run(scenario())


def test_retry_after_is_waited_for():
    async def scenario():
        world = World()
        world.transport.script.append(status_answer(429, "TooManyRequests", retry_after="77"))
        async with world:
            with pytest.raises(TimeoutError, match=r"widgets were not listed within 76 s: TooMany"):
                await world.reflector.wait_synced(76)
            await world.reflector.wait_synced(5)

    run(scenario())


def test_a_server_that_ends_every_watch_at_once_is_not_hammered():
    async def scenario():
        world = World()
        world.transport.stream_script.extend([Unreachable("reset")] * 1000)
        async with world:
            await settle(300)
        assert len(world.watches()) < 25

    run(scenario())


def test_410_for_every_watch_does_not_become_a_storm_of_lists():
    async def scenario():
        world = World()
        world.transport.stream_script.extend([status_answer(410, "Expired")] * 1000)
        async with world:
            await settle(300)
        assert len(world.lists()) < 25

    run(scenario())


def test_an_object_that_cannot_be_projected_is_left_as_it_was_and_stops_nothing(caplog):
    async def scenario():
        world = World(project=lambda obj: obj["spec"]["size"])
        world.put("good", {"size": 1})
        world.put("bad", {})
        async with world:
            await world.reflector.wait_synced(10)
            assert dict(world.store.items()) == {("ns", "good"): 1}
            world.put("good", {"wrong": True})
            world.put("other", {"size": 3})
            await until(lambda: ("ns", "other") in world.store)
            assert world.store.get(("ns", "good")) == 1
            assert world.reflector.state().undecodable == 2
            world.put("bad", {"size": 5})
            world.put("good", {"size": 2})
            await until(lambda: world.store.get(("ns", "good")) == 2)
            assert world.store.get(("ns", "bad")) == 5
            assert world.reflector.state().undecodable == 0

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert sum("cannot be read" in message for message in caplog.messages) == 2


class _Spec(msgspec.Struct):
    size: int


class _Widget(msgspec.Struct):
    metadata: ObjectMeta
    spec: _Spec


def test_objects_can_be_decoded_straight_into_a_struct():
    async def scenario():
        world = World(shape=_Widget, project=lambda widget: widget)
        world.put("a", {"size": 1, "ignored": "x"})
        world.put("wrong", {"size": "big"})
        async with world:
            await world.reflector.wait_synced(10)
            assert [w.spec.size for w in world.store.values()] == [1]
            assert world.store.values()[0].metadata.uid == "uid-101"
            world.put("b", {"size": 2})
            world.put("a", {"size": "wrong"})
            world.put("c", {"size": 3})
            await until(lambda: ("ns", "c") in world.store)
            assert [w.spec.size for w in world.store.values()] == [1, 2, 3]
            assert world.reflector.state().undecodable == 2

    run(scenario())


def test_managed_fields_never_reach_the_projection():
    async def scenario():
        world = World(project=lambda obj: obj["metadata"])
        world.cluster.put("widgets", "ns", "a", metadata={"managedFields": [{"manager": "x"}]})
        async with world:
            await world.reflector.wait_synced(10)
            world.cluster.put("widgets", "ns", "b", metadata={"managedFields": [{"manager": "x"}]})
            await until(lambda: len(world.store) == 2)
            assert all("managedFields" not in metadata for metadata in world.store.values())

    run(scenario())
