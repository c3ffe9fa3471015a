"""The ring of events: cursors, what it still knows, what watchers share."""

import asyncio

import pytest

from clusterops.apiserver.ring import ADDED, Compacted, Event, Ring
from clusterops.apiserver.stored import Stored


def _event(revision: int) -> Event:
    stored = Stored("pods", "ns", f"p{revision}", revision, revision, "u", (), False, b"{}")
    return Event(ADDED, stored, None)


def _ring(revisions: range, capacity: int = 4, floor: int = 10) -> Ring:
    ring = Ring(floor, capacity)
    for revision in revisions:
        ring.append(_event(revision))
    return ring


def _revisions(events: list[Event]) -> list[int]:
    return [event.revision for event in events]


@pytest.mark.parametrize("count", range(12))
def test_a_cursor_sees_exactly_what_is_later_or_learns_that_some_is_gone(count: int) -> None:
    newest = 10 + 2 * count
    ring = _ring(range(12, newest + 1, 2))
    for revision in range(8, newest + 3):
        expected = [r for r in range(12, newest + 1, 2) if r > revision]
        if revision < ring.floor:
            with pytest.raises(Compacted):
                ring.cursor_after(revision)
        else:
            assert _revisions(ring.since(ring.cursor_after(revision))) == expected
    assert ring.floor == (10 if count <= 4 else newest - 8)


def test_a_cursor_that_fell_behind_learns_it() -> None:
    ring = _ring(range(11, 13))
    cursor = ring.end
    for revision in range(13, 18):
        ring.append(_event(revision))
    with pytest.raises(Compacted):
        ring.since(cursor)


def test_watchers_with_equal_wishes_share_what_is_encoded() -> None:
    ring = _ring(range(11, 14))
    calls = []

    def encode(events: list[Event]) -> bytes:
        calls.append(len(events))
        return b"x" * len(events)

    first = ring.encoded(0, "a", encode)
    assert ring.encoded(0, "a", encode) is first
    ring.encoded(1, "a", encode)
    ring.encoded(0, "b", encode)
    assert calls == [3, 2, 3]
    ring.append(_event(14))
    assert ring.encoded(1, "a", encode) == b"xxx"


async def test_a_wake_reaches_everybody_who_waits_once() -> None:
    ring = Ring(0)
    loop = asyncio.get_running_loop()
    waiters = [loop.create_future() for _ in range(3)]
    for waiter in waiters:
        ring.wait(waiter)
    ring.forget(waiters[0])
    waiters[1].cancel()
    ring.wake()
    assert [waiter.done() for waiter in waiters] == [False, True, True]
    assert ring.waiting == 0
