"""Events are news, not records: they go an hour after their last change, as in Kubernetes."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from clusterops.apiserver.database_file import StorageError
from clusterops.apiserver.deletion import DeleteOptions, Deletion
from clusterops.apiserver.kind import Kind
from clusterops.apiserver.refusals import StatusError
from clusterops.apiserver.ring import DELETED, Event
from clusterops.apiserver.state import State
from clusterops.apiserver.stored import Key

RESOURCE = "events"
LIFETIME_SECONDS = 3600.0
SWEEP_SECONDS = 30.0  # between looks at what has expired
BATCH = 256  # deletions under way at once, so that they share transactions

_log = logging.getLogger(__name__)


class _Deadline(NamedTuple):
    at: float
    key: Key
    revision: int


class EventExpiry:
    """Deletes old events. `monotonic` is a clock in seconds; a restart starts the hour anew."""

    def __init__(
        self, state: State, deletion: Deletion, kind: Kind | None, monotonic: Callable[[], float]
    ) -> None:
        self._state = state
        self._deletion = deletion
        self._kind = kind
        self._monotonic = monotonic
        # In order of time, as every write is put at the end. A write after it makes one void.
        self._deadlines: deque[_Deadline] = deque()

    def load(self) -> None:
        """Count from now on for what is stored."""
        at = self._monotonic() + LIFETIME_SECONDS
        for stored in self._state.collection(RESOURCE).objects.values():
            self._deadlines.append(_Deadline(at, stored.key, stored.revision))

    def observe(self, event: Event) -> None:
        """Note when what was just written will be old."""
        current = event.current
        if current.resource == RESOURCE and event.type != DELETED:
            at = self._monotonic() + LIFETIME_SECONDS
            self._deadlines.append(_Deadline(at, current.key, current.revision))

    async def sweep(self) -> int:
        """Delete what has expired; how many."""
        now, count = self._monotonic(), 0
        while self._kind is not None and self._deadlines and self._deadlines[0].at <= now:
            keys: list[Key] = []
            while self._deadlines and self._deadlines[0].at <= now and len(keys) < BATCH:
                deadline = self._deadlines.popleft()
                stored = self._state.collection(RESOURCE).objects.get(deadline.key)
                if stored is not None and stored.revision == deadline.revision:
                    keys.append(deadline.key)
            kind = self._kind
            await asyncio.gather(*(self._delete(kind, key) for key in keys))
            count += len(keys)
        return count

    async def _delete(self, kind: Kind, key: Key) -> None:
        try:
            await self._deletion.delete(kind, key, DeleteOptions())
        except StatusError:
            pass  # somebody was faster
        except StorageError as error:
            _log.warning("cannot delete an old event: %s", error)

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self.sweep()
