"""What this node's daemon remembers: events, incidents, how far each source was read, counts.

One SQLite file in WAL mode with full synchronisation. Events and the position they were read up to
are one transaction, so a kill at any moment neither loses an event nor takes one twice. When the
disk is full nothing is written and nothing is lost that can be read again: `LedgerFull` says so, the
position stays, and the next write tries again.

Not for use from several threads at once.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from health.events import Event
from health.timeline import Boot

SCHEMA_VERSION = 1
KEEP_SECONDS = 14 * 86_400.0
KEEP_EVENTS = 400_000
BUSY_SECONDS = 5.0

_SCHEMA = (
    "CREATE TABLE boots (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, base REAL NOT NULL,"
    " wall_offset REAL NOT NULL, uptime REAL NOT NULL) STRICT",
    "CREATE TABLE events (id INTEGER PRIMARY KEY, at REAL NOT NULL, boot TEXT NOT NULL,"
    " source TEXT NOT NULL, sequence INTEGER, body BLOB NOT NULL) STRICT",
    "CREATE UNIQUE INDEX one_record_once ON events (boot, source, sequence)"
    " WHERE sequence IS NOT NULL",
    "CREATE INDEX by_time ON events (at)",
    "CREATE TABLE incidents (id TEXT PRIMARY KEY, opened_at REAL NOT NULL, closed_at REAL,"
    " body BLOB NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE positions (source TEXT PRIMARY KEY, boot TEXT NOT NULL, sequence INTEGER,"
    " cursor TEXT NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE counts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
)


class LedgerError(Exception):
    """The ledger cannot be used; the text says which file, why, and what to do about it."""


class LedgerFull(LedgerError):
    """Nothing was written because the disk is full or fails. May pass: the same can be tried again."""


class LedgerInUse(LedgerError):
    """Another daemon has this ledger open."""


class Position(NamedTuple):
    """How far a source was read."""

    boot: str
    sequence: int | None = None
    cursor: str = ""
    """The journal's own word for the place."""


class StoredIncident(NamedTuple):
    """An incident as it is kept; `body` is its JSON, times are on the node's line of time."""

    id: str
    opened_at: float
    closed_at: float | None
    body: bytes


_INSERT = "INSERT OR IGNORE INTO events (at, boot, source, sequence, body) VALUES (?, ?, ?, ?, ?)"
_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(Event).decode


