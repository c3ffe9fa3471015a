"""The front of the server: accepts connections, keeps their clock, ends them in order."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from datetime import datetime
from email.utils import format_datetime
from pathlib import Path

from clusterops.apiserver.connection import Application, Connection, Shared

IDLE_SECONDS = 300  # before a connection without a request is closed
SHUTDOWN_SECONDS = 5.0  # for requests under way, once all watches have ended
GOODBYE_SECONDS = 1.0  # for clients to take the rest of their answers
BACKLOG = 1024

_log = logging.getLogger(__name__)


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS with one certificate, at the library's own defaults for servers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


class Front:
    """Serves one application on one listening socket. `now` is a wall clock in UTC."""

    def __init__(self, application: Application, now: Callable[[], datetime]) -> None:
        self._loop = asyncio.get_running_loop()
        self._shared = Shared(application, self._loop)
        self._now = now
        self._listening: asyncio.Server | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._tick()

    async def start(self, listener: socket.socket, tls: ssl.SSLContext) -> None:
        """Begin to accept connections."""
        self._listening = await self._loop.create_server(
            lambda: Connection(self._shared), sock=listener, ssl=tls, backlog=BACKLOG
        )

    def _tick(self) -> None:
        """Once a second: the date of answers, and connections that nobody uses."""
        date = format_datetime(self._now(), usegmt=True)
        self._shared.date = f"date: {date}\r\n".encode()
        oldest = self._loop.time() - IDLE_SECONDS
        for connection in tuple(self._shared.connections):
            if connection.idle and connection.idle_since < oldest:
                connection.shut_down()
        self._ticker = self._loop.call_later(1.0, self._tick)

    async def stop(self) -> None:
        """Accept no more, let requests under way end, close everything."""
        if self._listening is not None:
            self._listening.close()
        shared = self._shared
        shared.closing = True
        for connection in tuple(shared.connections):
            connection.shut_down()
        if shared.tasks:
            _, late = await asyncio.wait(tuple(shared.tasks), timeout=SHUTDOWN_SECONDS)
            for task in late:
                _log.warning("a request took longer than %.0f s to end", SHUTDOWN_SECONDS)
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=SHUTDOWN_SECONDS)
        if shared.connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await shared.all_closed.wait()
        for connection in tuple(shared.connections):
            connection.abort()
        if self._ticker is not None:
            self._ticker.cancel()
