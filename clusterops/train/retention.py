"""Which checkpoints may go, and removing them.

Only commits known to be good count towards the number kept: those this process wrote or verified.
Unverified ones among them are kept too. The checkpoint the job resumed from and permanent ones
stay. Removal is a rename and then the files, so that a crash leaves no half checkpoint under a
checkpoint's name; and it removes only files that this library writes.
"""

from collections.abc import Collection
from pathlib import Path

from clusterops.train.disk import Disk, Kind
from clusterops.train.manifest import (
    DISCARDED_NAME,
    MANIFEST_NAME,
    QUARANTINED_NAME,
    SHARD_NAME,
    STAGING_NAME,
    Manifest,
    discarded_name,
)

KEEP_AT_LEAST = 2
_QUARANTINED_KEPT = 2


def superfluous(
    newest_first: Collection[Manifest],
    verified: Collection[tuple[int, int]],
    resumed_from: tuple[int, int] | None,
    keep: int,
) -> list[Manifest]:
    """The checkpoints that may be removed, given those that are there.

    `verified` and `resumed_from` are orders, (epoch, step); `keep` counts verified ones.
    """
    kept = 0
    leaving = []
    for manifest in newest_first:
        if kept >= max(keep, KEEP_AT_LEAST):
            if not manifest.permanent and manifest.order != resumed_from:
                leaving.append(manifest)
        elif manifest.order in verified:
            kept += 1
    return leaving


def discard(disk: Disk, path: Path, epoch: int, step: int) -> None:
    """Removes one checkpoint directory; what is not ours in it stays, under the discarded name."""
    target = path.parent / discarded_name(epoch, step)
    disk.rename(path, target)
    disk.sync_directory(path.parent)
    remove_folder(disk, target)


def sweep(disk: Disk, directory: Path, epoch: int) -> None:
    """Removes what earlier attempts left half done, and all but the newest quarantined.

    Staging folders of lower epochs go: their writers are stale, and now fail when they go on.
    """
    quarantined: list[tuple[int, str]] = []
    for entry in disk.entries(directory):
        if entry.kind is not Kind.DIRECTORY:
            continue
        staging = STAGING_NAME.fullmatch(entry.name)
        if DISCARDED_NAME.fullmatch(entry.name) or (staging and int(staging.group(1)) < epoch):
            remove_folder(disk, directory / entry.name)
        elif match := QUARANTINED_NAME.fullmatch(entry.name):
            quarantined.append((int(match.group(1)), entry.name))
    for _, name in sorted(quarantined)[:-_QUARANTINED_KEPT]:
        remove_folder(disk, directory / name)


def remove_folder(disk: Disk, folder: Path) -> bool:
    """Removes our files in a folder, and the folder when that empties it; says whether it did."""
    emptied = True
    for entry in disk.entries(folder):
        ours = entry.name == MANIFEST_NAME or SHARD_NAME.fullmatch(entry.name)
        if ours and entry.kind is Kind.FILE:
            disk.remove_file(folder / entry.name)
        else:
            emptied = False
    if emptied:
        disk.remove_directory(folder)
    return emptied
