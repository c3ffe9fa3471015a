"""Takes the chunked framing off a stream of bytes.

A watch sends an event a chunk. h11 spends some 30 microseconds on each, more than decoding the event
does; it reads the head of the answer, and this reads the body, at a tenth of that.
"""

import re

_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
_MAX_LINE_BYTES = 8192


class ChunkError(ValueError):
    """The bytes are no chunked body."""


class ChunkedDecoder:
    """Feed it bytes cut anywhere. `finished` turns true at the last chunk's end."""

    def __init__(self) -> None:
        self.finished = False
        self._rest = b""  # the beginning of a line or a line end
        self._remaining = 0  # bytes still to come of the chunk at hand
        self._after_chunk = False  # its line end is to come
        self._in_trailer = False

    def feed(self, data: bytes) -> bytes:
        """The payload that `data` completes; raises ChunkError. What follows the end is ignored."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        parts: list[bytes] = []
        at = 0
        while at < len(data) and not self.finished:
            if self._remaining:
                part = data[at : at + self._remaining]
                parts.append(part)
                at += len(part)
                self._remaining -= len(part)
                self._after_chunk = self._remaining == 0
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                if len(data) - at > _MAX_LINE_BYTES:
                    raise ChunkError("a chunk's size line has no end")
                self._rest = data[at:]
                break
            self._line(data[at:end])
            at = end + 2
        return b"".join(parts)

    def _line(self, line: bytes) -> None:
        if self._after_chunk:
            if line:
                raise ChunkError("a chunk is longer than it said")
            self._after_chunk = False
        elif self._in_trailer:
            self.finished = not line
        else:
            size = line.partition(b";")[0].strip()
            if not _SIZE.fullmatch(size):
                raise ChunkError(f"no chunk size: {line[:40]!r}")
            self._remaining = int(size, 16)
            self._in_trailer = self._remaining == 0
