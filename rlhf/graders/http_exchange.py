"""HTTP/1.1 messages over asyncio streams, each with a limit on its size: client and server share it."""

import asyncio
from typing import NamedTuple

import h11

_READ_BYTES = 64 << 10


class TooLarge(Exception):
    """A body has more bytes than allowed."""


class Disconnected(Exception):
    """The other side went away, or does not speak HTTP."""


class Message(NamedTuple):
    """A request or a response with its body. Header names are lower case."""

    head: h11.Request | h11.Response
    body: bytes

    def header(self, name: str) -> str:
        """A header's value, empty when there is none."""
        wanted = name.encode("ascii")
        for found, value in self.head.headers:
            if found == wanted:
                return value.decode("latin-1")
        return ""


async def receive(
    connection: h11.Connection, reader: asyncio.StreamReader, most_bytes: int
) -> Message | None:
    """The next message; None when the other side has closed between two.

    Raises:
        TooLarge: its body is larger than `most_bytes`.
        Disconnected: the connection ends within it, or it is no HTTP.
    """
    head: h11.Request | h11.Response | None = None
    body = bytearray()
    while True:
        try:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(_READ_BYTES))
                continue
        except (h11.RemoteProtocolError, ConnectionError) as error:
            raise Disconnected(str(error)) from None
        if isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            return None
        if isinstance(event, h11.Request | h11.Response):
            head = event
            length = dict(event.headers).get(b"content-length")
            if length is not None and int(length) > most_bytes:
                raise TooLarge(f"{int(length)} bytes; at most {most_bytes}")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > most_bytes:
                raise TooLarge(f"more than {most_bytes} bytes")
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            return Message(head, bytes(body))


async def send(
    connection: h11.Connection,
    writer: asyncio.StreamWriter,
    head: h11.Request | h11.Response,
    body: bytes,
) -> None:
    """Sends a message.

    Raises:
        Disconnected: the other side went away.
    """
    pieces = [
        connection.send(head),
        connection.send(h11.Data(data=body)),
        connection.send(h11.EndOfMessage()),
    ]
    try:
        writer.write(b"".join(piece for piece in pieces if piece))
        await writer.drain()
    except ConnectionError as error:
        raise Disconnected(str(error)) from None
