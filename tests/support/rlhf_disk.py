"""A disk that forgets: at a crash, what was not synced is lost from some byte on."""

import os
import random
from io import FileIO
from pathlib import Path

from rlhf.journal import RealDisk


class ForgetfulDisk(RealDisk):
    """Writes to real files and remembers how much of each was synced; nothing really is, for speed."""

    def __init__(self) -> None:
        self.synced: dict[int, int] = {}
        self.syncs = 0
        self.calls: list[str] = []

    def open_append(self, path: Path) -> FileIO:
        file = super().open_append(path)
        self.calls.append("open")
        return file

    def sync(self, file: FileIO) -> None:
        status = os.fstat(file.fileno())
        self.synced[status.st_ino] = status.st_size
        self.syncs += 1
        self.calls.append("sync")

    def sync_folder(self, folder: Path) -> None:
        self.calls.append(f"sync folder {folder.name}")

    def replace(self, old: Path, new: Path) -> None:
        super().replace(old, new)
        self.calls.append("replace")

    def crash(self, path: Path, chance: random.Random) -> int:
        """Cuts the file somewhere between what was synced and what was written; returns the length."""
        status = path.stat()
        kept = chance.randint(self.synced.get(status.st_ino, 0), status.st_size)
        os.truncate(path, kept)
        return kept
