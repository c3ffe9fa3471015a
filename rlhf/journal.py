"""The journal of a run on disk: appended to, made durable per batch, compacted, never rewritten.

`journal/rewards.journal` in the run folder. One process writes it (a lock says so); anybody may
read it, also while it grows.
"""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from rlhf.journal_compaction import base_for, compacted
from rlhf.journal_frames import FrameReader, JournalDamaged, Numbered, Tail, framed
from rlhf.journal_records import FORMAT, AnyRecord, Durable, Record, Started

__all__ = ["ForeignJournal", "JournalDamaged", "JournalError", "JournalInUse", "JournalWriter"]

FOLDER = "journal"
NAME = "rewards.journal"
_LOCK = "lock"
_PIECE_BYTES = 1 << 20


class JournalError(Exception):
    """The journal cannot be used; says why and what to do."""


class ForeignJournal(JournalError):
    """The folder holds the journal of another run, or of other sizes."""


class JournalInUse(JournalError):
    """Another process writes this journal."""


class Disk(Protocol):
    """The calls that reach the disk; tests put a crash between any two of them."""

    def open_append(self, path: Path) -> FileIO:
        """Opens a file for unbuffered reading and appending, creating it if need be."""
        ...

    def sync(self, file: FileIO) -> None:
        """Returns when the file's content is on the disk."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Returns when the folder's entries are on the disk."""
        ...

    def replace(self, old: Path, new: Path) -> None:
        """Renames atomically."""
        ...


class RealDisk:
    """The operating system's."""

    def open_append(self, path: Path) -> FileIO:
        return FileIO(path, "a+")

    def sync(self, file: FileIO) -> None:
        os.fsync(file.fileno())

    def sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, old: Path, new: Path) -> None:
        old.replace(new)


def path_in(run_folder: Path) -> Path:
    """Where a run's journal lies."""
    return run_folder / FOLDER / NAME


def read(path: Path) -> Iterator[Numbered]:
    """The intact records of a journal, also of one that is being written.

    Raises:
        FileNotFoundError: there is none.
        JournalDamaged: durable bytes have changed.
        JournalError: it does not begin as a journal does, or is of a newer version.
    """
    with path.open("rb") as source:
        yield from _checked(FrameReader(source), path)


def _checked(records: FrameReader, path: Path) -> Iterator[Numbered]:
    rest = iter(records)
    for numbered in rest:
        _check_start(numbered.record, path)
        yield numbered
        break
    yield from rest
    if records.tail.end == 0 and records.tail.torn_bytes and not _may_be_torn_start(path):
        raise JournalError(f"{path} does not begin with the start of a run: no journal of ours")


def _may_be_torn_start(path: Path) -> bool:
    """Whether the first record may have been cut short by a crash: then nothing was ever durable."""
    with path.open("rb") as source:
        start = source.read(2)
    return framed(0, Durable(0)).startswith(start)


def _check_start(record: AnyRecord, path: Path) -> None:
    if not isinstance(record, Started):
        raise JournalError(f"{path} does not begin with the start of a run: no journal of ours")
    if record.format > FORMAT:
        raise JournalError(
            f"{path} has format {record.format}, this program knows {FORMAT}: use a newer version"
        )


