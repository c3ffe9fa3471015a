"""A connection of the API server without sockets, and what a client makes of its bytes."""

import asyncio
from typing import Any, NamedTuple

from clusterops.apiserver.connection import Application, Connection, Shared


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.writes = 0
        self.closed = False
        self.aborted = False
        self.reading = True

    def write(self, data: Any) -> None:
        assert not self.closed, "written after the end"
        self.sent += data
        self.writes += 1

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def pause_reading(self) -> None:
        assert self.reading, "paused twice"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "resumed while reading"
        self.reading = True


class Client:
    """A client on a connection to `application`."""

    def __init__(self, application: Application) -> None:
        self.shared = Shared(application, asyncio.get_running_loop())
        self.shared.date = b"date: today\r\n"
        self.transport = Transport()
        self.connection = Connection(self.shared)
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        """Bytes of the client, unless the server closed the connection."""
        if not self.transport.closed:
            self.connection.data_received(data)

    def leave(self) -> None:
        self.connection.connection_lost(None)

    async def settled(self) -> None:
        """Wait for the requests under way."""
        while self.shared.tasks:
            await asyncio.wait(tuple(self.shared.tasks), timeout=10)

    @property
    def answers(self) -> "list[Answer]":
        return parse(bytes(self.transport.sent))


class Answer(NamedTuple):
    """One answer as a client reads it."""

    status: int
    headers: dict[str, str]
    body: bytes


def parse(sent: bytes) -> list[Answer]:
    """All answers in the bytes of a server; fails for anything that is no HTTP."""
    answers = []
    while sent:
        head, separator, sent = sent.partition(b"\r\n\r\n")
        assert separator, head
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        status = int(first.split()[1])
        if headers.get("transfer-encoding") == "chunked":
            body, sent = _unchunked(sent)
        elif "content-length" in headers:
            length = int(headers["content-length"])
            assert len(sent) >= length, "the answer is cut short"
            body, sent = sent[:length], sent[length:]
        elif status == 100:
            body = b""
        else:
            body, sent = sent, b""
        answers.append(Answer(status, headers, body))
    return answers


def _unchunked(sent: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        size, _, sent = sent.partition(b"\r\n")
        length = int(size, 16)
        body += sent[:length]
        assert sent[length : length + 2] == b"\r\n"
        sent = sent[length + 2 :]
        if not length:
            return body, sent
