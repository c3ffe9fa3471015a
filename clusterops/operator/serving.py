"""Serves the endpoint over TLS with uvicorn, without letting it take over the process."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn

from clusterops.operator.endpoint import Endpoint

START_SECONDS = 20.0
STOP_SECONDS = 10.0


class CannotServe(Exception):
    """The endpoint cannot be served as configured; the text says why and what to do."""


class _Server(uvicorn.Server):
    """Signals are the process's own business; `began` is set once connections are accepted."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.began = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts accepting."""
        await super().startup(sockets)
        self.began.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises CannotServe."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise CannotServe(
            f"the jobs' endpoint cannot listen on {host}:{port}: {error.strerror}; "
            "end what uses the port, or choose another with --port"
        ) from error
    listener.setblocking(False)
    return listener


def refuse_open_plaintext(host: str, certificate: Path | None) -> None:
    """Tokens in plain text never leave this machine. Raises CannotServe."""
    if certificate is None and not _loopback(host):
        raise CannotServe(
            f"the jobs' endpoint would listen on {host} without TLS; "
            "give --tls-certificate and --tls-key, or listen on 127.0.0.1"
        )


@asynccontextmanager
async def served(
    endpoint: Endpoint,
    listener: socket.socket,
    certificate: Path | None,
    key: Path | None,
) -> AsyncIterator[None]:
    """Serves while the context lasts; running requests are answered before it ends."""
    config = uvicorn.Config(
        endpoint,
        http="httptools",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,
    )
    try:
        config.load()
    except OSError as error:  # ssl.SSLError is one: not a certificate, or no key to it
        listener.close()
        raise CannotServe(f"{certificate} and {key} cannot be used for TLS: {error}") from error
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="endpoint")
    began = asyncio.create_task(server.began.wait())
    try:
        await asyncio.wait(
            [began, serving], timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        if not began.done():
            raise CannotServe(f"the jobs' endpoint did not start within {START_SECONDS:g} s")
        yield
    finally:
        began.cancel()
        server.should_exit = True
        _, late = await asyncio.wait([serving], timeout=STOP_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        listener.close()


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