class JournalWriter:
    """Appends records. `append` may lose them in a crash; after `sync` no crash can.

    For one thread, but that `force` and `compact` may run in another while records are appended
    (and neither flushed nor synced).
    """

    def __init__(
        self,
        path: Path,
        *,
        each: Callable[[Numbered], None] | None = None,
        disk: Disk | None = None,
    ) -> None:
        """Takes the lock, reads what is there (`each` gets every record), cuts off a torn tail.

        Raises:
            JournalInUse: another process writes it.
            JournalDamaged: durable bytes have changed.
            JournalError: the file is no journal, or of a newer version.
        """
        self.path = path
        self._disk = disk or RealDisk()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(path.parent / _LOCK)
        try:
            self.tail = self._read(each)
            self._file = self._disk.open_append(path)
        except BaseException:
            self._lock.close()
            raise
        self.next_number = self.tail.next_number
        self._pending: list[bytes] = []
        self._marked = self.next_number
        self._broken = ""
        if self.tail.torn_bytes:
            self._file.truncate(self.tail.end)
        if self.tail.torn_bytes or not self.tail.end:
            self._disk.sync(self._file)
            self._disk.sync_folder(path.parent)

    def _read(self, each: Callable[[Numbered], None] | None) -> Tail:
        try:
            with self.path.open("rb") as source:
                reader = FrameReader(source)
                for numbered in _checked(reader, self.path):
                    if each is not None:
                        each(numbered)
                return reader.tail
        except FileNotFoundError:
            return Tail(0, 0, 0)

    def append(self, record: Record) -> int:
        """Notes a record down, in memory until the next flush or sync; returns its number."""
        number = self.next_number
        self._pending.append(framed(number, record))
        self.next_number = number + 1
        return number

    def extend(self, records: list[Record]) -> None:
        """Notes several records down."""
        for record in records:
            self.append(record)

    def flush(self) -> int:
        """Hands what was appended to the operating system; returns the number of the next record.

        Raises:
            JournalError: an earlier write failed, so the end of the file is not known.
            OSError: the disk refuses; the journal cannot be written any more.
        """
        if self._broken:
            raise JournalError(f"{self.path} cannot be written since: {self._broken}")
        content = b"".join(self._pending)
        self._pending = []
        try:
            _write_all(self._file, content)
        except OSError as error:
            # Half a record may be in the file; more behind it would look like damage.
            self._broken = str(error)
            raise
        return self.next_number

    def force(self) -> None:
        """Waits until what was flushed is on the disk.

        Raises:
            OSError: the disk refuses. What was written may be lost: never try again.
        """
        try:
            self._disk.sync(self._file)
        except OSError as error:
            self._broken = str(error)
            raise

    def mark(self, upto: int) -> None:
        """Notes that the records before number `upto` are durable, once per sync."""
        if upto > self._marked:
            self._marked = self.append(Durable(upto)) + 1

    def sync(self) -> int:
        """Makes everything appended durable; returns the number of the next record."""
        upto = self.flush()
        self.force()
        self.mark(upto)
        return upto

    def compact(self, trained: int) -> None:
        """Removes what concerns only batches below `trained`, which no checkpoint comes back to.

        Everything appended must be flushed. A crash at any point leaves the old or the new file.

        Raises:
            CannotCompact: those batches were not trained.
        """
        with self.path.open("rb") as source:
            base = base_for(FrameReader(source), trained)
        fresh = self.path.with_suffix(".compacting")
        fresh.unlink(missing_ok=True)
        file = self._disk.open_append(fresh)
        try:
            with self.path.open("rb") as source:
                kept = compacted(FrameReader(source), base)
                _write_in_pieces(file, (framed(*each) for each in kept))
            self._disk.sync(file)
            self._disk.replace(fresh, self.path)
        except BaseException:
            file.close()
            raise
        self._disk.sync_folder(self.path.parent)
        self._file.close()
        self._file = file

    def close(self) -> None:
        """Flushes (a crash after this may still lose what was not synced) and gives up the lock."""
        try:
            if not self._broken:
                self.flush()
        finally:
            self._file.close()
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _write_in_pieces(file: FileIO, frames: Iterable[bytes]) -> None:
    """Writes frames, a megabyte at a time."""
    pieces: list[bytes] = []
    size = 0
    for frame in frames:
        pieces.append(frame)
        size += len(frame)
        if size >= _PIECE_BYTES:
            _write_all(file, b"".join(pieces))
            pieces, size = [], 0
    _write_all(file, b"".join(pieces))


def _write_all(file: FileIO, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


def _locked(path: Path) -> FileIO:
    lock = FileIO(path, "a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise JournalInUse(
            f"{path.parent} is being written by another process: wait for it or stop it"
        ) from None
    return lock
