"""Saves a job's state across its ranks, now or in the background.

A save has three parts. All ranks agree that it begins, and rank 0 makes the staging folder; each rank
writes its own shards; rank 0 commits what all have written. The middle part may run in threads. With
one rank the commit runs there too; with several it follows at the next step at which all are done,
because threads must not mix their messages with the training's.
"""

import errno
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from clusterops.train.agreement import Ranks, leader_decides, together
from clusterops.train.background import BackgroundTask, StateCopies
from clusterops.train.checkpoint import CheckpointDirectory, Committed
from clusterops.train.errors import SaveFailed, StorageRefused
from clusterops.train.manifest import FileRecord
from clusterops.train.serialization import Encoded

T = TypeVar("T")

_DROP_SECONDS = 30.0
_MAY_PASS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one checkpoint holds of one rank, and what its manifest says beside the files."""

    step: int
    state: Encoded
    resume: Mapping[str, Any] = field(default_factory=dict)
    order_digest: str = ""
    permanent: bool = False


@dataclass(slots=True)
class _InFlight:
    snapshot: Snapshot
    files: BackgroundTask[list[FileRecord]] | None
    commit: BackgroundTask[Committed] | None

    @property
    def task(self) -> BackgroundTask[Any]:
        task = self.commit or self.files
        assert task is not None
        return task


class Saver:
    """Collective, except where said: every rank calls the same methods in the same order.

    `on_durable` is called with each commit, possibly from a thread.
    """

    def __init__(
        self,
        directory: CheckpointDirectory,
        ranks: Ranks,
        on_durable: Callable[[Committed], None],
    ) -> None:
        self._directory = directory
        self._ranks = ranks
        self._on_durable = on_durable
        self._copies = StateCopies()
        self._in_flight: _InFlight | None = None

    @property
    def in_flight(self) -> bool:
        """Whether a background save has begun and `finish` was not called. Equal on all ranks."""
        return self._in_flight is not None

    @property
    def writing(self) -> bool:
        """Whether this rank's part of it still runs. Not collective, differs between ranks."""
        return self._in_flight is not None and not self._in_flight.task.done

    @property
    def failed(self) -> bool:
        """Whether this rank's part of it has failed. Not collective, differs between ranks."""
        return self._in_flight is not None and self._in_flight.task.failed

    def save_now(self, snapshot: Snapshot) -> Committed:
        """Writes and commits; returns when it is durable. Copies nothing that lies in main memory.

        Raises:
            StaleAttempt: a newer attempt has taken over.
            SaveFailed: a rank could not write, or the commit failed.
        """
        self.finish()
        self._stage(snapshot.step)
        try:
            files = together(self._ranks, lambda: self._written(snapshot))
            return self._committed(snapshot, files)
        except SaveFailed:
            self._abandon(snapshot.step)
            raise

    def save_in_background(self, snapshot: Snapshot) -> float:
        """Copies the state and begins to write it; returns the seconds that this took.

        Raises:
            StaleAttempt: a newer attempt has taken over.
            SaveFailed: the last background save had failed, or this one can't begin.
        """
        self.finish()
        started = time.monotonic()
        self._stage(snapshot.step)
        copied = Snapshot(
            snapshot.step,
            self._copies.take(snapshot.state),
            snapshot.resume,
            snapshot.order_digest,
            snapshot.permanent,
        )
        if self._ranks.world_size == 1:
            commit = BackgroundTask(lambda: self._write_and_commit(copied))
            self._in_flight = _InFlight(copied, None, commit)
        else:
            files = BackgroundTask(lambda: self._write(copied))
            self._in_flight = _InFlight(copied, files, None)
        return time.monotonic() - started

    def finish(self) -> Committed | None:
        """Waits for the background save, if there is one, and commits it.

        Raises:
            StaleAttempt: a newer attempt has taken over.
            SaveFailed: a rank could not write, or the commit failed.
        """
        current, self._in_flight = self._in_flight, None
        if current is None:
            return None
        try:
            if current.commit is not None:
                return current.commit.result()
            task = current.task
            files = together(self._ranks, lambda: [one.to_wire() for one in task.result()])
            return self._committed(current.snapshot, files)
        except SaveFailed:
            self._abandon(current.snapshot.step)
            raise

    def drop(self) -> None:
        """Lets a background save of this rank come to its end, a limited time. Not collective: for
        a session that ends by an error.
        """
        if self._in_flight is not None:
            self._in_flight.task.wait(_DROP_SECONDS)

    def _stage(self, step: int) -> None:
        leader_decides(self._ranks, lambda: self._guarded(step, lambda: self._make_stage(step)))

    def _make_stage(self, step: int) -> None:
        self._directory.stage(step)

    def _written(self, snapshot: Snapshot) -> list[dict[str, Any]]:
        return [record.to_wire() for record in self._write(snapshot)]

    def _write(self, snapshot: Snapshot) -> list[FileRecord]:
        return self._guarded(
            snapshot.step,
            lambda: self._directory.write(snapshot.step, self._ranks.rank, snapshot.state),
        )

    def _write_and_commit(self, snapshot: Snapshot) -> Committed:
        committed = self._commit(snapshot, self._write(snapshot))
        self._on_durable(committed)
        return committed

    def _committed(self, snapshot: Snapshot, files: list[list[dict[str, Any]]]) -> Committed:
        """Rank 0 commits; everybody knows."""
        records = [FileRecord.from_wire(one) for of_rank in files for one in of_rank]

        def commit() -> list[Any]:
            committed = self._commit(snapshot, records)
            return [committed.step, committed.manifest_sha256, str(committed.path)]

        step, digest, path = leader_decides(self._ranks, commit)
        committed = Committed(step, digest, Path(path))
        self._on_durable(committed)
        return committed

    def _commit(self, snapshot: Snapshot, records: list[FileRecord]) -> Committed:
        return self._guarded(
            snapshot.step,
            lambda: self._directory.commit(
                snapshot.step,
                records,
                world_size=self._ranks.world_size,
                resume=snapshot.resume,
                order_digest=snapshot.order_digest,
                permanent=snapshot.permanent,
            ),
        )

    def _guarded(self, step: int, action: Callable[[], T]) -> T:
        try:
            return action()
        except OSError as error:
            kind = StorageRefused if error.errno in _MAY_PASS else SaveFailed
            raise kind(
                f"the checkpoint of step {step} could not be written to {self._directory.path}: "
                f"{error}; earlier checkpoints are untouched. Every rank must see that directory, "
                "with room for the checkpoints kept and one more"
            ) from error

    def _abandon(self, step: int) -> None:
        if self._ranks.rank == 0:
            self._directory.abandon(step)
