# ruff: noqa: PTH104 - pathlib costs each container a MB
"""A container's log file in the format of the Container Runtime Interface, bounded in size.

A line is `<RFC 3339 with nanoseconds, UTC> <stdout|stderr> <F|P> <bytes>`; P marks a piece whose line
goes on in the next entry of the same stream. A file that would grow beyond its limit becomes `.1`,
`.1` becomes `.2` and so on; the oldest goes. When the disk is full the container must not notice:
lines are dropped, counted, and the count is logged as soon as there is room again.
"""

from __future__ import annotations

import contextlib
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_PIECE_BYTES = 16 * 1024
FULL = b"F"
PARTIAL = b"P"


class CriLog:
    """Writes the streams of one container to one rotated log.

    `dropped` counts the entries that could not be written. Nothing here raises for a disk's sake.
    """

    def __init__(
        self, path: str, max_bytes: int, max_files: int, now: Callable[[], int] = time.time_ns
    ) -> None:
        """`max_files` counts the current file too, `now` gives nanoseconds since 1970."""
        self.dropped = 0
        self._reported = 0
        self._reason = ""
        self._path = path
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._now = now
        self._pending: dict[bytes, bytes] = {}  # bytes after the last newline, per stream
        self._open_line: dict[bytes, bool] = {}  # a piece of the current line was already written
        self._descriptor = -1
        self._size = 0
        self._second = -1
        self._second_text = b""
        self._open()

    def feed(self, stream: bytes, content: bytes) -> None:
        """Takes what a stream produced, in any cut."""
        *lines, rest = (self._pending.get(stream, b"") + content).split(b"\n")
        head = self._stamp() + b" " + stream + b" "
        entries = []
        for line in lines:
            while len(line) > MAX_PIECE_BYTES:
                entries.append(head + b"P " + line[:MAX_PIECE_BYTES] + b"\n")
                line = line[MAX_PIECE_BYTES:]
            entries.append(head + b"F " + line + b"\n")
        if lines:
            self._open_line[stream] = False
        while len(rest) >= MAX_PIECE_BYTES:
            entries.append(head + b"P " + rest[:MAX_PIECE_BYTES] + b"\n")
            rest = rest[MAX_PIECE_BYTES:]
            self._open_line[stream] = True
        self._pending[stream] = rest
        self._append(entries)

    def has_pending(self) -> bool:
        """True while some stream stands in the middle of a line that is not in the file yet."""
        return any(self._pending.values())

    def flush(self) -> None:
        """Writes unfinished lines as pieces, so that a prompt or a progress bar can be followed."""
        for stream in (b"stdout", b"stderr"):
            rest = self._pending.get(stream)
            if rest:
                self._pending[stream] = b""
                self._open_line[stream] = True
                self._append([self._stamp() + b" " + stream + b" P " + rest + b"\n"])

    def close(self) -> None:
        """Ends unfinished lines and reports what is still unreported. Call once."""
        for stream in (b"stdout", b"stderr"):
            rest = self._pending.pop(stream, b"")
            if rest or self._open_line.get(stream):
                self._append([self._stamp() + b" " + stream + b" F " + rest + b"\n"])
        if self._notice():
            self._write_batch([], 0)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, entries: list[bytes]) -> None:
        batch: list[bytes] = []
        batch_bytes = 0
        for entry in entries:
            if batch_bytes and self._size + batch_bytes + len(entry) > self._max_bytes:
                self._write_batch(batch, batch_bytes)
                batch, batch_bytes = [], 0
            batch.append(entry)
            batch_bytes += len(entry)
        if batch:
            self._write_batch(batch, batch_bytes)

    def _write_batch(self, batch: list[bytes], batch_bytes: int) -> None:
        notice = self._notice()
        if self._size and self._size + len(notice) + batch_bytes > self._max_bytes:
            self._rotate()
        # Together: a notice alone would use up the room that the next line needs.
        if self._write(notice + b"".join(batch)):
            self._reported = self.dropped
        else:
            self.dropped += len(batch)

    def _notice(self) -> bytes:
        """The entry that owns up to lines dropped since the last one; empty when there are none."""
        number = self.dropped - self._reported
        if not number:
            return b""
        text = f"[clusterops: {number} log lines were dropped: {self._reason}]"
        return self._stamp() + b" stderr F " + text.encode() + b"\n"

    def _write(self, content: bytes) -> bool:
        """Appends all of it or, as far as the reader can see, nothing."""
        if self._descriptor < 0:
            self._open()
        if self._descriptor < 0:
            return False
        view = memoryview(content)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            self._reason = error.strerror or str(error)
            # Half an entry would make the next one unreadable.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            return False
        self._size += len(content)
        return True

    def _rotate(self) -> None:
        try:
            if self._max_files < 2:
                os.ftruncate(self._descriptor, 0)
                self._size = 0
                return
            for number in range(self._max_files - 1, 1, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.rename(f"{self._path}.{number - 1}", f"{self._path}.{number}")
            os.rename(self._path, f"{self._path}.1")
        except OSError:
            return  # the file grows beyond its limit rather than lose lines
        os.close(self._descriptor)
        self._descriptor = -1
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._descriptor = os.open(self._path, flags, 0o600)
            self._size = os.fstat(self._descriptor).st_size
        except OSError as error:
            self._reason = error.strerror or str(error)

    def _stamp(self) -> bytes:
        second, fraction = divmod(self._now(), 1_000_000_000)
        if second != self._second:
            self._second = second
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        return b"%s.%09dZ" % (self._second_text, fraction)
