"""Everything the server knows, in memory: what readers see and what writers build on.

Readers see committed state only. A writer builds on staged state, which includes writes on their
way to the disk, so that writers never wait for each other; the answer to each waits for its commit.
One event loop runs all of it, so that reading the staged state and staging the next write is one
step.
"""

import asyncio
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from clusterops.apiserver.database_file import StorageError
from clusterops.apiserver.failpoints import PUBLISHED, STAGED, Failpoint
from clusterops.apiserver.ring import ADDED, CAPACITY, DELETED, MODIFIED, Event, Ring
from clusterops.apiserver.storage import Change, Storage, StorageFailed, corrupt
from clusterops.apiserver.stored import Key, Stored, from_row
from clusterops.apiserver.writer import Writer

SNAPSHOTS = 32  # lists that are being paged through at once, over all resources
SNAPSHOT_SECONDS = 300.0  # as long as etcd keeps old revisions


class Collection:
    """All objects of one resource."""

    def __init__(self, resource: str, floor: int, ring_capacity: int = CAPACITY) -> None:
        self.resource = resource
        self.objects: dict[Key, Stored] = {}
        self.keys: list[Key] = []  # sorted
        self.staged: dict[Key, Pending] = {}  # the newest write of each object on its way
        self.ring = Ring(floor, ring_capacity)

    def latest(self, key: Key) -> Stored | None:
        """The object as the next writer must see it."""
        pending = self.staged.get(key)
        if pending is None:
            return self.objects.get(key)
        return None if pending.deleted else pending.stored

    def scan(self, namespace: str | None = None) -> list[Stored]:
        """Committed objects in order of namespace and name; None = of all namespaces."""
        if namespace is None:
            return [self.objects[key] for key in self.keys]
        first = bisect_left(self.keys, (namespace, ""))
        last = bisect_left(self.keys, (namespace + "\0", ""))
        return [self.objects[key] for key in self.keys[first:last]]

    def publish(self, stored: Stored, deleted: bool) -> Event:
        """Make one committed write visible."""
        key = stored.key
        previous = self.objects.get(key)
        if deleted:
            del self.objects[key]
            del self.keys[bisect_left(self.keys, key)]
        else:
            self.objects[key] = stored
            if previous is None:
                insort(self.keys, key)
        kind = DELETED if deleted else ADDED if previous is None else MODIFIED
        event = Event(kind, stored, previous)
        self.ring.append(event)
        return event

    def load(self, objects: Iterable[Stored]) -> None:
        """Fill an empty collection."""
        for stored in objects:
            self.objects[stored.key] = stored
        self.keys = sorted(self.objects)


class Pending(NamedTuple):
    """A write between staging and its commit."""

    collection: Collection
    stored: Stored
    deleted: bool
    done: asyncio.Future[None]


class _Snapshot(NamedTuple):
    objects: list[Stored]
    deadline: float


