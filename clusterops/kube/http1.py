"""One HTTP/1.1 connection: asyncio streams carry the bytes, h11 knows the protocol."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import h11

from clusterops.kube.chunked import ChunkedDecoder, ChunkError

_READ_BYTES = 256 * 1024
_MAX_HEAD_BYTES = 256 * 1024

Headers = Sequence[tuple[bytes, bytes]]

CONNECTION_ERRORS = (OSError, EOFError, h11.RemoteProtocolError, ChunkError)
"""What a broken connection raises here; a time-out is an OSError too."""


class Head(NamedTuple):
    """Status line and headers of an answer; header names are lower-case."""

    status: int
    headers: dict[str, str]


class HttpConnection:
    """Carries one exchange after another. `answered` tells whether any byte of the current answer
    has come: until then a kept-alive connection may just have been closed by the server.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self.answered = False
        self.idle_since = 0.0
        _watch_over(writer)

    @classmethod
    async def open(
        cls, host: str, port: int, tls: ssl.SSLContext | None, server_name: str | None
    ) -> "HttpConnection":
        """Connects. Raises OSError, of which ssl.SSLError is one."""
        reader, writer = await asyncio.open_connection(
            host,
            port,
            ssl=tls,
            server_hostname=(server_name or host) if tls else None,
            limit=_READ_BYTES,
        )
        return cls(reader, writer)

    async def send(self, method: str, target: str, headers: Headers, body: bytes | None) -> Head:
        """Sends a request and reads the head of its answer."""
        self.answered = False
        framed = list(headers)
        if body is not None:
            framed.append((b"content-length", str(len(body)).encode("ascii")))
        request = h11.Request(method=method, target=target, headers=framed)
        self._write(request)
        if body:
            self._write(h11.Data(data=body))
        self._write(h11.EndOfMessage())
        await self._writer.drain()
        while True:
            event = await self._next_event()
            if isinstance(event, h11.Response):
                names = {
                    name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers
                }
                return Head(event.status_code, names)
            if isinstance(event, h11.InformationalResponse):
                continue
            raise EOFError("the server closed the connection without an answer")

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes, to its end. Raises when the connection breaks before that."""
        while True:
            event = await self._next_event()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
                continue
            if isinstance(event, h11.EndOfMessage):
                return
            raise EOFError("the server closed the connection within an answer")

    async def stream(self, head: Head) -> AsyncIterator[bytes]:
        """As `pieces`, but quick for chunks; the connection cannot be used again afterwards."""
        if head.headers.get("transfer-encoding", "").lower() != "chunked":
            async for piece in self.pieces():
                yield piece
            return
        decoder = ChunkedDecoder()
        data, ended = self._h11.trailing_data  # came along with the head
        while True:
            piece = decoder.feed(data)
            if piece:
                yield piece
            if decoder.finished:
                return
            data = b"" if ended else await self._reader.read(_READ_BYTES)
            if not data:
                raise EOFError("the server closed the connection within an answer")

    async def body(self, limit_bytes: int | None = None) -> bytes:
        """The whole body, or EOFError once it is longer than `limit_bytes`."""
        parts: list[bytes] = []
        size = 0
        async for piece in self.pieces():
            parts.append(piece)
            size += len(piece)
            if limit_bytes is not None and size > limit_bytes:
                raise EOFError(f"the answer is longer than {limit_bytes} bytes")
        return b"".join(parts)

    def recycle(self) -> bool:
        """Makes ready for the next exchange; False when the connection cannot be used again."""
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            return False
        self._h11.start_next_cycle()
        return self.usable()

    def usable(self) -> bool:
        """Whether, as far as is known here, the server has not closed the idle connection."""
        # Bytes that nobody asked for are in the buffer: whose answer would they be?
        unasked = bool(self._reader._buffer)  # type: ignore[attr-defined] # no public way
        return not (unasked or self._reader.at_eof() or self._writer.is_closing())

    def abort(self) -> None:
        """Closes at once, without waiting for the other side."""
        self._writer.transport.abort()

    async def wait_closed(self) -> None:
        """Waits until the socket is really closed; bounded, since `abort` waits for nobody."""
        try:
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()
        except OSError:
            pass  # it was broken already; closed is all that matters

    def _write(self, event: h11.Event) -> None:
        data = self._h11.send(event)
        if data:
            self._writer.write(data)

    async def _next_event(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self._h11.next_event()
            if isinstance(event, h11.Event) or event is h11.PAUSED:
                return event
            data = await self._reader.read(_READ_BYTES)
            if data:
                self.answered = True
            self._h11.receive_data(data)


def _watch_over(writer: asyncio.StreamWriter) -> None:
    """Has the kernel find out about a peer that vanished without a word, within a minute."""
    sock = writer.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 20),
        ("TCP_KEEPINTVL", 10),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 30_000),  # milliseconds that sent bytes may stay unacknowledged
    ):
        number = getattr(socket, option, None)
        if number is not None:
            sock.setsockopt(socket.IPPROTO_TCP, number, value)
