"""Makes files that somebody else wrote durable."""

import os
from pathlib import Path


def sync_tree(path: Path) -> None:
    """Syncs a file, or a directory with everything in it, and the name itself. Follows no links.

    Raises:
        OSError: it does not exist, or the disk refuses.
    """
    if path.is_dir() and not path.is_symlink():
        for folder, _, files in os.walk(path):
            for name in files:
                _sync(Path(folder) / name)
            _sync(Path(folder))
    else:
        _sync(path)
    _sync(path.absolute().parent)


def _sync(path: Path) -> None:
    if path.is_symlink():
        return
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
