"""Makes the folders and files that `volumes` plans. A volume's files appear all at once."""

import contextlib
import os
import shutil
from pathlib import Path

from clusterops.nodeagent import records
from clusterops.nodeagent.downward import ConfigError
from clusterops.nodeagent.volumes import Places, Unsupported, Volume, host_type_of


def make(volume: Volume, places: Places) -> None:
    """Makes one volume; harmless when it is there already.

    Raises:
        ConfigError: a hostPath is not there, or not of its type; it may come.
        Unsupported: a hostPath leads out of the allowed roots through a symbolic link.
        OSError: the disk's reasons.
    """
    if volume.host_type is not None:
        _check_host_path(volume, places)
    elif volume.files is not None:
        _write_files(volume)
    elif volume.create:
        volume.path.mkdir(parents=True, exist_ok=True)


def _check_host_path(volume: Volume, places: Places) -> None:
    path, wanted = volume.path, volume.host_type or ""
    roots = places.host_path_roots
    if roots is not None:
        real = Path(os.path.realpath(path))
        if not any(real.is_relative_to(os.path.realpath(root)) for root in roots):
            raise Unsupported(
                f"volume {volume.name!r}: {str(path)!r} leads out of the allowed roots"
            )
    if wanted == "DirectoryOrCreate":
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    elif wanted == "FileOrCreate":
        with contextlib.suppress(FileExistsError):
            path.touch(mode=0o644, exist_ok=False)
    if not wanted:
        return
    try:
        found = host_type_of(path.stat().st_mode)
    except FileNotFoundError as error:
        raise ConfigError(f"hostPath {str(path)!r} does not exist") from error
    if found != wanted.removesuffix("OrCreate"):
        raise ConfigError(f"hostPath {str(path)!r} is no {wanted.removesuffix('OrCreate')}")


def _write_files(volume: Volume) -> None:
    """Writes beside and renames the folder: a process never sees some files without the others."""
    if volume.path.exists():
        return
    beside = volume.path.with_name(f"{volume.path.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(mode=0o755, parents=True)
    for file in volume.files or ():
        target = beside / file.path
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        records.write_bytes(str(target), file.content, file.mode, durable=False)
    beside.rename(volume.path)
