"""Connections over real sockets and TLS: their clock, their idleness, their end."""

import asyncio
import datetime
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clusterops.apiserver import front as front_module
from clusterops.apiserver.front import Front, tls_context
from clusterops.local.certificates import ensure

NOON = datetime.datetime(2024, 2, 29, 12, 0, tzinfo=datetime.UTC)
GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


class Application:
    """Answers `/slow` when it is told to, everything else at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            self.asked.set()
            await self.go_on.wait()
        await send({"type": "http.response.start", "status": 200,
                    "headers": [(b"content-length", b"2")]})  # fmt: skip
        await send({"type": "http.response.body", "body": b"ok"})


class Served:
    """A running front and how to reach it."""

    def __init__(self, front: Front, application: Application, port: int, tls: ssl.SSLContext):
        self.front = front
        self.application = application
        self._port = port
        self._tls = tls

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    certificates = ensure(tmp_path, datetime.datetime.now(datetime.UTC))
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    application = Application()
    front = Front(application, lambda: NOON)
    await front.start(listener, tls_context(certificates.server, certificates.server_key))
    trust = ssl.create_default_context(cafile=certificates.authority)
    yield Served(front, application, listener.getsockname()[1], trust)
    application.go_on.set()
    await front.stop()
    listener.close()


async def test_answers_carry_the_date(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(GET)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    assert b"\r\ndate: Thu, 29 Feb 2024 12:00:00 GMT\r\n" in head
    writer.close()


async def test_connections_that_nobody_uses_are_closed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle_reader, idle_writer = await served.connect()
    busy_reader, busy_writer = await served.connect()
    busy_writer.write(GET.replace(b"/a", b"/slow"))
    await asyncio.wait_for(served.application.asked.wait(), 10)
    monkeypatch.setattr(front_module, "IDLE_SECONDS", -1)
    assert await asyncio.wait_for(idle_reader.read(), 10) == b""
    monkeypatch.undo()
    served.application.go_on.set()
    assert (await asyncio.wait_for(busy_reader.readuntil(b"ok"), 10)).startswith(b"HTTP/1.1 200")
    for writer in (idle_writer, busy_writer):
        writer.close()


async def test_the_end_waits_for_answers_under_way_and_takes_no_new_ones(served: Served) -> None:
    reader, writer = await served.connect()
    idle_reader, idle_writer = await served.connect()
    writer.write(GET.replace(b"/a", b"/slow"))
    await asyncio.wait_for(served.application.asked.wait(), 10)
    stopping = asyncio.create_task(served.front.stop())
    assert await asyncio.wait_for(idle_reader.read(), 10) == b""
    with pytest.raises(OSError):
        await served.connect()
    assert not stopping.done()
    served.application.go_on.set()
    answer = await asyncio.wait_for(reader.read(), 10)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in answer
    assert answer.endswith(b"ok")
    await asyncio.wait_for(stopping, 10)
    for each in (writer, idle_writer):
        each.close()


async def test_the_end_does_not_wait_for_ever(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_module, "SHUTDOWN_SECONDS", 0.05)
    reader, writer = await served.connect()
    writer.write(GET.replace(b"/a", b"/slow"))
    await asyncio.wait_for(served.application.asked.wait(), 10)
    await asyncio.wait_for(served.front.stop(), 10)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
