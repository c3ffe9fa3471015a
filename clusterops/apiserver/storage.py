"""The database: SQLite with a write-ahead log, every commit durable before it is answered.

One table of objects, one row for the resourceVersion counter, which is stored in the transaction of
each write and so never goes back. All methods but `open_storage` are called from one thread, the
writer's.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from clusterops.apiserver.database_file import (
    FileLock,
    StorageError,
    create_private,
    prepare_folder,
)
from clusterops.apiserver.failpoints import (
    COMMIT_AFTER,
    COMMIT_BEFORE,
    COMMIT_BEGUN,
    COMMIT_ROWS,
    OPEN_CREATED,
    OPEN_SCHEMA,
    Failpoint,
)

FORMAT_VERSION = 1  # PRAGMA user_version; a database of a newer one is refused
APPLICATION_ID = 0x636C6F70  # "clop": tells our files from other SQLite databases

_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE objects (
    created INTEGER PRIMARY KEY,  -- the revision that created the object: its row for life
    resource TEXT NOT NULL,       -- "pods", "trainingjobs.clusterops.io"
    namespace TEXT NOT NULL,      -- "" when cluster-scoped
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    checksum INTEGER NOT NULL,    -- CRC-32 of the body: SQLite does not notice damage within
    body BLOB NOT NULL            -- the object as JSON, as it is served
);
CREATE TABLE counter (one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL);
INSERT INTO counter VALUES (1, 1);
PRAGMA application_id = 1668050800;  -- APPLICATION_ID
PRAGMA user_version = 1;  -- FORMAT_VERSION
COMMIT;
"""


_STATEMENT_ROWS = 64
_COLUMNS = 7


@cache
def _insert(rows: int) -> str:
    places = ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * rows)
    return f"INSERT OR REPLACE INTO objects VALUES {places}"  # noqa: S608  (only places)


@cache
def _delete(rows: int) -> str:
    places = ", ".join("?" * rows)
    return f"DELETE FROM objects WHERE created IN ({places})"  # noqa: S608  (only places)


class StorageCorrupt(StorageError):
    """The file is damaged or is no database of ours."""


class StorageTooNew(StorageError):
    """The database was written by a newer version of this program."""


class StorageFull(StorageError):
    """A write did not fit on the disk. Nothing of it is kept; later writes may succeed."""


class StorageFailed(StorageError):
    """The disk failed in a way that makes later writes unsafe; they are refused until a restart."""


class Change(NamedTuple):
    """One write: the row `created` gets `body` (None: it goes) at `revision`."""

    created: int
    revision: int
    resource: str
    namespace: str
    name: str
    body: bytes | None


class Row(NamedTuple):
    """One stored object."""

    created: int
    resource: str
    namespace: str
    name: str
    revision: int
    body: bytes


