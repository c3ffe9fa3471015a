"""Log files as node agents write them: found without leaving their folder, read forwards.

A line is `TIME STREAM TAG TEXT`: RFC 3339 time with nanoseconds in UTC, stdout or stderr, F for a
whole line or P for a part of one. `N.log` is the newest file of run N; `N.log.1` the one before,
and so on.
"""

import os
import stat
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

BLOCK = 64 * 1024  # bytes read at once
_NO_LINKS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass
class LogWindow:
    """Which part of a log is wanted, and in which form.

    `tail` counts lines from the end, `since` is the oldest time, `bytes_left` shrinks as text is
    sent; None = no limit.
    """

    tail: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    bytes_left: int | None = None
    # Whether the last text sent was a part of a line: the next one goes on with it.
    within_line: bool = field(default=False, init=False)

    @property
    def exhausted(self) -> bool:
        """Whether the byte limit is reached."""
        return self.bytes_left is not None and self.bytes_left <= 0

    def render(self, lines: list[bytes]) -> bytes:
        """The text of raw log lines (without their newlines), as the client wants it."""
        pieces: list[bytes] = []
        for line in lines:
            piece = self._text(line)
            if piece is None:
                continue
            if self.bytes_left is not None:
                piece = piece[: max(self.bytes_left, 0)]
                self.bytes_left -= len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def _text(self, line: bytes) -> bytes | None:
        parts = line.split(b" ", 3)
        if len(parts) < 4 or parts[2] not in (b"F", b"P"):
            return line + b"\n" if line and self.since is None else None
        if self.since is not None and not _is_since(parts[0], self.since):
            return None
        text = parts[3]
        if self.timestamps and not self.within_line:
            text = parts[0] + b" " + text
        self.within_line = parts[2] == b"P"
        return text if self.within_line else text + b"\n"


def _is_since(time: bytes, since: datetime) -> bool:
    try:
        return parse_time(time.decode("ascii")) >= since
    except ValueError:
        return True


