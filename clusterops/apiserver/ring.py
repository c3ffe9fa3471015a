"""The last events of one resource, shared by all its watchers.

A ring holds a fixed number of events. Each watcher has a cursor into it and takes everything that
is new in one piece; one that falls a whole ring behind has lost events and must list again. The
ring is not stored: after a restart only a watch from the newest revision can go on.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clusterops.apiserver.stored import Stored

CAPACITY = 4096  # events a resource

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"


class Compacted(Exception):
    """Events after `revision` are no longer all there; the watcher must list again."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {revision} ({oldest})")
        self.revision = revision
        self.oldest = oldest


@dataclass(slots=True, frozen=True, eq=False)
class Event:
    """One committed change. `current` of a DELETED event is the last state at its final revision."""

    type: str
    current: Stored
    previous: Stored | None

    @property
    def revision(self) -> int:
        """When it happened."""
        return self.current.revision


class Ring:
    """Events in order, addressed by a sequence number that only grows."""

    def __init__(self, floor: int, capacity: int = CAPACITY) -> None:
        self._events: list[Event] = []
        self._capacity = capacity
        self._end = 0  # sequence number of the next event
        self._floor = floor  # everything after this revision is here
        self._waiting: set[asyncio.Future[None]] = set()
        # What watchers that want the same got for the same range: encoded once, sent to all.
        self._shared: dict[tuple[int, Any], bytes] = {}

    @property
    def end(self) -> int:
        """The cursor behind the newest event."""
        return self._end

    @property
    def floor(self) -> int:
        """The oldest revision from which a watch can start."""
        return self._floor

    def append(self, event: Event) -> None:
        """Add the newest event; the oldest goes when the ring is full."""
        if len(self._events) < self._capacity:
            self._events.append(event)
        else:
            slot = self._end % self._capacity
            self._floor = self._events[slot].revision
            self._events[slot] = event
        self._end += 1
        if self._shared:
            self._shared.clear()

    def cursor_after(self, revision: int) -> int:
        """The cursor of the first event later than `revision`. Raises Compacted."""
        if revision < self._floor:
            raise Compacted(revision, self._floor)
        low, high = self._end - len(self._events), self._end
        while low < high:
            middle = (low + high) // 2
            if self._events[middle % self._capacity].revision <= revision:
                low = middle + 1
            else:
                high = middle
        return low

    def since(self, cursor: int) -> list[Event]:
        """All events from `cursor` on. Raises Compacted when some of them are gone."""
        start = self._end - len(self._events)
        if cursor < start:
            raise Compacted(cursor, self._floor)
        if len(self._events) < self._capacity:
            return self._events[cursor:]
        first, last = cursor % self._capacity, self._end % self._capacity
        if cursor == self._end:
            return []
        if first < last:
            return self._events[first:last]
        return self._events[first:] + self._events[:last]

    def encoded(self, cursor: int, key: Any, encode: Callable[[list[Event]], bytes]) -> bytes:
        """`encode(since(cursor))`, computed once for all watchers with the same cursor and key."""
        found = self._shared.get((cursor, key))
        if found is None:
            found = self._shared[cursor, key] = encode(self.since(cursor))
        return found

    def wait(self, waiter: asyncio.Future[None]) -> None:
        """Have `waiter` resolved at the next `wake`."""
        self._waiting.add(waiter)

    def forget(self, waiter: asyncio.Future[None]) -> None:
        """The opposite of `wait`."""
        self._waiting.discard(waiter)

    @property
    def waiting(self) -> int:
        """How many watchers wait for events."""
        return len(self._waiting)

    def wake(self) -> None:
        """Tell everybody who waits that there is something new, or that the server ends."""
        waiting, self._waiting = self._waiting, set()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
