"""Staged and committed state, and what a failed commit leaves."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from clusterops.apiserver.database_file import StorageError
from clusterops.apiserver.state import State
from clusterops.apiserver.storage import (
    Change,
    Storage,
    StorageCorrupt,
    StorageFailed,
    StorageFull,
    open_storage,
)
from clusterops.apiserver.stored import Stored


class FaultyStorage(Storage):
    """Fails the commits that hold a revision in `fails`; waits in each while `gate` is closed."""

    def __init__(self, opened: Storage) -> None:
        self.__dict__.update(opened.__dict__)
        self.fails: dict[int, StorageError] = {}
        self.batches: list[list[int]] = []
        self.gate: threading.Semaphore | None = None  # a permit lets one commit through
        self.entered = threading.Semaphore(0)  # a permit for each commit that began

    def commit(self, changes: Sequence[Change]) -> None:
        revisions = [change.revision for change in changes]
        self.entered.release()
        if self.gate is not None:
            assert self.gate.acquire(timeout=10)
        for revision, error in self.fails.items():
            if revision in revisions:
                raise error
        super().commit(changes)
        self.batches.append(revisions)


@pytest.fixture
def storage(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_storage(tmp_path / "state" / "clusterops.db"))


@pytest.fixture
async def state(storage: FaultyStorage) -> AsyncIterator[State]:
    running = State(storage, monotonic=asyncio.get_running_loop().time)
    running.start()
    yield running
    await asyncio.to_thread(running.close)


def _object(state: State, name: str, before: Stored | None = None) -> Stored:
    revision = state.next_revision()
    body = b'{"metadata":{"uid":"u","resourceVersion":"%d"}}' % revision
    created = before.created if before else revision
    return Stored("pods", "ns", name, created, revision, "u", (), False, body)


async def test_writers_see_what_readers_do_not_see_yet(state: State) -> None:
    pods = state.collection("pods")
    first = _object(state, "a")
    written = state.stage(first)
    assert pods.latest(first.key) is first
    assert pods.objects == {}
    await written
    assert pods.objects[first.key] is first
    assert pods.staged == {}


async def test_a_chain_of_staged_writes_of_one_object_ends_as_staged(
    state: State, storage: FaultyStorage
) -> None:
    pods = state.collection("pods")
    storage.gate = threading.Semaphore(0)
    first = _object(state, "a")
    waiting = [state.stage(first)]
    await asyncio.sleep(0)  # writes are handed over at the end of a turn of the loop
    assert storage.entered.acquire(timeout=10)  # the first is committed alone
    waiting.append(state.stage(_object(state, "a", first), deleted=True))
    second = _object(state, "a")
    waiting.append(state.stage(second))
    waiting.append(state.stage(_object(state, "a", second), deleted=True))
    for done in waiting:
        storage.gate.release()
        await done
        assert pods.latest(first.key) is None, "the last write of the chain decides"
    assert pods.objects == {}
    assert pods.keys == []
    assert [event.type for event in pods.ring.since(0)] == ["ADDED", "DELETED"] * 2


@pytest.mark.parametrize("handed_over", [True, False])
async def test_what_was_queued_behind_a_failed_write_is_never_committed(
    state: State, storage: FaultyStorage, handed_over: bool
) -> None:
    storage.gate = threading.Semaphore(0)
    first = _object(state, "a")
    storage.fails[first.revision] = StorageFull("no space")
    waiting = [state.stage(first)]
    await asyncio.sleep(0)
    assert storage.entered.acquire(timeout=10)
    waiting.append(state.stage(_object(state, "a", first)))
    if handed_over:
        await asyncio.sleep(0)
    storage.gate.release(2)
    # The loop has not heard of the failure yet; the writer must hold back by itself.
    assert not storage.entered.acquire(timeout=0.3), "a commit of what builds on a failed write"
    for done in waiting:
        with pytest.raises(StorageFull):
            await done
    assert storage.batches == []
    again = _object(state, "a")
    await state.write(again)
    assert storage.batches == [[again.revision]]


async def test_writers_of_one_turn_of_the_loop_share_a_transaction(
    state: State, storage: FaultyStorage
) -> None:
    await asyncio.gather(*(state.write(_object(state, f"p{n}")) for n in range(200)))
    assert storage.batches == [list(range(2, 202))]


async def test_what_was_staged_in_the_last_turn_is_committed_at_the_end(
    storage: FaultyStorage,
) -> None:
    state = State(storage, monotonic=asyncio.get_running_loop().time)
    state.start()
    state.stage(_object(state, "a"))
    state.close()
    assert storage.batches == [[2]]


async def test_a_write_that_does_not_fit_takes_those_that_build_on_it_along(
    state: State, storage: FaultyStorage
) -> None:
    pods = state.collection("pods")
    kept = _object(state, "kept")
    await state.write(kept)
    first = _object(state, "a")
    storage.fails[first.revision] = StorageFull("no space")
    waiting = [state.stage(first), state.stage(_object(state, "a", first))]
    for done in waiting:
        with pytest.raises(StorageFull):
            await done
    assert pods.latest(first.key) is None
    assert pods.latest(kept.key) is kept
    again = _object(state, "a")
    assert again.revision > first.revision + 1, "a revision is never given twice"
    await state.write(again)
    assert pods.objects[again.key] is again


async def test_after_a_failed_disk_reads_go_on_and_writes_are_refused(
    state: State, storage: FaultyStorage
) -> None:
    kept = _object(state, "kept")
    await state.write(kept)
    lost = _object(state, "lost")
    storage.fails[lost.revision] = StorageFailed("the disk failed")
    with pytest.raises(StorageFailed):
        await state.write(lost)
    with pytest.raises(StorageFailed):
        await state.write(_object(state, "later"))
    assert state.broken is not None
    assert state.collection("pods").scan("ns") == [kept]


async def test_a_restart_finds_everything_and_continues_counting(tmp_path: Path) -> None:
    database = tmp_path / "state" / "clusterops.db"
    clock = asyncio.get_running_loop().time
    state = State(open_storage(database), monotonic=clock)
    state.start()
    for name in ("b", "a"):
        await state.write(_object(state, name))
    doomed = _object(state, "c")
    await state.write(doomed)
    await state.write(_object(state, "c", doomed), deleted=True)
    highest = state.revision
    await asyncio.to_thread(state.close)
    again = State(open_storage(database), monotonic=clock)
    assert [stored.name for stored in again.collection("pods").scan()] == ["a", "b"]
    assert again.revision == highest
    assert again.next_revision() == highest + 1
    again.close()


async def test_an_object_that_is_none_stops_the_start(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "state" / "clusterops.db")
    storage.commit([Change(2, 2, "pods", "ns", "a", b"\xa5 no JSON")])
    with pytest.raises(StorageCorrupt, match="pods ns/a is no object"):
        State(storage, monotonic=asyncio.get_running_loop().time)
    storage.close()


async def test_snapshots_outlive_changes_and_end_with_their_time(storage: FaultyStorage) -> None:
    now = 0.0
    state = State(storage, monotonic=lambda: now)
    state.start()
    pods = state.collection("pods")
    first = _object(state, "a")
    await state.write(first)
    revision = state.keep_snapshot(pods)
    await state.write(_object(state, "a", first), deleted=True)
    assert state.snapshot(pods, revision) == [first]
    assert state.snapshot(pods, revision - 1) is None
    now = 301.0
    assert state.snapshot(pods, revision) is None
    await asyncio.to_thread(state.close)
