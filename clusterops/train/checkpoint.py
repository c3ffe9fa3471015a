"""A checkpoint directory in the hands of one attempt: claim, write, commit, load, prune.

One rank (0) claims and commits; every rank writes and reads its own shards. Nothing here talks to
other ranks, and nothing here knows what a training step is: `saving` joins the two.
"""

import contextlib
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusterops.train import fencing, reader, retention, shards
from clusterops.train.disk import Disk, Kind, PosixDisk, write_whole
from clusterops.train.manifest import (
    MANIFEST_NAME,
    FileRecord,
    Identity,
    Manifest,
    checkpoint_name,
    staging_name,
)
from clusterops.train.reader import Candidate
from clusterops.train.serialization import Encoded

log = logging.getLogger("clusterops.train")


@dataclass(frozen=True, slots=True)
class Committed:
    """A checkpoint that is safely on disk. `manifest_sha256` is that of the manifest's file."""

    step: int
    manifest_sha256: str
    path: Path


@dataclass(slots=True)
class CheckpointDirectory:
    """One directory, claimed for `epoch` by `open_directory` or joined by the other ranks."""

    path: Path
    identity: Identity
    epoch: int
    disk: Disk = field(default_factory=PosixDisk)
    keep: int = retention.KEEP_AT_LEAST
    shard_bytes: int = shards.SHARD_BYTES
    verified: set[tuple[int, int]] = field(default_factory=set)
    resumed_from: tuple[int, int] | None = None

    # Writing.

    def stage(self, step: int) -> Path:
        """Makes the empty folder that a checkpoint's shards are written to.

        Raises:
            StaleAttempt: a newer attempt has taken over.
        """
        fencing.require_newest(self.disk, self.path, self.epoch)
        folder = self.staging(step)
        with contextlib.suppress(FileNotFoundError):
            retention.remove_folder(self.disk, folder)  # of a save of this step that failed
        self.disk.make_directory(folder)
        return folder

    def staging(self, step: int) -> Path:
        """Where the shards of this step go."""
        return self.path / staging_name(self.epoch, step)

    def write(self, step: int, rank: int, state: Encoded) -> list[FileRecord]:
        """Writes one rank's shards, synced.

        Raises:
            StaleAttempt: a newer attempt has taken over, and swept the folder away.
            OSError: the disk refuses.
        """
        try:
            return shards.write_rank(
                self.disk, self.staging(step), rank, state, shard_bytes=self.shard_bytes
            )
        except OSError:
            fencing.require_newest(self.disk, self.path, self.epoch)
            raise

    def commit(
        self,
        step: int,
        files: list[FileRecord],
        *,
        world_size: int,
        resume: Mapping[str, Any],
        order_digest: str = "",
        permanent: bool = False,
    ) -> Committed:
        """Makes the staged shards a checkpoint: manifest, rename, sync. Then prunes old ones.

        Raises:
            StaleAttempt: a newer attempt has taken over; nothing was committed.
            OSError: the disk refuses; nothing was committed.
        """
        manifest = Manifest(
            step=step,
            epoch=self.epoch,
            identity=self.identity,
            world_size=world_size,
            files=tuple(sorted(files, key=lambda record: record.name)),
            resume=resume,
            order_digest=order_digest,
            permanent=permanent,
        )
        content = manifest.to_bytes()
        folder = self.staging(step)
        target = self.path / checkpoint_name(step)
        try:
            write_whole(self.disk, folder / MANIFEST_NAME, content)
            self.disk.sync_directory(folder)
            fencing.require_newest(self.disk, self.path, self.epoch)
            self._make_way(target, step)
            self.disk.rename(folder, target)
        except OSError:
            fencing.require_newest(self.disk, self.path, self.epoch)
            raise
        self.disk.sync_directory(self.path)
        self.verified.add(manifest.order)
        self._prune()
        return Committed(step, hashlib.sha256(content).hexdigest(), target)

    def abandon(self, step: int) -> None:
        """Removes what a failed save left, as far as the disk lets us."""
        with contextlib.suppress(OSError):
            retention.remove_folder(self.disk, self.staging(step))

    def _make_way(self, target: Path, step: int) -> None:
        """Removes what bears the name already: a stale attempt's commit, or our own of before."""
        kind = next(
            (one.kind for one in self.disk.entries(self.path) if one.name == target.name), None
        )
        if kind is None:
            return
        if kind is not Kind.DIRECTORY:
            raise FileExistsError(
                f"{target} is not a checkpoint of ours and is in the way; move it"
            )
        log.warning("checkpoint_superseded step=%d", step)
        retention.discard(self.disk, target, self.epoch, step)

    def _prune(self) -> None:
        """Removes superfluous checkpoints. A failure is told and repeated next time: it costs room,
        not work.
        """
        try:
            found, _ = reader.survey(self.disk, self.path)
            manifests = [one.manifest for one in found]
            for manifest in retention.superfluous(
                manifests, self.verified, self.resumed_from, self.keep
            ):
                path = self.path / checkpoint_name(manifest.step)
                retention.discard(self.disk, path, manifest.epoch, manifest.step)
        except OSError as error:
            log.warning("an old checkpoint could not be removed: %s", error)

    # Reading.

    def candidates(self) -> list[Candidate]:
        """What might be resumed from, newest first; whatever is no checkpoint is put aside."""
        found, rejected = reader.survey(self.disk, self.path)
        for one in rejected:
            self.reject(one.path, one.step, one.reason)
        return found

    def load(self, candidate: Candidate, rank: int) -> Any:
        """One rank's verified state; see `reader.load`."""
        return reader.load(self.disk, candidate, rank)

    def verify(self, candidate: Candidate, *, skip_ranks: frozenset[int]) -> None:
        """Checks the files that no rank loads; see `reader.verify`."""
        reader.verify(self.disk, candidate, skip_ranks=skip_ranks)

    def reject(self, path: Path, step: int, reason: str) -> None:
        """Quarantines a checkpoint that can't be used.

        Raises:
            StaleAttempt: it is a newer attempt's to judge.
        """
        fencing.require_newest(self.disk, self.path, self.epoch)
        aside = reader.quarantine(self.disk, path, step)
        log.warning("checkpoint_rejected step=%d reason=%r moved=%s", step, reason, aside.name)

    def accept(self, candidate: Candidate) -> Committed:
        """Records that this checkpoint was verified and resumed from."""
        self.resumed_from = candidate.manifest.order
        self.verified.add(candidate.manifest.order)
        return Committed(candidate.manifest.step, candidate.manifest_sha256, candidate.path)


def open_directory(
    path: Path,
    identity: Identity,
    *,
    disk: Disk | None = None,
    keep: int = retention.KEEP_AT_LEAST,
    adopt: bool = False,
) -> CheckpointDirectory:
    """Claims a directory for this attempt and clears away what dead attempts left half done.

    Raises:
        DirectoryRefused: it belongs to another job, and `adopt` is False.
        StaleAttempt: a later attempt has been here.
    """
    disk = disk or PosixDisk()
    epoch = fencing.claim(disk, path, identity, adopt=adopt)
    try:
        retention.sweep(disk, path, epoch)
    except FileNotFoundError:
        # Two attempts sweep at once: the newer one goes on, and it is not this one.
        fencing.require_newest(disk, path, epoch)
    return CheckpointDirectory(path, identity, epoch, disk, keep)
