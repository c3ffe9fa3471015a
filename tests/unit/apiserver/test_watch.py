"""Watches: what they send first, what then, and how they end."""

import asyncio
from pathlib import Path

import pytest
from support.apiserver_world import WIDGETS, World, running_world, widget

from clusterops.apiserver import ring, watch

TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
PARTIAL = {"accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}


def _told(events: list) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


@pytest.mark.parametrize("start", ["", "&resourceVersion=0"])
async def test_a_watch_without_a_revision_begins_with_what_is_there(
    world: World, start: str
) -> None:
    await world.post(WIDGETS, widget("b"))
    await world.post(WIDGETS, widget("a"))
    stream = await world.watch(f"{WIDGETS}?watch=true{start}")
    await world.post(WIDGETS, widget("c"))
    told = _told(await stream.take(3))
    assert told == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


async def test_a_watch_from_a_revision_gets_what_came_later_and_nothing_else(
    world: World,
) -> None:
    first = await world.post(WIDGETS, widget("a"))
    await world.patch(f"{WIDGETS}/a", {"spec": {"size": 2}})
    await world.delete(f"{WIDGETS}/a")
    revision = first["metadata"]["resourceVersion"]
    stream = await world.watch(f"{WIDGETS}?watch=1&resourceVersion={revision}")
    changed, deleted = await stream.take(2)
    assert (changed["type"], deleted["type"]) == ("MODIFIED", "DELETED")
    final = int(deleted["object"]["metadata"]["resourceVersion"])
    assert final > int(changed["object"]["metadata"]["resourceVersion"])
    assert stream.silent


async def test_a_watch_sees_other_namespaces_only_when_asked_for_all(world: World) -> None:
    await world.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    revision = world.server.state.revision
    narrow = await world.watch(f"{WIDGETS}?watch=1&resourceVersion={revision}")
    everything = "/apis/example.io/v1/widgets"
    wide = await world.watch(f"{everything}?watch=1&resourceVersion={revision}")
    await world.post(WIDGETS.replace("default", "other"), widget("theirs"))
    await world.post(WIDGETS, widget("ours"))
    assert _told(await wide.take(2)) == [("ADDED", "theirs"), ("ADDED", "ours")]
    assert _told(await narrow.take(1)) == [("ADDED", "ours")]


async def test_moving_in_and_out_of_a_selection_is_told_as_adding_and_deleting(
    world: World,
) -> None:
    stream = await world.watch(f"{WIDGETS}?watch=1&labelSelector=on%3Dyes")
    await world.post(WIDGETS, widget("a"))
    await world.patch(f"{WIDGETS}/a", {"metadata": {"labels": {"on": "yes"}}})
    await world.patch(f"{WIDGETS}/a", {"spec": {"size": 7}})
    out = await world.patch(f"{WIDGETS}/a", {"metadata": {"labels": {"on": "no"}}})
    await world.delete(f"{WIDGETS}/a")
    events = await stream.take(3)
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    last = events[2]["object"]["metadata"]
    assert last["labels"] == {"on": "yes"}  # as it was last seen
    assert last["resourceVersion"] == out["metadata"]["resourceVersion"]
    assert stream.silent


async def test_a_watch_of_one_name_sees_that_object_only(world: World) -> None:
    stream = await world.watch(f"{WIDGETS}?watch=1&fieldSelector=metadata.name%3Db")
    await world.post(WIDGETS, widget("a"))
    await world.post(WIDGETS, widget("b"))
    await world.delete(f"{WIDGETS}/a")
    await world.delete(f"{WIDGETS}/b")
    assert _told(await stream.take(2)) == [("ADDED", "b"), ("DELETED", "b")]


async def test_tables_carry_their_columns_once(world: World) -> None:
    await world.post(WIDGETS, widget("a"))
    stream = await world.watch(f"{WIDGETS}?watch=1", TABLE)
    await world.post(WIDGETS, widget("b"))
    first, second = [event["object"] for event in await stream.take(2)]
    assert first["kind"] == second["kind"] == "Table"
    assert first["columnDefinitions"]
    assert not second["columnDefinitions"]
    assert second["rows"][0]["object"]["metadata"]["name"] == "b"


async def test_metadata_alone_can_be_watched(world: World) -> None:
    stream = await world.watch(f"{WIDGETS}?watch=1", PARTIAL)
    await world.post(WIDGETS, widget("a"))
    (event,) = await stream.take(1)
    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert "spec" not in event["object"]


async def test_initial_events_end_with_a_marked_bookmark(world: World) -> None:
    made = await world.post(WIDGETS, widget("a"))
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    stream = await world.watch(f"{WIDGETS}?{query}&allowWatchBookmarks=true")
    added, bookmark = await stream.take(2)
    assert added["object"] == made
    assert bookmark["type"] == "BOOKMARK"
    metadata = bookmark["object"]["metadata"]
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert metadata["resourceVersion"] == str(world.server.state.revision)


async def test_initial_events_without_their_match_are_refused(world: World) -> None:
    answer = await world.request("GET", f"{WIDGETS}?watch=1&sendInitialEvents=true")
    assert answer.status == 422
    assert "NotOlderThan" in answer.message


async def test_bookmarks_tell_the_revision_up_to_which_all_was_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "BOOKMARK_SECONDS", 0.02)
    stream = await world.watch(f"{WIDGETS}?watch=1&allowWatchBookmarks=true")
    first = await stream.next()
    await world.post("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    wanted = str(world.server.state.revision)
    while first["object"]["metadata"]["resourceVersion"] != wanted:
        assert first["type"] == "BOOKMARK"
        first = await stream.next()


async def test_a_watch_ends_when_its_time_is_up(world: World) -> None:
    stream = await world.watch(f"{WIDGETS}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true")
    events = await stream.rest()
    assert [event["type"] for event in events] == ["BOOKMARK"]


async def test_a_revision_that_is_too_old_ends_the_watch_with_expired(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await world.post(WIDGETS, widget("a"))
    collection = world.server.state.collection("widgets.example.io")
    collection.ring = ring.Ring(world.server.state.revision, 4)
    for size in range(2, 9):
        await world.patch(f"{WIDGETS}/a", {"spec": {"size": size}})
    revision = made["metadata"]["resourceVersion"]
    stream = await world.watch(f"{WIDGETS}?watch=1&resourceVersion={revision}")
    assert stream.status == 200
    (event,) = await stream.rest()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert event["object"]["reason"] == "Expired"
    assert event["object"]["message"].startswith("too old resource version: ")


async def test_after_a_restart_only_the_newest_revision_can_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    async with running_world(folder) as world:
        old = (await world.post(WIDGETS, widget("a")))["metadata"]["resourceVersion"]
        newest = (await world.post(WIDGETS, widget("b")))["metadata"]["resourceVersion"]
    async with running_world(folder) as world:
        stale = await world.watch(f"{WIDGETS}?watch=1&resourceVersion={old}")
        assert (await stale.rest())[0]["object"]["code"] == 410
        good = await world.watch(f"{WIDGETS}?watch=1&resourceVersion={newest}")
        await world.post(WIDGETS, widget("c"))
        assert _told(await good.take(1)) == [("ADDED", "c")]


async def test_closing_the_server_ends_watches_in_order(world: World) -> None:
    streams = [await world.watch(f"{WIDGETS}?watch=1") for _ in range(3)]
    world.server.end_streams()
    for stream in streams:
        assert await stream.rest() == []
    late = await world.watch(f"{WIDGETS}?watch=1")
    assert await late.rest() == []


async def test_a_client_that_leaves_is_noticed_without_an_event(world: World) -> None:
    stream = await world.watch(f"{WIDGETS}?watch=1")
    assert world.server.watches.open == 1
    await stream.leave()
    assert world.server.watches.open == 0
    assert world.server.state.collection("widgets.example.io").ring.waiting == 0


async def test_every_watcher_gets_every_event_once_and_in_order(world: World) -> None:
    revision = world.server.state.revision
    streams = [
        await world.watch(f"{WIDGETS}?watch=1&resourceVersion={revision}") for _ in range(10)
    ]
    await asyncio.gather(*(_live(world, f"w{number}") for number in range(16)))
    expected = None
    for stream in streams:
        events = await stream.take(16 * 7)
        revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
        assert revisions == sorted(set(revisions))
        expected = expected or events
        assert events == expected
        assert stream.silent
        assert stream.pieces < len(events), "events that were new together come together"


async def _live(world: World, name: str) -> None:
    await world.post(WIDGETS, widget(name))
    for size in range(2, 7):
        await world.patch(f"{WIDGETS}/{name}", {"spec": {"size": size}})
    await world.delete(f"{WIDGETS}/{name}")
