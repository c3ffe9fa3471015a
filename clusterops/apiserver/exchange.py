"""One HTTP/1.1 request and its answer, as an ASGI application sees them.

The head of an answer waits for the first piece of its body, so that most answers are one write: over
TLS each write is a record of its own.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Protocol

from clusterops.apiserver.request import Scope

JOINED_LIMIT = 64 * 1024  # bytes; larger bodies are written apart from their head, not copied

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_BODILESS = frozenset({204, 304})


class Wire(Protocol):
    """The connection that an exchange writes to."""

    @property
    def date(self) -> bytes:
        """The Date header line of answers that begin now."""
        ...

    def write(self, piece: bytes) -> None:
        """Send bytes; nothing happens when the client is gone."""
        ...

    @property
    def drained(self) -> asyncio.Future[None] | None:
        """What to wait for before writing more; None when the client keeps up."""
        ...

    def wants_body(self) -> None:
        """More of the request's body is wanted."""
        ...

    def answered(self) -> None:
        """The answer is complete."""
        ...


class Exchange:
    """A request on a connection. The connection calls `add_body`, `end_body` and `lose_client`."""

    __slots__ = (
        "_begun",
        "_body",
        "_chunked",
        "_delivered",
        "_expects_continue",
        "_head",
        "_loop",
        "_missing",
        "_pieces",
        "_waiter",
        "_wire",
        "complete",
        "gone",
        "keep_alive",
        "received",
        "scope",
    )

    def __init__(
        self,
        wire: Wire,
        loop: asyncio.AbstractEventLoop,
        scope: Scope,
        *,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self.scope = scope
        self.keep_alive = keep_alive  # whether the connection may go on after this
        self.received = False  # the whole request is here
        self.complete = False  # the whole answer was written
        self.gone = False
        self._wire = wire
        self._loop = loop
        self._expects_continue = expects_continue
        self._pieces: list[bytes] = []
        self._delivered = False
        self._waiter: asyncio.Future[None] | None = None
        self._head: bytes | None = None  # of an answer that has begun, until it is written
        self._begun = False
        self._body = False  # whether the answer may have a body
        self._chunked = False
        self._missing = -1  # bytes of the body that its length promises; -1 without one

    # The connection's side

    def add_body(self, piece: bytes) -> None:
        """A piece of the request's body arrived; nobody reads it once the answer is complete."""
        if not self.complete:
            self._pieces.append(piece)
            self._wake()

    def end_body(self) -> None:
        """The request is complete."""
        self.received = True
        self._wake()

    def lose_client(self) -> None:
        """The client is gone."""
        self.gone = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # The application's side

    async def receive(self) -> dict[str, Any]:
        """The next piece of the request, or the news that the client left."""
        if self._expects_continue:
            self._expects_continue = False
            self._wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while True:
            if self.gone or self.complete:
                return {"type": "http.disconnect"}
            if self._pieces or (self.received and not self._delivered):
                pieces, self._pieces = self._pieces, []
                self._delivered = self.received
                body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
                return {"type": "http.request", "body": body, "more_body": not self.received}
            self._wire.wants_body()
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def send(self, message: Any) -> None:
        """Send the head or a piece of the answer; waits while the client reads too slowly."""
        while not self.gone and (drained := self._wire.drained) is not None:
            await drained
        if self.gone:
            return
        kind = message["type"]
        if kind == "http.response.body" and self._begun and not self.complete:
            self._send_body(message.get("body", b""), message.get("more_body", False))
        elif kind == "http.response.start" and not self._begun:
            self._begin(message["status"], message["headers"])
        else:
            raise RuntimeError(f"the ASGI message {kind!r} cannot be sent now")

    def _begin(self, status: int, headers: Any) -> None:
        lines = [_STATUS_LINES[status], self._wire.date]
        length = -1
        for name, value in headers:
            if b"\n" in value or b"\r" in value:
                raise ValueError(f"the value of the header {name!r} has a line break")
            if name == b"content-length":
                length = int(value)
            elif name == b"connection" and value == b"close":
                self.keep_alive = False
                continue
            lines += (name, b": ", value, b"\r\n")
        self._body = self.scope["method"] != "HEAD" and status not in _BODILESS
        if length < 0 and self._body:
            if self.scope["http_version"] == "1.1":
                self._chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                self.keep_alive = False  # the end of the connection ends the answer
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        self._begun = True
        self._head = b"".join(lines)
        self._missing = length

    def _send_body(self, body: bytes, more: bool) -> None:
        head, self._head = self._head or b"", None
        if not self._body:
            body = b""
        elif self._chunked:
            body = _chunk(body, more)
        elif self._missing >= 0:
            self._missing -= len(body)
            if self._missing < 0 or (self._missing and not more):
                raise RuntimeError("the body of the answer has another length than its head says")
        if len(body) <= JOINED_LIMIT:
            body = head + body if head else body
        elif head:
            self._wire.write(head)
        if body:
            self._wire.write(body)
        if not more:
            self.complete = True
            self._pieces.clear()
            self._wake()
            self._wire.answered()


def _chunk(body: bytes, more: bool) -> bytes:
    """A piece in the chunked coding, and the end of the answer when no more follow."""
    chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    return chunk if more else chunk + b"0\r\n\r\n"
