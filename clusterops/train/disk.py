"""The file operations that checkpoints are made of, one method a system call.

Everything that reads or writes a checkpoint directory goes through a `Disk`, so that a test can
stop the world after any single call and drop what was not yet synced. Links are never followed.
"""

import os
import stat
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

CHUNK_BYTES = 8 << 20


class Kind(StrEnum):
    """What a directory entry is. Anything but FILE and DIRECTORY is left alone."""

    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"


class Entry(NamedTuple):
    """One name in a directory."""

    name: str
    kind: Kind


class Disk(Protocol):
    """The calls in use. All of them raise OSError as the operating system does."""

    def entries(self, path: Path) -> list[Entry]:
        """The directory's entries, sorted by name; a link to a directory is refused."""

    def make_directory(self, path: Path) -> None:
        """Creates one directory; FileExistsError when the name is taken."""

    def create(self, path: Path) -> int:
        """Creates a file that must not exist, for writing."""

    def open(self, path: Path) -> int:
        """Opens an existing regular file for reading; a link is refused."""

    def size(self, handle: int) -> int:
        """Bytes in an open file."""

    def write(self, handle: int, data: memoryview) -> int:
        """Writes some of `data`, and says how many bytes."""

    def read(self, handle: int, into: memoryview) -> int:
        """Fills some of `into`, and says how many bytes; 0 at the end."""

    def sync(self, handle: int) -> None:
        """Returns when the file's content is on stable storage."""

    def close(self, handle: int) -> None:
        """Closes an open file."""

    def rename(self, source: Path, target: Path) -> None:
        """Renames within one directory, at once or not at all."""

    def sync_directory(self, path: Path) -> None:
        """Returns when the directory's names are on stable storage."""

    def remove_file(self, path: Path) -> None:
        """Removes one name of a file."""

    def remove_directory(self, path: Path) -> None:
        """Removes an empty directory."""


class PosixDisk:
    """The operating system's own."""

    def entries(self, path: Path) -> list[Entry]:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            with os.scandir(handle) as found:
                return sorted(Entry(entry.name, _kind(entry)) for entry in found)
        finally:
            os.close(handle)

    def make_directory(self, path: Path) -> None:
        path.mkdir()

    def create(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def open(self, path: Path) -> int:
        # O_NONBLOCK: a named pipe in the place of a file must not stop the job.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        handle = os.open(path, flags)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise FileNotFoundError(f"{path} is not a regular file")
        return handle

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def write(self, handle: int, data: memoryview) -> int:
        return os.write(handle, data)

    def read(self, handle: int, into: memoryview) -> int:
        return os.readv(handle, [into])

    def sync(self, handle: int) -> None:
        os.fsync(handle)

    def close(self, handle: int) -> None:
        os.close(handle)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)  # refuses a target directory that is not empty, as is wanted

    def sync_directory(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def remove_file(self, path: Path) -> None:
        path.unlink()

    def remove_directory(self, path: Path) -> None:
        path.rmdir()


def write_whole(disk: Disk, path: Path, content: bytes) -> None:
    """Creates a file with this content and syncs it. The name itself still needs a directory sync."""
    handle = disk.create(path)
    try:
        write_all(disk, handle, memoryview(content))
        disk.sync(handle)
    finally:
        disk.close(handle)


def write_all(disk: Disk, handle: int, data: memoryview) -> None:
    """Writes every byte, in chunks."""
    while data:
        written = disk.write(handle, data[:CHUNK_BYTES])
        if written <= 0:
            raise OSError(f"a write of {len(data)} bytes made no progress")
        data = data[written:]


def read_whole(disk: Disk, path: Path, limit: int) -> bytes:
    """A small file's content.

    Raises:
        OSError: also when the file is larger than `limit` bytes.
    """
    handle = disk.open(path)
    try:
        size = disk.size(handle)
        if size > limit:
            raise OSError(f"{path} has {size} bytes, more than the {limit} expected of it")
        content = bytearray(size)
        filled = read_full(disk, handle, memoryview(content))
        return bytes(content[:filled])
    finally:
        disk.close(handle)


def read_full(disk: Disk, handle: int, into: memoryview) -> int:
    """Fills `into` as far as the file reaches; returns the bytes read."""
    filled = 0
    while filled < len(into):
        count = disk.read(handle, into[filled : filled + CHUNK_BYTES])
        if count == 0:
            break
        filled += count
    return filled


def _kind(entry: "os.DirEntry[str]") -> Kind:
    if entry.is_file(follow_symlinks=False):
        return Kind.FILE
    if entry.is_dir(follow_symlinks=False):
        return Kind.DIRECTORY
    return Kind.OTHER
