"""One writer at a time: the numbered claims that attempts put into a checkpoint directory.

An attempt claims the directory by creating `epoch_NNNNNN.json`, numbered one above the highest.
From then on every attempt with a lower number is stale: it commits nothing more. A claim is never
removed, not even an unreadable one (its writer died between creating and filling it): its number
alone fences. The newest readable claim says whose directory it is.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from clusterops.train.disk import Disk, read_whole, write_whole
from clusterops.train.errors import DirectoryRefused, StaleAttempt
from clusterops.train.manifest import CLAIM_NAME, Identity

_CLAIM_LIMIT_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Claim:
    """One attempt's claim; `identity` is None where the file is unreadable."""

    epoch: int
    identity: Identity | None


def claims(disk: Disk, directory: Path) -> list[Claim]:
    """All claims, lowest first."""
    found = (
        Claim(_epoch_of(name), _read_identity(disk, directory / name))
        for name in _claim_names(disk, directory)
    )
    return sorted(found, key=lambda claim: claim.epoch)


def highest_epoch(disk: Disk, directory: Path) -> int:
    """The number of the newest claim; 0 where there is none."""
    return max((_epoch_of(name) for name in _claim_names(disk, directory)), default=0)


def claim(disk: Disk, directory: Path, identity: Identity, *, adopt: bool = False) -> int:
    """Takes the directory over for this attempt; returns its epoch.

    Raises:
        DirectoryRefused: the directory belongs to another job, and `adopt` is False.
        StaleAttempt: a later attempt of this job has been here.
    """
    while True:
        existing = claims(disk, directory)
        _check_owner(directory, existing, identity, adopt)
        epoch = max((one.epoch for one in existing), default=0) + 1
        content = {
            "namespace": identity.namespace,
            "name": identity.name,
            "jobUid": identity.job_uid,
            "attempt": identity.attempt,
        }
        try:
            write_whole(
                disk, directory / f"epoch_{epoch:06d}.json", json.dumps(content).encode() + b"\n"
            )
        except FileExistsError:
            continue  # somebody claimed at the same time: look again, this may be for us to lose
        disk.sync_directory(directory)
        return epoch


def require_newest(disk: Disk, directory: Path, epoch: int) -> None:
    """Checks that nobody has taken the directory over.

    Raises:
        StaleAttempt: somebody has.
    """
    highest = highest_epoch(disk, directory)
    if highest > epoch:
        raise StaleAttempt(
            f"{directory} was taken over by a newer attempt (epoch {highest}, this one is {epoch}); "
            "this attempt commits nothing more and must stop"
        )


def _check_owner(directory: Path, existing: list[Claim], identity: Identity, adopt: bool) -> None:
    readable = [one.identity for one in existing if one.identity is not None]
    if not readable:
        return
    owner = readable[-1]
    if not owner.same_job_as(identity):
        if adopt:
            return
        raise DirectoryRefused(
            f"{directory} belongs to {owner}, and this is {identity}; give this job a directory "
            "of its own, or pass adopt=True to go on from the other job's checkpoints"
        )
    newer = [one for one in readable if _is_later_attempt(one, identity)]
    if newer:
        raise StaleAttempt(
            f"{directory} was used by attempt {newer[-1].attempt} of this job, and this is only "
            f"attempt {identity.attempt}; it must stop"
        )


def _is_later_attempt(other: Identity, identity: Identity) -> bool:
    return (
        bool(identity.job_uid)
        and other.job_uid == identity.job_uid
        and other.attempt > identity.attempt
    )


def _claim_names(disk: Disk, directory: Path) -> list[str]:
    # Whatever bears the name takes the number: creating it again would fail.
    return [entry.name for entry in disk.entries(directory) if CLAIM_NAME.fullmatch(entry.name)]


def _epoch_of(name: str) -> int:
    found = CLAIM_NAME.fullmatch(name)
    assert found is not None
    return int(found.group(1))


def _read_identity(disk: Disk, path: Path) -> Identity | None:
    try:
        content = json.loads(read_whole(disk, path, _CLAIM_LIMIT_BYTES))
        return Identity(
            namespace=str(content["namespace"]),
            name=str(content["name"]),
            job_uid=str(content["jobUid"]),
            attempt=int(content["attempt"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
