"""Messages between the processes of a run: MessagePack behind four bytes of length, over a socket pair.

One side waits (trainer, rollout worker), the other lives in an event loop (pipeline). A closed socket
is the end of the other process, and is told as such.
"""

import asyncio
import select
import socket
import struct
from typing import Any, Generic, TypeVar

import msgspec

_LENGTH = struct.Struct(">I")
MOST_BYTES = 1 << 30

Incoming = TypeVar("Incoming")


class PeerGone(Exception):
    """The other process has closed its end, or was killed."""


class Frames(Generic[Incoming]):
    """For a process that waits: sends and receives whole messages."""

    def __init__(self, link: socket.socket, incoming: Any) -> None:
        self._link = link
        self._decoder: msgspec.msgpack.Decoder[Incoming] = msgspec.msgpack.Decoder(incoming)

    def send(self, message: Any) -> None:
        """Sends one message.

        Raises:
            PeerGone: nobody is there to read it.
        """
        try:
            self._link.sendall(framed(message))
        except OSError as error:
            raise PeerGone(str(error)) from error

    def wait(self, seconds: float) -> bool:
        """Whether a message (or the end) comes within so many seconds."""
        return bool(select.select([self._link], [], [], seconds)[0])

    def receive(self) -> Incoming:
        """The next message.

        Raises:
            PeerGone: there will be none.
        """
        size = _size(self._exactly(_LENGTH.size))
        return self._decoder.decode(self._exactly(size))

    def close(self) -> None:
        """Closes this end."""
        self._link.close()

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            try:
                part = self._link.recv(min(count, 1 << 20))
            except ConnectionError as error:
                raise PeerGone(str(error)) from error
            if not part:
                raise PeerGone("it closed its end")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class AsyncFrames(Generic[Incoming]):
    """The same for an event loop."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, incoming: Any
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder: msgspec.msgpack.Decoder[Incoming] = msgspec.msgpack.Decoder(incoming)

    @classmethod
    async def over(cls, link: socket.socket, incoming: Any) -> "AsyncFrames[Incoming]":
        """Takes over one end of a socket pair."""
        reader, writer = await asyncio.open_connection(sock=link, limit=1 << 20)
        return cls(reader, writer, incoming)

    async def send(self, message: Any) -> None:
        """Sends one message.

        Raises:
            PeerGone: nobody is there to read it.
        """
        try:
            self._writer.write(framed(message))
            await self._writer.drain()
        except ConnectionError as error:
            raise PeerGone(str(error)) from error

    async def receive(self) -> Incoming:
        """The next message.

        Raises:
            PeerGone: there will be none.
        """
        try:
            size = _size(await self._reader.readexactly(_LENGTH.size))
            return self._decoder.decode(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise PeerGone(str(error)) from error

    def close(self) -> None:
        """Closes this end."""
        self._writer.close()


def framed(message: Any) -> bytes:
    """A message as it is sent."""
    body = msgspec.msgpack.encode(message)
    if len(body) > MOST_BYTES:
        raise ValueError(f"a message of {len(body)} bytes is more than {MOST_BYTES}")
    return _LENGTH.pack(len(body)) + body


def _size(head: bytes) -> int:
    size: int = _LENGTH.unpack(head)[0]
    if size > MOST_BYTES:
        raise PeerGone(f"it announced a message of {size} bytes: that is no message")
    return size
