"""A disk in memory that can lose power after any call, and then forgets what was not synced.

What survives is chosen by seed, within what POSIX allows: of each directory a prefix of the changes of
names since its last sync, of each file its synced content, or a part of the rest, or zeros.
"""

import errno
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

from clusterops.train.disk import Entry, Kind


class PowerCut(BaseException):
    """The process ends here; nothing it does later reaches the disk."""


@dataclass
class File:
    content: bytearray = field(default_factory=bytearray)
    synced: bytes | None = None  # None: never


@dataclass
class Directory:
    names: dict[str, "File | Directory"] = field(default_factory=dict)
    synced: dict[str, "File | Directory"] = field(default_factory=dict)
    changes: list[tuple[str, str, str]] = field(default_factory=list)
    added: dict[tuple[int, str], "File | Directory"] = field(default_factory=dict)


@dataclass
class _Open:
    file: File
    position: int = 0


class CrashingDisk:
    """Implements `Disk`. `cut_after` counts changing calls: the power goes after that many."""

    def __init__(self, root: Directory | None = None, cut_after: int | None = None) -> None:
        self.root = root or Directory()
        self.cut_after = cut_after
        self.calls = 0
        self.log: list[str] = []
        self._open: dict[int, _Open] = {}
        self._next_handle = 3
        self._dead = False

    # Disk.

    def entries(self, path: Path) -> list[Entry]:
        self._alive()
        names = self._directory(path).names
        return [
            Entry(name, Kind.FILE if isinstance(names[name], File) else Kind.DIRECTORY)
            for name in sorted(names)
        ]

    def make_directory(self, path: Path) -> None:
        self._alive()
        parent = self._directory(path.parent)
        if path.name in parent.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self._add(parent, path.name, Directory())
        self._changed(f"mkdir {path.name}")

    def create(self, path: Path) -> int:
        self._alive()
        parent = self._directory(path.parent)
        if path.name in parent.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        file = File()
        self._add(parent, path.name, file)
        self._changed(f"create {path.name}")
        return self._opened(file)

    def open(self, path: Path) -> int:
        self._alive()
        found = self._directory(path.parent).names.get(path.name)
        if not isinstance(found, File):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return self._opened(found)

    def size(self, handle: int) -> int:
        return len(self._open[handle].file.content)

    def write(self, handle: int, data: memoryview) -> int:
        self._alive()
        # Short writes are allowed, and common enough to be the rule here.
        part = bytes(data[: max(1, len(data) // 2)] if len(data) > 64 else data)
        self._open[handle].file.content += part
        self._changed(f"write {len(part)}")
        return len(part)

    def read(self, handle: int, into: memoryview) -> int:
        self._alive()
        opened = self._open[handle]
        part = opened.file.content[opened.position : opened.position + len(into)]
        into[: len(part)] = part
        opened.position += len(part)
        return len(part)

    def sync(self, handle: int) -> None:
        self._alive()
        file = self._open[handle].file
        file.synced = bytes(file.content)
        self._changed("fsync")

    def close(self, handle: int) -> None:
        self._open.pop(handle)

    def rename(self, source: Path, target: Path) -> None:
        self._alive()
        parent = self._directory(source.parent)
        if source.name not in parent.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
        existing = parent.names.get(target.name)
        if isinstance(existing, Directory) and existing.names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(target))
        parent.names[target.name] = parent.names.pop(source.name)
        parent.changes.append(("rename", source.name, target.name))
        self._changed(f"rename {source.name} {target.name}")

    def sync_directory(self, path: Path) -> None:
        self._alive()
        directory = self._directory(path)
        directory.synced = dict(directory.names)
        directory.changes.clear()
        directory.added.clear()
        self._changed("fsync directory")

    def remove_file(self, path: Path) -> None:
        self._remove(path, File)

    def remove_directory(self, path: Path) -> None:
        found = self._directory(path)
        if found.names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        self._remove(path, Directory)

    # For tests.

    def after_power_cut(self, seed: int) -> "CrashingDisk":
        """The disk as the next process finds it."""
        return CrashingDisk(_survivor(self.root, random.Random(seed)))

    def after_kill(self) -> "CrashingDisk":
        """The disk as the next process finds it when only the process died: all calls count."""
        return CrashingDisk(self.root)

    def file(self, path: Path) -> File:
        found = self._directory(path.parent).names[path.name]
        assert isinstance(found, File)
        return found

    # Inside.

    def _alive(self) -> None:
        if self._dead:
            raise PowerCut

    def _changed(self, what: str) -> None:
        self.calls += 1
        self.log.append(what)
        if self.calls == self.cut_after:
            self._dead = True
            raise PowerCut(what)

    def _directory(self, path: Path) -> Directory:
        current: File | Directory = self.root
        for part in path.parts[1:]:
            if not isinstance(current, Directory) or part not in current.names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            current = current.names[part]
        if not isinstance(current, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return current

    def _add(self, parent: Directory, name: str, node: File | Directory) -> None:
        parent.names[name] = node
        parent.added[(len(parent.changes), name)] = node
        parent.changes.append(("add", name, ""))

    def _remove(self, path: Path, kind: type) -> None:
        self._alive()
        parent = self._directory(path.parent)
        if not isinstance(parent.names.get(path.name), kind):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        del parent.names[path.name]
        parent.changes.append(("remove", path.name, ""))
        self._changed(f"remove {path.name}")

    def _opened(self, file: File) -> int:
        self._next_handle += 1
        self._open[self._next_handle] = _Open(file)
        return self._next_handle


def _survivor(directory: Directory, chance: random.Random) -> Directory:
    names = dict(directory.synced)
    for number, (change, name, target) in enumerate(
        directory.changes[: chance.randint(0, len(directory.changes))]
    ):
        if change == "add":
            names[name] = directory.added[(number, name)]
        elif change == "remove":
            del names[name]
        else:
            names[target] = names.pop(name)
    kept: dict[str, File | Directory] = {}
    for name, node in names.items():
        if isinstance(node, Directory):
            kept[name] = _survivor(node, chance)
        else:
            content = _surviving_content(node, chance)
            kept[name] = File(bytearray(content), content)
    return Directory(kept, dict(kept))


def _surviving_content(file: File, chance: random.Random) -> bytes:
    if file.synced is not None and file.synced == bytes(file.content):
        return file.synced
    written = bytes(file.content)
    return chance.choice(
        [
            file.synced or b"",
            written,
            bytes(len(written)),
            written[: chance.randint(0, len(written))],
        ]
    )
