"""Finds, verifies and loads checkpoints; puts damaged ones aside.

Only directories that look like ours and are no links are considered, newest (epoch, step) first. A
checkpoint counts when its manifest is whole and every file has the listed size; its checksums are
verified while it is loaded.
"""

import errno
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterops.train.disk import Disk, Kind, read_whole
from clusterops.train.errors import CorruptCheckpoint
from clusterops.train.manifest import (
    CHECKPOINT_NAME,
    MANIFEST_LIMIT_BYTES,
    MANIFEST_NAME,
    QUARANTINED_NAME,
    Manifest,
    checkpoint_name,
    quarantined_name,
)
from clusterops.train.shards import read_rank, verify_file

# What the disk says about blocks that are gone for good, as opposed to "not now" or "not you".
_DAMAGE = frozenset({errno.EIO, errno.EUCLEAN, errno.EISDIR, errno.ELOOP})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A directory with a valid manifest. `path` is the directory, `manifest_sha256` the hash of the
    manifest's file.
    """

    path: Path
    manifest: Manifest
    manifest_sha256: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A directory named like a checkpoint that isn't one, and why."""

    path: Path
    step: int
    reason: str


def survey(disk: Disk, directory: Path) -> tuple[list[Candidate], list[Rejected]]:
    """All checkpoints by manifest, newest first, and everything else that bears their name.

    Raises:
        UnsupportedFormat: one was written by a newer version of this library.
        OSError: the directory can't be read.
    """
    found: list[Candidate] = []
    rejected: list[Rejected] = []
    for entry in disk.entries(directory):
        match = CHECKPOINT_NAME.fullmatch(entry.name)
        if match is None or entry.kind is not Kind.DIRECTORY:
            continue
        path = directory / entry.name
        step = int(match.group(1))
        try:
            found.append(inspect(disk, path, step))
        except CorruptCheckpoint as error:
            rejected.append(Rejected(path, step, str(error)))
    found.sort(key=lambda one: one.manifest.order, reverse=True)
    return found, rejected


def load(disk: Disk, candidate: Candidate, rank: int) -> Any:
    """One rank's state, verified.

    Raises:
        CorruptCheckpoint: it does not match its manifest.
        OSError: it can't be read now, which says nothing about the checkpoint.
    """
    files = {record.name: record for record in candidate.manifest.files}
    try:
        return read_rank(disk, candidate.path, rank, files)
    except OSError as error:
        raise _as_damage(error) from error


def verify(disk: Disk, candidate: Candidate, *, skip_ranks: frozenset[int] = frozenset()) -> None:
    """Checks every file but those of `skip_ranks`, which verify their own while loading.

    Raises:
        CorruptCheckpoint: one does not match the manifest.
        OSError: one can't be read now.
    """
    for record in candidate.manifest.files:
        if int(record.name.split("_")[1].removesuffix(".json")) in skip_ranks:
            continue
        try:
            verify_file(disk, candidate.path, record)
        except OSError as error:
            raise _as_damage(error) from error


def has_quarantined(disk: Disk, directory: Path) -> bool:
    """Whether damaged checkpoints were put aside here, now or by an earlier attempt."""
    return any(QUARANTINED_NAME.fullmatch(entry.name) for entry in disk.entries(directory))


def quarantine(disk: Disk, path: Path, step: int) -> Path:
    """Renames a damaged checkpoint out of the way; returns where it is now."""
    taken = [
        int(match.group(1))
        for entry in disk.entries(path.parent)
        if (match := QUARANTINED_NAME.fullmatch(entry.name))
    ]
    target = path.parent / quarantined_name(max(taken, default=0) + 1, step)
    disk.rename(path, target)
    disk.sync_directory(path.parent)
    return target


def inspect(disk: Disk, path: Path, step: int) -> Candidate:
    """One directory that is called the checkpoint of this step; reads the manifest and the sizes.

    Raises:
        CorruptCheckpoint: it isn't one.
        UnsupportedFormat: it was written by a newer version of this library.
        OSError: it can't be read now.
    """
    try:
        content = read_whole(disk, path / MANIFEST_NAME, MANIFEST_LIMIT_BYTES)
    except FileNotFoundError:
        raise CorruptCheckpoint("it has no manifest: it was never committed") from None
    except OSError as error:
        raise _as_damage(error) from error
    manifest = Manifest.from_bytes(content)
    if manifest.step != step:
        raise CorruptCheckpoint(
            f"its manifest is that of {checkpoint_name(manifest.step)}: it was renamed"
        )
    _check_sizes(disk, path, manifest)
    return Candidate(path, manifest, hashlib.sha256(content).hexdigest())


def _check_sizes(disk: Disk, path: Path, manifest: Manifest) -> None:
    for record in manifest.files:
        try:
            handle = disk.open(path / record.name)
        except FileNotFoundError:
            raise CorruptCheckpoint(f"{record.name} is missing") from None
        except OSError as error:
            raise _as_damage(error) from error
        try:
            size = disk.size(handle)
        finally:
            disk.close(handle)
        if size != record.size:
            raise CorruptCheckpoint(f"{record.name} has {size} bytes instead of {record.size}")


def _as_damage(error: OSError) -> Exception:
    """A damaged file's error as CorruptCheckpoint; any other as it is."""
    if error.errno in _DAMAGE:
        return CorruptCheckpoint(f"the disk can't read it: {error}")
    return error
