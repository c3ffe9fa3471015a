"""A lean load generator for the API server, which also reads what its server spends.

Requests are encoded before the clock starts, and a connection sends the next one out of the callback
in which the answer ended: on a machine with few cores a generator with tasks and streams would be
what is measured.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEADLINE_SECONDS = 300.0  # for one measurement
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(process: int) -> float:
    """User and system time of all threads of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@dataclass(frozen=True)
class Spent:
    """What a number of operations took: wall time, and CPU time on both sides, in seconds."""

    operations: int
    wall: float
    server_cpu: float
    generator_cpu: float

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.operations / self.wall

    @property
    def server_us(self) -> float:
        """Microseconds of the server's CPU time for each operation."""
        return self.server_cpu / self.operations * 1e6

    @property
    def generator_us(self) -> float:
        """Microseconds of the generator's CPU time for each operation."""
        return self.generator_cpu / self.operations * 1e6


class Load:
    """Drives one server process at a port of 127.0.0.1."""

    def __init__(self, process: int, port: int, tls: ssl.SSLContext, token: str) -> None:
        self._process = process
        self._port = port
        self._tls = tls
        self._head = f" HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"

    def request(self, method: str, path: str, body: bytes = b"", more: str = "") -> bytes:
        """A request as it goes over the wire; `more` are further header lines."""
        head = f"{method} {path}{self._head}{more}Content-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    async def _connected(self, protocol: asyncio.Protocol) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(
            lambda: protocol, "127.0.0.1", self._port, ssl=self._tls
        )
        return transport

    async def answers(self, clients: int, requests: list[bytes]) -> Spent:
        """Send all requests over so many connections, each waiting for its answer."""
        waiting = iter(requests)
        ended = asyncio.Event()
        connections = [_Requester(waiting, ended) for _ in range(clients)]
        transports = [await self._connected(connection) for connection in connections]
        meter = _Meter(self._process)
        for connection in connections:
            connection.send_next()
        while sum(connection.answered for connection in connections) < len(requests):
            ended.clear()
            await asyncio.wait_for(ended.wait(), DEADLINE_SECONDS)
            for connection in connections:
                assert not connection.problem, connection.problem
        spent = meter.spent(len(requests))
        for transport in transports:
            transport.close()
        return spent

    async def body(self, request: bytes) -> tuple[bytes, Spent]:
        """The body of one answer, and what it took once the connection stood."""
        ended = asyncio.Event()
        connection = _Requester(iter([request]), ended, keep=True)
        transport = await self._connected(connection)
        meter = _Meter(self._process)
        connection.send_next()
        await asyncio.wait_for(ended.wait(), DEADLINE_SECONDS)
        assert not connection.problem, connection.problem
        spent = meter.spent(1)
        transport.close()
        return connection.kept, spent

    async def fan_out(self, watch: bytes, watchers: int, writes: list[bytes]) -> Spent:
        """Open watches, then write over 16 connections until every watcher saw every write."""
        connections = [_Watcher(watch, len(writes)) for _ in range(watchers)]
        transports = [await self._connected(connection) for connection in connections]
        for connection in connections:
            await asyncio.wait_for(connection.begun.wait(), DEADLINE_SECONDS)
        meter = _Meter(self._process)
        await self.answers(16, writes)
        for connection in connections:
            await asyncio.wait_for(connection.ended.wait(), DEADLINE_SECONDS)
            assert connection.seen >= len(writes), "the watch ended early"
        spent = meter.spent(watchers * len(writes))
        for transport in transports:
            transport.close()
        return spent


class _Meter:
    """Reads clocks at its beginning and at the end."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._server = cpu_seconds(process)
        self._generator = time.process_time()
        self._begun = time.perf_counter()

    def spent(self, operations: int) -> Spent:
        wall = time.perf_counter() - self._begun
        generator = time.process_time() - self._generator
        return Spent(operations, wall, cpu_seconds(self._process) - self._server, generator)


LAST_CHUNK = b"\r\n0\r\n\r\n"


def unchunked(body: bytes) -> bytes:
    """A body without the lengths between its chunks."""
    pieces, rest = [], body
    while rest:
        length, _, rest = rest.partition(b"\r\n")
        size = int(length, 16)
        pieces.append(rest[:size])
        rest = rest[size + 2 :]
    return b"".join(pieces)


class _Requester(asyncio.Protocol):
    """Sends one request after the other; answers must be successes.

    Bodies come with a length or in chunks of JSON, which has no line break of HTTP's kind in it.
    """

    def __init__(
        self, waiting: Iterator[bytes], ended: asyncio.Event, *, keep: bool = False
    ) -> None:
        self._waiting = waiting
        self._ended = ended
        self._keep = keep
        self._head = b""
        self._missing = 0  # bytes of the body
        self._chunked = False  # in a body that comes in chunks
        self._tail = b""
        self._pieces: list[bytes] = []
        self.answered = 0
        self.problem = ""

    @property
    def kept(self) -> bytes:
        """The body of the last answer, when it was to be kept."""
        body = b"".join(self._pieces)
        return unchunked(body) if body.endswith(LAST_CHUNK) else body

    def connection_made(self, transport: Any) -> None:
        self._write = transport.write

    def send_next(self) -> None:
        request = next(self._waiting, None)
        if request is None:
            self._ended.set()
        else:
            self._write(request)

    def data_received(self, data: bytes) -> None:
        if self._chunked:
            self._chunk(data)
            return
        if not self._missing:
            data = self._head + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._head = data
                return
            self._head = b""
            head = data[:end].lower()
            if head[9:10] != b"2":
                self.problem = data[:2000].decode("latin-1")
                self._ended.set()
                return
            self._pieces.clear()
            start = head.find(b"content-length: ") + 16
            if start < 16:
                self._chunked, self._tail = True, b""
                self._chunk(data[end + 4 :])
                return
            self._missing = int(head[start:].partition(b"\r\n")[0])
            data = data[end + 4 :]
        self._missing -= len(data)
        if self._keep:
            self._pieces.append(data)
        if not self._missing:
            self.answered += 1
            self.send_next()

    def _chunk(self, data: bytes) -> None:
        if self._keep:
            self._pieces.append(data)
        self._tail = (self._tail + data)[-len(LAST_CHUNK) :]
        if self._tail == LAST_CHUNK:
            self._chunked = False
            self.answered += 1
            self.send_next()

    def connection_lost(self, exc: Exception | None) -> None:
        self.problem = self.problem or f"the server closed the connection ({exc})"
        self._ended.set()


class _Watcher(asyncio.Protocol):
    """Counts the lines of a watch."""

    def __init__(self, request: bytes, lines: int) -> None:
        self._request = request
        self._lines = lines
        self._last = b""
        self.seen = 0
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.begun.set()
        # A line is JSON, which has no other line break, and may be cut anywhere.
        self.seen += data.count(b"}\n")
        self.seen += self._last == b"}" and data[:1] == b"\n"
        self._last = data[-1:]
        if self.seen >= self._lines:
            self.ended.set()

    def connection_lost(self, _: Exception | None) -> None:
        self.ended.set()