class Ledger:
    """An open ledger; at most one at a time for a file."""

    def __init__(
        self, path: Path, *, keep_seconds: float = KEEP_SECONDS, keep_events: int = KEEP_EVENTS
    ) -> None:
        """Opens the file or creates it, for this user alone.

        A file that is no database any more is set aside and a new one begun: what the kernel's log
        still holds is read again. Raises LedgerError, LedgerInUse.
        """
        self.path = path
        self.set_aside: Path | None = None
        """Where a broken ledger was moved to, None when there was none."""
        self._keep_seconds = keep_seconds
        self._keep_events = keep_events
        self._lock = _lock(path)
        try:
            self._db = self._open()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and not _broken(error):
                self._unlock()
                raise LedgerError(f"cannot open {path}: {error}; check the disk") from error
            self._move_aside()
            self._db = self._open()
        except LedgerError:
            self._unlock()
            raise

    def close(self) -> None:
        """Closes the file."""
        self._db.close()
        self._unlock()

    # Time

    def boots(self) -> list[Boot]:
        """Every boot that was seen, oldest first."""
        rows = self._db.execute(
            "SELECT number, id, base, wall_offset, uptime FROM boots ORDER BY number"
        )
        return [Boot(*row) for row in rows]

    def latest(self, boot: str) -> float | None:
        """The place in time of the latest event that is kept of a boot, None when there is none."""
        row = self._db.execute("SELECT MAX(at) FROM events WHERE boot = ?", (boot,)).fetchone()
        latest: float | None = row[0]
        return latest

    def save_boot(self, boot: Boot) -> None:
        """Keeps a boot, or what is newly known of it. Raises LedgerFull."""
        with _Writing(self):
            self._db.execute("INSERT OR REPLACE INTO boots VALUES (?, ?, ?, ?, ?)", boot)

    # Events

    def record(
        self,
        events: Sequence[Event],
        *,
        positions: Mapping[str, Position] | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> list[Event]:
        """Keeps events, how far their source was read, and adds to counts: all or nothing.

        Returns those that were not known before. Raises LedgerFull.
        """
        with _Writing(self):
            new = self._insert(events)
            for source, position in (positions or {}).items():
                self._db.execute(
                    "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?)", (source, *position)
                )
            for name, amount in (counts or {}).items():
                self._db.execute(
                    "INSERT INTO counts VALUES (?, ?)"
                    " ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
                    (name, amount),
                )
        return new

    def _insert(self, events: Sequence[Event]) -> list[Event]:
        """Keeps events within a transaction that is open; returns those that were not known before."""
        rows = [
            (event.at, event.boot, event.source.value, event.sequence, _ENCODE(event))
            for event in events
        ]
        # In a burst all are news, and one statement for all of them costs half of one for each.
        self._db.execute("SAVEPOINT burst")
        kept = self._db.executemany(_INSERT, rows).rowcount
        if kept == len(rows):
            self._db.execute("RELEASE burst")
            return list(events)
        self._db.execute("ROLLBACK TO burst")
        self._db.execute("RELEASE burst")
        return [
            event
            for event, row in zip(events, rows, strict=True)
            if self._db.execute(_INSERT, row).rowcount
        ]

    def events(self, since: float = float("-inf")) -> Iterator[Event]:
        """The events from a moment on, in the order they were kept; rows that broke are passed over."""
        for (body,) in self._db.execute(
            "SELECT body FROM events WHERE at >= ? ORDER BY id", (since,)
        ):
            try:
                yield _DECODE(body)
            except (msgspec.DecodeError, ValueError):
                continue

    def position(self, source: str) -> Position | None:
        """How far a source was read, None when it never was."""
        row = self._db.execute(
            "SELECT boot, sequence, cursor FROM positions WHERE source = ?", (source,)
        ).fetchone()
        return Position(*row) if row is not None else None

    def counts(self) -> dict[str, int]:
        """All counts, by name."""
        return dict(self._db.execute("SELECT name, value FROM counts ORDER BY name"))

    # Incidents and notes

    def save_incidents(self, incidents: Iterable[StoredIncident]) -> None:
        """Keeps incidents as they are now. Raises LedgerFull."""
        with _Writing(self):
            self._db.executemany("INSERT OR REPLACE INTO incidents VALUES (?, ?, ?, ?)", incidents)

    def incidents(self) -> list[StoredIncident]:
        """All incidents that are kept, oldest first."""
        rows = self._db.execute(
            "SELECT id, opened_at, closed_at, body FROM incidents ORDER BY opened_at, id"
        )
        return [StoredIncident(*row) for row in rows]

    def note(self, name: str) -> str | None:
        """A remembered word, None when there is none."""
        row = self._db.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        return row[0] if row is not None else None

    def save_note(self, name: str, value: str) -> None:
        """Remembers a word. Raises LedgerFull."""
        with _Writing(self):
            self._db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, value))

    # Retention

    def prune(self, now: float) -> int:
        """Drops what is too old or too much; returns how many events went. Raises LedgerFull.

        Open incidents stay however old they are.
        """
        with _Writing(self):
            before = now - self._keep_seconds
            gone = self._db.execute("DELETE FROM events WHERE at < ?", (before,)).rowcount
            newest = self._db.execute("SELECT max(id) FROM events").fetchone()[0]
            if newest is not None:
                gone += self._db.execute(
                    "DELETE FROM events WHERE id <= ?", (newest - self._keep_events,)
                ).rowcount
            self._db.execute("DELETE FROM incidents WHERE closed_at < ?", (before,))
        self._db.execute("PRAGMA incremental_vacuum(2000)").fetchall()
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return gone

    # Opening

    def _open(self) -> sqlite3.Connection:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.close(descriptor)
        db = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            db.execute("PRAGMA journal_mode = WAL").fetchone()
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA cache_size = -2000")
            if version > SCHEMA_VERSION:
                raise LedgerError(
                    f"{self.path} was written by a newer release (schema {version}, this one knows "
                    f"{SCHEMA_VERSION}); run that release or name another file"
                )
            if version == 0:
                db.execute("BEGIN IMMEDIATE")
                for statement in _SCHEMA:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                db.execute("COMMIT")
            elif db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("the quick check failed")
        except BaseException:
            db.close()
            raise
        return db

    def _move_aside(self) -> None:
        number = 0
        while (aside := self.path.with_name(f"{self.path.name}.broken-{number}")).exists():
            number += 1
        self.path.rename(aside)
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self.set_aside = aside

    def _unlock(self) -> None:
        os.close(self._lock)


class _Writing:
    """One transaction: committed at the end, rolled back on any error."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._db = ledger._db

    def __enter__(self) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise self._full(error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        del kind, trace
        if error is None:
            try:
                self._db.execute("COMMIT")
                return
            except sqlite3.OperationalError as failed:
                self._roll_back()
                raise self._full(failed) from failed
        self._roll_back()
        if isinstance(error, sqlite3.OperationalError):
            raise self._full(error) from error

    def _roll_back(self) -> None:
        # SQLite has rolled back by itself after some errors.
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _full(self, error: sqlite3.OperationalError) -> LedgerFull:
        return LedgerFull(
            f"cannot write {self._ledger.path}: {error}; nothing is forgotten, but make room on its disk"
        )


def _broken(error: sqlite3.OperationalError) -> bool:
    """Whether the file itself is wrong, and not the disk or somebody's lock."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _lock(path: Path) -> int:
    """Takes the file's lock; it goes with the process, however that ends."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(
            path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
    except OSError as error:
        raise LedgerError(
            f"cannot create {path}: {error.strerror}; choose a folder that can be written"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise LedgerInUse(
            f"another health daemon uses {path}; stop it or name another file"
        ) from error
    return descriptor