def parse_time(text: str) -> datetime:
    """An RFC 3339 time; digits beyond microseconds are cut off. Raises ValueError."""
    head, dot, fraction = text.partition(".")
    if dot:
        digits = len(fraction) - len(fraction.lstrip("0123456789"))
        text = f"{head}.{fraction[:digits][:6].ljust(6, '0')}{fraction[digits:]}"
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class LogReader:
    """Opens logs below one folder, and nothing else: no name may lead out of it, no link either."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self, namespace: str, pod: str, uid: str, container: str, restart: int) -> "PodLog":
        """The log of one run of a container; one that was never written is empty."""
        folders = (f"{namespace}_{pod}_{uid}", container)
        if any(not _is_plain(name) for name in folders):
            return PodLog(None, "")
        descriptor = _open_folder(self._directory, folders)
        return PodLog(descriptor, f"{restart}.log")


def _is_plain(name: str) -> bool:
    return bool(name) and "/" not in name and "\0" not in name and name not in (".", "..")


def _open_folder(base: Path, names: tuple[str, ...]) -> int | None:
    """A descriptor of a folder below `base`, one step at a time; None when it is not there."""
    with ExitStack() as stack:
        try:
            current = os.open(base, _NO_LINKS | os.O_DIRECTORY)
            for name in names:
                stack.callback(os.close, current)
                current = os.open(name, _NO_LINKS | os.O_DIRECTORY, dir_fd=current)
        except OSError:
            return None
        return current


class PodLog:
    """One run's log, read from the oldest file that is left to the newest."""

    def __init__(self, folder: int | None, name: str) -> None:
        self._folder = folder
        self._name = name
        self._file: int | None = None
        self._identity = (0, 0)  # device and inode of the open file
        self._rest = b""  # the beginning of a line whose end is not written yet

    def close(self) -> None:
        """Close what is open."""
        for descriptor in (self._file, self._folder):
            if descriptor is not None:
                os.close(descriptor)
        self._file = self._folder = None

    def read_first(self, window: LogWindow) -> bytes:
        """The beginning of what is wanted, or all of the last lines when they are counted."""
        older = self._older_files()
        if window.tail is None:
            self._open(older[0] if older else self._name)
            return self.read_more(window)
        lines = self._last_lines([*older, self._name], window.tail)
        return window.render(lines)

    def _older_files(self) -> list[str]:
        """Rotated files, the oldest first."""
        if self._folder is None:
            return []
        prefix = self._name + "."
        numbers = [
            int(name.removeprefix(prefix))
            for name in os.listdir(self._folder)  # noqa: PTH208  (a descriptor has no path)
            if name.startswith(prefix) and name.removeprefix(prefix).isdecimal()
        ]
        return [f"{prefix}{number}" for number in sorted(numbers, reverse=True)]

    def _last_lines(self, names: list[str], count: int) -> list[bytes]:
        """The last `count` whole lines over all files; leaves the newest file open at its end."""
        collected: list[bytes] = []
        for position, name in enumerate(reversed(names)):
            descriptor = self._descriptor(name)
            if descriptor is None:
                continue
            content = _tail_of(descriptor, count + 1 - _whole_lines(collected))
            if position == 0:
                whole, newline, rest = content.rpartition(b"\n")
                self._rest = rest
                content = whole + newline
                self._file, self._identity = descriptor, _identity(descriptor)
            else:
                os.close(descriptor)
            collected = content.split(b"\n")[:-1] + collected
            # One more than wanted: the first may have begun in the file before.
            if _whole_lines(collected) > count:
                break
        return _last(collected, count)

    def read_more(self, window: LogWindow) -> bytes:
        """The next text; empty at the end of what is written so far."""
        while not window.exhausted:
            if self._file is None and not self._open(self._name):
                return b""
            assert self._file is not None
            block = os.read(self._file, BLOCK)
            if not block:
                if not self._move_on():
                    return b""
                continue
            lines = (self._rest + block).split(b"\n")
            self._rest = lines.pop()
            text = window.render(lines)
            if text:
                return text
        return b""

    def _move_on(self) -> bool:
        """Go to the next newer file when the open one was rotated away and is read to its end."""
        newer = self._newer_than_open()
        if newer is None:
            return False
        before = self._identity
        if not self._open(newer) or self._identity == before:
            return False
        self._rest = b""
        return True

    def _newer_than_open(self) -> str | None:
        names = [*self._older_files(), self._name]
        identities = [self._identity_of(name) for name in names]
        if self._identity not in identities:
            # Deleted by rotation while we read it: go on with the oldest that is left.
            return next((n for n, i in zip(names, identities, strict=True) if i is not None), None)
        index = identities.index(self._identity)
        return names[index + 1] if index + 1 < len(names) else None

    def _identity_of(self, name: str) -> tuple[int, int] | None:
        try:
            details = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
        except OSError:
            return None
        return (details.st_dev, details.st_ino)

    def _open(self, name: str) -> bool:
        descriptor = self._descriptor(name)
        if descriptor is None:
            return False
        if self._file is not None:
            if _identity(descriptor) == self._identity:
                # Some file systems number a file differently by name: it is the one that is open.
                os.close(descriptor)
                return True
            os.close(self._file)
        self._file, self._identity = descriptor, _identity(descriptor)
        return True

    def _descriptor(self, name: str) -> int | None:
        """An open regular file in the folder; None when there is none."""
        if self._folder is None:
            return None
        try:
            descriptor = os.open(name, _NO_LINKS, dir_fd=self._folder)
        except OSError:
            return None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return None
        return descriptor


def _identity(descriptor: int) -> tuple[int, int]:
    details = os.fstat(descriptor)
    return (details.st_dev, details.st_ino)


def _ends_line(line: bytes) -> bool:
    """Whether a raw log line is the end of a line of text."""
    parts = line.split(b" ", 3)
    return len(parts) < 4 or parts[2] != b"P"


def _whole_lines(lines: list[bytes]) -> int:
    return sum(map(_ends_line, lines))


def _last(lines: list[bytes], count: int) -> list[bytes]:
    """The last `count` lines of text, each with the parts that belong to it."""
    if count <= 0:
        return []
    seen = 0
    for index in range(len(lines) - 1, -1, -1):
        if _ends_line(lines[index]):
            seen += 1
            if seen > count:
                return lines[index + 1 :]
    return lines


def _tail_of(descriptor: int, count: int) -> bytes:
    """The end of a file, with at least `count` whole lines of text when it has them."""
    end = os.lseek(descriptor, 0, os.SEEK_END)
    start, content = end, b""
    while start > 0:
        size = min(BLOCK, start)
        start -= size
        content = os.pread(descriptor, size, start) + content
        # One more than wanted: the first may be cut, and parts before the first belong to it.
        if _whole_lines(content.split(b"\n")) > count + 1:
            return content.partition(b"\n")[2]
    return content
