"""A client's connection: bytes in, requests to the application, answers out.

HTTP/1.1 with httptools as the parser. Requests of one connection are answered one after the other;
what a client sends ahead waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any
from urllib.parse import unquote

import httptools

from clusterops.apiserver.exchange import Exchange
from clusterops.apiserver.request import Receive, Scope, Send

HEAD_LIMIT = 64 * 1024  # bytes of a request line and its headers
BODY_AHEAD = 64 * 1024  # bytes of a body that are read before the application asks for them

Application = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]

_ASGI = {"version": "3.0", "spec_version": "2.3"}

_log = logging.getLogger(__name__)


class Shared:
    """What all connections of a server have in common."""

    def __init__(self, application: Application, loop: asyncio.AbstractEventLoop) -> None:
        self.application = application
        self.loop = loop
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.date = b""  # the Date header line, kept by the front
        self.closing = False
        self.all_closed = asyncio.Event()  # set when `closing` and no connection is left


class Connection(asyncio.Protocol):
    """One connection. Its exchanges write through it."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._parser = httptools.HttpRequestParser(self)
        # A request that ends the connection is answered whatever follows it.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self._in_head = False
        self._head_bytes = 0  # of a request whose head is not complete
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects_continue = False
        self._arriving: Exchange | None = None  # whose body is being received
        self._body_bytes = 0  # of its body, not yet asked for
        self._current: Exchange | None = None  # the one that is being answered
        self._waiting: deque[Exchange] = deque()
        self._starting = False
        self.drained: asyncio.Future[None] | None = None
        self.idle_since = shared.loop.time()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over."""
        self._transport = transport  # type: ignore[assignment] # TCP and TLS give both ways
        self._shared.connections.add(self)
        if self._shared.closing:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 # as its callers have it
        """The client is gone: whoever waits for it or writes to it learns that."""
        self._transport = None
        self._abandon()
        self.resume_writing()
        self._shared.connections.discard(self)
        if self._shared.closing and not self._shared.connections:
            self._shared.all_closed.set()

    def data_received(self, received: bytes) -> None:
        """Parse what came and start what is complete enough to be answered."""
        continues_head = self._in_head
        try:
            self._parser.feed_data(received)
        except httptools.HttpParserUpgrade:
            pass  # no other protocol is spoken: the request is answered, then the connection ends
        except httptools.HttpParserError:
            self._refuse(b"400 Bad Request")
            return
        if continues_head and self._in_head:
            self._head_bytes += len(received)
            if self._head_bytes > HEAD_LIMIT:
                self._refuse(b"431 Request Header Fields Too Large")
                return
        self._start_waiting()

    def eof_received(self) -> bool:
        """A client that sends no more takes no more answers either."""
        return False

    def pause_writing(self) -> None:
        """The client reads more slowly than we write."""
        if self.drained is None:
            self.drained = self._shared.loop.create_future()

    def resume_writing(self) -> None:
        """It caught up."""
        if self.drained is not None:
            drained, self.drained = self.drained, None
            if not drained.done():
                drained.set_result(None)

    # The parser's side

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head = True
        self._head_bytes = 0
        self._url = b""
        self._headers = []
        self._expects_continue = False

    def on_url(self, url: bytes) -> None:
        """A part of the request's target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is here: that is enough to begin."""
        parser = self._parser
        version = parser.get_http_version()
        raw_path, query = _target(self._url)
        path = raw_path.decode("ascii")
        scope: Scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "scheme": "https",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
        }
        self._in_head = False
        self._body_bytes = 0
        self._arriving = exchange = Exchange(
            self,
            self._shared.loop,
            scope,
            keep_alive=parser.should_keep_alive() and not parser.should_upgrade(),
            expects_continue=self._expects_continue,
        )
        self._waiting.append(exchange)

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        exchange = self._arriving
        assert exchange is not None, "a body comes after its head"
        exchange.add_body(body)
        self._body_bytes += len(body)
        if self._body_bytes > BODY_AHEAD and not exchange.complete:
            self._pause_reading()

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self._arriving is not None:
            self._arriving.end_body()
            self._arriving = None

    # The exchanges' side

    @property
    def date(self) -> bytes:
        """The Date header line."""
        return self._shared.date

    def write(self, piece: bytes) -> None:
        """Send bytes."""
        if self._transport is not None:
            self._transport.write(piece)

    def wants_body(self) -> None:
        """The application asks for more of the body."""
        self._body_bytes = 0
        if not self._waiting:
            self._resume_reading()

    def answered(self) -> None:
        """The current exchange is over: on to the next, or the end."""
        exchange, self._current = self._current, None
        assert exchange is not None, "only the current exchange is answered"
        self.idle_since = self._shared.loop.time()
        if not exchange.keep_alive or self._shared.closing:
            self._close()
            return
        self._start_waiting()
        if not self._waiting:
            self._resume_reading()

    # Requests, one after the other

    def _start_waiting(self) -> None:
        """Begin the requests that wait, as long as each is answered at once."""
        if self._starting:
            return
        self._starting = True
        try:
            while self._waiting and self._current is None and self._transport is not None:
                self._current = exchange = self._waiting.popleft()
                self._start(exchange)
        finally:
            self._starting = False
        if self._waiting:
            self._pause_reading()

    def _start(self, exchange: Exchange) -> None:
        """Run the application; as a task only when it has to wait for something.

        Most reads never do, and a task costs as much as all else about them.
        """
        application = self._shared.application
        coroutine = application(exchange.scope, exchange.receive, exchange.send)
        try:
            awaited = coroutine.send(None)
        except StopIteration:
            self._ended(exchange)
            return
        task = self._shared.loop.create_task(_Begun(coroutine, awaited))
        self._shared.tasks.add(task)
        task.add_done_callback(partial(self._task_ended, exchange))

    def _task_ended(self, exchange: Exchange, task: asyncio.Task[None]) -> None:
        self._shared.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the application failed", exc_info=error)
        self._ended(exchange)

    def _ended(self, exchange: Exchange) -> None:
        """The application returned; an answer that it left open cannot be completed."""
        if not exchange.complete and not exchange.gone:
            _log.error("no complete answer to %s", ascii(exchange.scope["path"]))
            if self._transport is not None:
                self._transport.abort()

    def _refuse(self, status: bytes) -> None:
        """Answer what is no HTTP, when nothing else is being answered, and close."""
        if self._current is None:
            self.write(b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" % status)
        self._close()

    def _pause_reading(self) -> None:
        if self._reading and self._transport is not None:
            self._transport.pause_reading()
            self._reading = False

    def _resume_reading(self) -> None:
        if not self._reading and self._transport is not None:
            self._transport.resume_reading()
            self._reading = True

    def _abandon(self) -> None:
        """Nothing more comes from the client or goes to it."""
        self._waiting.clear()
        for exchange in (self._current, self._arriving):
            if exchange is not None and not exchange.complete:
                exchange.lose_client()

    def _close(self) -> None:
        self._abandon()
        if self._transport is not None:
            self._transport.close()

    # The front's side

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        return self._current is None

    def shut_down(self) -> None:
        """Close after the answer under way, or at once."""
        if self._current is None:
            self._close()
        else:
            self._current.keep_alive = False

    def abort(self) -> None:
        """Close without another byte."""
        if self._transport is not None:
            self._transport.abort()


class _Begun(Coroutine[Any, Any, None]):
    """A coroutine that was begun outside of a task and waits for `awaited`, for a task to go on."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], awaited: Any) -> None:
        self._coroutine = coroutine
        self._awaited = [awaited]

    def send(self, value: Any) -> Any:
        """Hand out what is waited for, once; then go on."""
        if self._awaited:
            return self._awaited.pop()
        return self._coroutine.send(value)

    def throw(self, error: Any, value: Any = None, traceback: Any = None) -> Any:  # noqa: ARG002 # as its callers have it
        """Raise an error where the coroutine waits: how tasks are cancelled."""
        return self._coroutine.throw(error if value is None else value)

    def close(self) -> None:
        """Give up."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise TypeError("made for a task alone")


def _target(url: bytes) -> tuple[bytes, bytes]:
    """Path and query of a request's target. Raises HttpParserInvalidURLError."""
    if url.startswith(b"/") and b"#" not in url:
        path, _, query = url.partition(b"?")
        return path, query
    parsed = httptools.parse_url(url)
    return parsed.path or b"/", parsed.query or b""
