"""Finds the newest checkpoint that verifies on every rank, and reads it there.

Rank 0 chooses, all ranks read and check what they need at the same time, and what one of them finds
damaged is put aside for all. So ranks never go on from different steps, or from half a checkpoint.
"""

from dataclasses import dataclass
from typing import Any

from clusterops.train import reader
from clusterops.train.agreement import Ranks, leader_decides, together
from clusterops.train.checkpoint import CheckpointDirectory, Committed
from clusterops.train.errors import CorruptCheckpoint, NothingToResume
from clusterops.train.manifest import Manifest, checkpoint_name


@dataclass(frozen=True, slots=True)
class Restored:
    """A verified checkpoint, read. `shared` is what rank 0 saved, `own` what this rank did; `own` is
    None for a rank that did not exist then.
    """

    committed: Committed
    manifest: Manifest
    shared: Any
    own: Any


def restore(directory: CheckpointDirectory, ranks: Ranks) -> Restored | None:
    """The newest checkpoint that verifies, or None where there has never been one. Collective.

    Raises:
        NothingToResume: there were checkpoints, and none is readable.
        StaleAttempt: a newer attempt has taken over.
        UnsupportedFormat: the newest was written by a newer version of this library.
        RankFailed: another rank can't read the directory.
    """
    while (step := leader_decides(ranks, lambda: _newest_step(directory))) is not None:
        read: list[Restored] = []
        damage = _first_damage(directory, ranks, step, read)
        if not damage:
            return read[0]
        _put_aside(directory, ranks, step, damage)
    if leader_decides(ranks, lambda: reader.has_quarantined(directory.disk, directory.path)):
        raise NothingToResume(
            f"no checkpoint in {directory.path} is readable; the damaged ones are kept there as "
            ".quarantined-*. To start from step 0 on purpose, remove them or give the job an "
            "empty directory"
        )
    return None


def _newest_step(directory: CheckpointDirectory) -> int | None:
    """Chooses by manifest; puts aside what has none."""
    candidates = directory.candidates()
    return candidates[0].manifest.step if candidates else None


def _first_damage(
    directory: CheckpointDirectory, ranks: Ranks, step: int, read: list[Restored]
) -> str:
    """Reads one checkpoint on every rank, into `read`; returns what is wrong with it, or ""."""

    def attempt() -> str:
        try:
            read.append(_read(directory, ranks, step))
        except CorruptCheckpoint as error:
            return str(error)
        return ""

    return next((damage for damage in together(ranks, attempt) if damage), "")


def _read(directory: CheckpointDirectory, ranks: Ranks, step: int) -> Restored:
    path = directory.path / checkpoint_name(step)
    candidate = reader.inspect(directory.disk, path, step)
    saved_by = candidate.manifest.world_size
    shared = directory.load(candidate, 0)
    own = shared if ranks.rank == 0 else None
    if 0 < ranks.rank < saved_by:
        own = directory.load(candidate, ranks.rank)
    if ranks.rank == 0:
        loaded_by_others = frozenset(range(min(saved_by, ranks.world_size)))
        directory.verify(candidate, skip_ranks=loaded_by_others)
    return Restored(directory.accept(candidate), candidate.manifest, shared, own)


def _put_aside(directory: CheckpointDirectory, ranks: Ranks, step: int, damage: str) -> None:
    path = directory.path / checkpoint_name(step)
    leader_decides(ranks, lambda: directory.reject(path, step, damage))