class State:
    """All collections, and the only way to change them.

    `monotonic` is a clock in seconds; observers are called for each committed event, in order.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        monotonic: Callable[[], float],
        failpoint: Failpoint | None = None,
        ring_capacity: int = CAPACITY,
    ) -> None:
        self.revision = storage.revision()  # committed
        self._next = self.revision
        self._storage = storage
        self._monotonic = monotonic
        self._failpoint = failpoint or Failpoint()
        self._ring_capacity = ring_capacity
        self._collections: dict[str, Collection] = {}
        self._pending: deque[Pending] = deque()
        self._snapshots: OrderedDict[tuple[str, int], _Snapshot] = OrderedDict()
        self._writer: Writer | None = None
        self.observers: list[Callable[[Event], None]] = []
        self._load()

    def _load(self) -> None:
        loaded: dict[str, list[Stored]] = {}
        for row in self._storage.rows():
            if row.revision > self.revision:
                raise corrupt(self._storage.path, "an object is newer than the counter")
            try:
                loaded.setdefault(row.resource, []).append(from_row(row))
            except msgspec.MsgspecError as error:
                where = f"{row.resource} {row.namespace}/{row.name}"
                raise corrupt(self._storage.path, f"{where} is no object: {error}") from error
        for resource, objects in loaded.items():
            self.collection(resource).load(objects)

    def start(self) -> None:
        """Begin to accept writes, in the running event loop."""
        loop = asyncio.get_running_loop()
        self._writer = Writer(self._storage, loop, self._on_committed, self._on_failed)
        self._writer.start()

    def close(self) -> None:
        """Commit what was staged and close the database. Blocks until it is done."""
        if self._writer is None:
            self._storage.close()
        else:
            self._writer.close()

    @property
    def broken(self) -> StorageFailed | None:
        """Why writes are refused until a restart; None when they are not."""
        return self._writer.broken if self._writer else None

    @property
    def commits(self) -> tuple[int, int]:
        """Transactions and changes committed since the start."""
        return (self._writer.batches, self._writer.changes) if self._writer else (0, 0)

    @property
    def collections(self) -> dict[str, Collection]:
        """Every collection by resource. Not to be changed."""
        return self._collections

    def collection(self, resource: str) -> Collection:
        """The objects of a resource, by its name as in error messages (`pods`)."""
        found = self._collections.get(resource)
        if found is None:
            found = Collection(resource, self.revision, self._ring_capacity)
            self._collections[resource] = found
        return found

    def next_revision(self) -> int:
        """A revision for a write that is about to be staged."""
        self._next += 1
        return self._next

    async def write(self, stored: Stored, *, deleted: bool = False) -> None:
        """Stage one write and wait until it is durable and visible.

        `stored.revision` comes from `next_revision`, taken in the same step. With `deleted` the
        object goes, and `stored` is the last its watchers see. Raises StorageError when it was not
        stored.
        """
        await self.stage(stored, deleted=deleted)

    def stage(self, stored: Stored, *, deleted: bool = False) -> asyncio.Future[None]:
        """Like `write`, for callers that stage several and then wait for all."""
        assert self._writer is not None, "writes before start()"
        if self._writer.broken is not None:
            raise self._writer.broken
        collection = self.collection(stored.resource)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pending = Pending(collection, stored, deleted, done)
        collection.staged[stored.key] = pending
        self._pending.append(pending)
        self._failpoint.passed(STAGED)
        self._writer.submit(
            Change(
                stored.created,
                stored.revision,
                stored.resource,
                stored.namespace,
                stored.name,
                None if deleted else stored.body,
            )
        )
        return done

    def _on_committed(self, batch: list[Change]) -> None:
        touched: dict[str, Ring] = {}
        answered = []
        for change in batch:
            pending = self._pending.popleft()
            collection, stored = pending.collection, pending.stored
            assert stored.revision == change.revision, "commits arrive in the order of staging"
            event = collection.publish(stored, pending.deleted)
            if collection.staged.get(stored.key) is pending:  # nothing newer is on its way
                del collection.staged[stored.key]
            self.revision = stored.revision
            touched[collection.resource] = collection.ring
            for observer in self.observers:
                observer(event)
            answered.append(pending.done)
        self._failpoint.passed(PUBLISHED)
        for done in answered:
            if not done.done():
                done.set_result(None)
        for ring in touched.values():
            ring.wake()

    def _on_failed(self, error: StorageError) -> None:
        pending, self._pending = self._pending, deque()
        for write in pending:
            write.collection.staged.clear()
        for write in pending:
            if not write.done.done():
                write.done.set_exception(error)

    def keep_snapshot(self, collection: Collection) -> int:
        """Keep the collection as it is now for the pages of a list; its revision."""
        identity = (collection.resource, self.revision)
        self._drop_expired()
        if identity not in self._snapshots:
            deadline = self._monotonic() + SNAPSHOT_SECONDS
            self._snapshots[identity] = _Snapshot(collection.scan(), deadline)
            if len(self._snapshots) > SNAPSHOTS:
                self._snapshots.popitem(last=False)
        return self.revision

    def snapshot(self, collection: Collection, revision: int) -> list[Stored] | None:
        """The collection as it was at `revision`; None when that is no longer known."""
        if revision == self.revision:
            return collection.scan()
        self._drop_expired()
        found = self._snapshots.get((collection.resource, revision))
        return found.objects if found else None

    def _drop_expired(self) -> None:
        now = self._monotonic()
        while self._snapshots:
            oldest = next(iter(self._snapshots.values()))
            if oldest.deadline > now:
                return
            self._snapshots.popitem(last=False)

    def wake_all(self) -> None:
        """Wake every watcher: the server ends."""
        for collection in self._collections.values():
            collection.ring.wake()