class Storage:
    """An open database. Made by `open_storage`."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, lock: FileLock, failpoint: Failpoint
    ) -> None:
        self.path = path
        self._connection = connection
        self._lock = lock
        self._failpoint = failpoint

    def revision(self) -> int:
        """The highest revision that was ever committed."""
        row = self._connection.execute("SELECT revision FROM counter WHERE one = 1").fetchone()
        if row is None or not isinstance(row[0], int):
            raise corrupt(self.path, "the resourceVersion counter is missing")
        return row[0]

    def rows(self) -> Iterator[Row]:
        """All objects, in the order in which they were created. Raises StorageCorrupt."""
        try:
            for (
                created,
                resource,
                namespace,
                name,
                revision,
                checksum,
                body,
            ) in self._connection.execute("SELECT * FROM objects"):
                if not isinstance(body, bytes) or crc32(body) != checksum:
                    raise corrupt(
                        self.path, f"the checksum of {resource} {namespace}/{name} is wrong"
                    )
                yield Row(created, resource, namespace, name, revision, body)
        except sqlite3.DatabaseError as error:
            raise corrupt(self.path, str(error)) from error

    def commit(self, changes: Sequence[Change]) -> None:
        """Make all changes durable in one transaction, or none of them.

        Raises StorageFull when they do not fit (the next call may succeed) and StorageFailed when
        the disk can no longer be trusted.
        """
        execute = self._connection.execute
        try:
            execute("BEGIN IMMEDIATE")
            self._failpoint.passed(COMMIT_BEGUN)
            self._write_rows(changes)
            self._failpoint.passed(COMMIT_ROWS)
            execute("UPDATE counter SET revision = ? WHERE one = 1", (changes[-1].revision,))
            self._failpoint.passed(COMMIT_BEFORE)
            execute("COMMIT")
            self._failpoint.passed(COMMIT_AFTER)
        except sqlite3.Error as error:
            raise self._rolled_back(error) from error

    def _write_rows(self, changes: Sequence[Change]) -> None:
        """Write all rows in few statements.

        Between statements this thread gives the interpreter to the event loop and waits to get it
        back, which costs more than a row.
        """
        execute = self._connection.execute
        written: list[int | str | bytes] = []
        removed: list[int] = []
        for created, revision, resource, namespace, name, body in changes:
            if body is None:
                removed.append(created)
            else:
                written += (created, resource, namespace, name, revision, crc32(body), body)
        # Of several writes of one row in a batch the last one stays. A row that is written and
        # removed ends removed: rows are never reused, so that removals may all come last.
        for start in range(0, len(written), _STATEMENT_ROWS * _COLUMNS):
            values = written[start : start + _STATEMENT_ROWS * _COLUMNS]
            execute(_insert(len(values) // _COLUMNS), values)
        for start in range(0, len(removed), _STATEMENT_ROWS):
            rows = removed[start : start + _STATEMENT_ROWS]
            execute(_delete(len(rows)), rows)

    def _rolled_back(self, error: sqlite3.Error) -> StorageError:
        """Undo the open transaction; the error that says what that leaves."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as second:
            return StorageFailed(f"{self.path}: {error}, and undoing it failed too: {second}")
        # After a failed fsync the kernel may have dropped the pages, so that a second fsync would
        # succeed without anything on the disk: only a restart reads what is really there.
        if error.sqlite_errorname in {"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE"}:
            return StorageFull(
                f"no space for {self.path}: free some, writing then goes on by itself ({error})"
            )
        return StorageFailed(
            f"{self.path} cannot be written ({error.sqlite_errorname}: {error}); "
            "check the disk and restart the server"
        )

    def close(self) -> None:
        """Move the write-ahead log into the file, close it, give the lock back."""
        try:
            self._connection.close()
        finally:
            self._lock.release()


def open_storage(path: Path, failpoint: Failpoint | None = None) -> Storage:
    """Open the database at `path`, create it when there is none, check that it is whole.

    Raises the family of StorageError: unsafe place, locked by another server, read-only, of a newer
    version, damaged.
    """
    failpoint = failpoint or Failpoint()
    prepare_folder(path.parent)
    lock = FileLock(path.with_name(path.name + ".lock"))
    try:
        create_private(path)
        failpoint.passed(OPEN_CREATED)
        connection = sqlite3.connect(
            path,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=2 * _STATEMENT_ROWS + 16,
        )
        try:
            _configure(path, connection, failpoint)
        except BaseException:
            connection.close()
            raise
    except BaseException:
        lock.release()
        raise
    return Storage(path, connection, lock, failpoint)


def corrupt(path: Path, why: str) -> StorageCorrupt:
    """The file cannot be trusted; the text tells how to go on without losing what is in it."""
    return StorageCorrupt(
        f"{path} is damaged ({why}). Nothing was changed. Restore a copy, or move {path.name}, "
        f"{path.name}-wal and {path.name}-shm away together and start again with an empty database"
    )


def _configure(path: Path, connection: sqlite3.Connection, failpoint: Failpoint) -> None:
    try:
        # Exclusive before the first access: the index of the log then lives in this process's
        # memory, and no other program can write behind our back.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if application == APPLICATION_ID and version > FORMAT_VERSION:
            raise StorageTooNew(
                f"{path} has format {version}, this program knows {FORMAT_VERSION}: upgrade it, "
                "or choose another state folder"
            )
        if tables and application != APPLICATION_ID:
            raise corrupt(path, "it is a SQLite database, but not one of ours")
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StorageError(f"{path}: the file system does not allow a write-ahead log")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        if not tables:
            connection.executescript(_SCHEMA)
            failpoint.passed(OPEN_SCHEMA)
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise corrupt(path, found)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname in {"SQLITE_READONLY", "SQLITE_CANTOPEN"} or (
            error.sqlite_errorname.startswith("SQLITE_READONLY")
        ):
            raise StorageError(
                f"{path} is read-only ({error}); make it and its folder writable"
            ) from error
        if error.sqlite_errorname in {"SQLITE_FULL", "SQLITE_IOERR_WRITE"}:
            raise StorageFull(f"no space to open {path}: free some and start again") from error
        if error.sqlite_errorname == "SQLITE_BUSY":
            raise StorageError(f"{path} is open in another program; close it first") from error
        raise StorageError(f"{path} cannot be opened: {error}") from error
    except sqlite3.DatabaseError as error:
        raise corrupt(path, str(error)) from error
