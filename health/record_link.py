"""How the privileged reader hands records to the daemon: JSON lines over a Unix socket.

The daemon listens and says first how far it has kept what it got; the reader begins after that. So
neither a restart of the one nor of the other loses or doubles a record: what is not yet kept is still
in the kernel's ring, and when the ring overruns the reader counts it.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec

from health.kmsg import Batch
from health.trace_source import TraceBatch

VERSION = 1
MAX_LINE_BYTES = 8 * 1024 * 1024
HELLO_SECONDS = 10.0
_PEER = struct.Struct("3i")


class LinkError(Exception):
    """The other side is not the one that is meant, or speaks another version."""


class Hello(msgspec.Struct, frozen=True):
    """The daemon's first line."""

    version: int
    boot: str
    after: int | None


class Sent(msgspec.Struct, frozen=True):
    """The reader's lines: what it read, or nothing as a sign of life."""

    boot: str
    batch: Batch = Batch()
    traced: TraceBatch | None = None
    """Or what the driver's trace events told."""


_encode = msgspec.json.Encoder().encode
_hello = msgspec.json.Decoder(Hello).decode
_sent = msgspec.json.Decoder(Sent).decode

Take = Callable[[Sent], Awaitable[None]]


class Listener:
    """The daemon's end. One reader at a time: a new one takes the place of the one before."""

    def __init__(
        self, path: Path, position: Callable[[], tuple[str, int | None]], take: Take
    ) -> None:
        """`position` gives boot and number of the last record that was kept."""
        self.path = path
        self.connected = False
        self.refused = 0
        self._position = position
        self._take = take
        self._current: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Listens until cancelled. Raises LinkError when the socket cannot be made."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        before = os.umask(0o177)
        try:
            server = await asyncio.start_unix_server(
                self._connected, self.path, limit=MAX_LINE_BYTES
            )
        except OSError as error:
            raise LinkError(f"cannot listen at {self.path}: {error.strerror}") from error
        finally:
            os.umask(before)
        try:
            await server.serve_forever()
        finally:
            server.close()
            if self._current is not None:
                self._current.cancel()
            self.path.unlink(missing_ok=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if _peer_user(writer) not in (0, os.getuid()):
                self.refused += 1
                return
            if self._current is not None:
                self._current.cancel()
            self._current = asyncio.current_task()
            self.connected = True
            boot, after = self._position()
            writer.write(_encode(Hello(VERSION, boot, after)) + b"\n")
            await self._receive(reader)
        except (OSError, ValueError, msgspec.DecodeError):
            self.refused += 1
        except asyncio.CancelledError:
            # Replaced by another reader, or the daemon ends; the server's task must not see it.
            pass
        finally:
            if self._current is asyncio.current_task():
                self.connected = False
                self._current = None
            writer.close()

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            await self._take(_sent(line))


def _peer_user(writer: asyncio.StreamWriter) -> int:
    peer: socket.socket = writer.get_extra_info("socket")
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(raw)[1])


@contextlib.asynccontextmanager
async def connect(path: Path) -> AsyncIterator[tuple[Hello, Callable[[Sent], Awaitable[None]]]]:
    """The reader's end: the daemon's hello, and a function that sends.

    Sending waits while the daemon is behind. Raises OSError when nobody listens or the daemon goes,
    LinkError for another version.
    """
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            line = await reader.readline()
        try:
            hello = _hello(line)
        except (ValueError, msgspec.DecodeError) as error:
            raise LinkError(f"what listens at {path} is no health daemon") from error
        if hello.version != VERSION:
            raise LinkError(
                f"the daemon at {path} speaks version {hello.version}, this reader {VERSION}; "
                "run both from one release"
            )

        async def send(sent: Sent) -> None:
            writer.write(_encode(sent) + b"\n")
            await writer.drain()

        yield hello, send
    finally:
        writer.close()
