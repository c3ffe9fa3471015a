"""Runs the server: a model from a checkpoint, an engine in its thread, and HTTP on one socket.

It listens on this machine alone, unless a certificate and a key are given. When told to stop it takes no
new requests, lets those under way finish for a while, and tells the rest.
"""

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import uvicorn

from rlhf.engine import PagedEngine
from rlhf.engine_settings import Settings
from rlhf.kv.architecture import UnsupportedModel
from rlhf.kv.waiting import Order
from rlhf.serving.app import Api
from rlhf.serving.engine_thread import EngineThread
from rlhf.serving.gate import LOOPBACK_NAMES, Gate
from rlhf.serving.loading import Loaded
from rlhf.serving.requests import Served

_START_SECONDS = 20.0
_STOP_SECONDS = 10.0


class CannotServe(Exception):
    """The server cannot run as configured; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Where and how to serve. Port 0 takes a free one; `drain_seconds` for what is under way at the end.

    `key_file` holds the API key, readable by its owner alone; None for no key, on this machine only.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    key_file: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    most_under_way: int = 256
    response_seconds: float = 600.0
    drain_seconds: float = 30.0
    engine: Settings = field(default_factory=lambda: Settings(order=Order(longest_first=False)))

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def url(self, port: int) -> str:
        """The base URL of clients."""
        scheme = "http" if self.tls_certificate is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{port}/v1"


class Opened(NamedTuple):
    """A socket that listens, and the key that clients must send."""

    listener: socket.socket
    key: str | None


@contextlib.contextmanager
def opened(config: ServeConfig) -> Iterator[Opened]:
    """Checks the configuration and listens; who connects before the server runs waits for it.

    Raises:
        CannotServe: says what is in the way.
    """
    key = _key(config)
    _check_tls(config)
    listener = _bind(config)
    try:
        yield Opened(listener, key)
    finally:
        listener.close()


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


async def serve(
    loaded: Loaded,
    config: ServeConfig,
    stop: asyncio.Event,
    ready: "asyncio.Future[int]",
    *,
    entrance: Opened,
    hurry: asyncio.Event | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Serves until `stop` is set; `ready` gets the port. `hurry` ends the time for what is under way.

    Raises:
        CannotServe: says what is in the way.
    """
    thread = EngineThread(_engine(loaded, config))
    hosts = (config.host, *LOOPBACK_NAMES) if config.local else None
    gate = Gate(entrance.key, hosts, config.most_under_way)
    served = Served(loaded.name, loaded.vocabulary, loaded.template, loaded.model.context)
    api = Api(served, thread, gate, config.response_seconds)
    server = _Server(_http(api, config))
    thread.start()
    serving = asyncio.create_task(server.serve(sockets=[entrance.listener]), name="serving")
    began = asyncio.create_task(server.began.wait())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait(
            [began, serving], timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        if not began.done():
            raise CannotServe(f"the server did not start within {_START_SECONDS:g} s")
        ready.set_result(entrance.listener.getsockname()[1])
        while not stopping.done() and not serving.done() and not thread.failed:
            await asyncio.wait(
                [stopping, serving], timeout=0.5, return_when=asyncio.FIRST_COMPLETED
            )
        await _drain(gate, thread, config.drain_seconds, hurry or asyncio.Event(), say)
    finally:
        for task in (began, stopping):
            task.cancel()
        await thread.stop(_STOP_SECONDS)
        server.should_exit = True
        await asyncio.wait([serving], timeout=_STOP_SECONDS)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    if thread.failed and not stop.is_set():
        raise CannotServe("the engine failed; its error is above")


def _engine(loaded: Loaded, config: ServeConfig) -> PagedEngine:
    try:
        return PagedEngine(
            loaded.model, loaded.version or 0, config.engine, decode=loaded.vocabulary.decode
        )
    except UnsupportedModel as error:
        raise CannotServe(f"{loaded.name} cannot be served: {error}") from error


async def _drain(
    gate: Gate,
    thread: EngineThread,
    seconds: float,
    hurry: asyncio.Event,
    say: Callable[[str], None],
) -> None:
    """No new requests; waits for those under way, up to the deadline or until it is told to hurry."""
    gate.draining = True
    if gate.under_way:
        say(
            f"stopping: {gate.under_way} responses are under way and have {seconds:g} s; "
            "stop once more to end them now"
        )
    deadline = asyncio.get_running_loop().time() + seconds
    while gate.under_way and not thread.failed and not hurry.is_set():
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            return
        gate.left.clear()
        leaving = asyncio.create_task(gate.left.wait())
        hurrying = asyncio.create_task(hurry.wait())
        await asyncio.wait(
            [leaving, hurrying], timeout=min(left, 0.5), return_when=asyncio.FIRST_COMPLETED
        )
        leaving.cancel()
        hurrying.cancel()


def _http(api: Api, config: ServeConfig) -> uvicorn.Config:
    made = uvicorn.Config(
        api.application(),
        http="httptools",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        ssl_certfile=config.tls_certificate,
        ssl_keyfile=config.tls_key,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,
        limit_concurrency=4 * config.most_under_way,
    )
    made.load()
    return made


def _check_tls(config: ServeConfig) -> None:
    if config.tls_certificate is None:
        if config.tls_key is not None:
            raise CannotServe("--tls-key is of no use without --tls-certificate")
        return
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(config.tls_certificate, config.tls_key)
    except OSError as error:  # ssl.SSLError is one: not a certificate, or no key to it
        key = f"and {config.tls_key}" if config.tls_key else "without --tls-key"
        raise CannotServe(
            f"{config.tls_certificate} {key} cannot be used for TLS: {error}"
        ) from error


def _bind(config: ServeConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host, config.port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise CannotServe(
            f"cannot listen on {config.host}:{config.port}: {error.strerror}; "
            "end what uses the port, or choose another with --port"
        ) from error
    listener.setblocking(False)
    return listener


def _key(config: ServeConfig) -> str | None:
    """The API key; checks that nothing is open to other machines without TLS and a key."""
    if not config.local and (config.key_file is None or config.tls_certificate is None):
        raise CannotServe(
            f"the server would listen on {config.host} without "
            + ("a key" if config.key_file is None else "TLS")
            + "; give --key-file, --tls-certificate and --tls-key, or listen on 127.0.0.1"
        )
    if config.key_file is None:
        return None
    try:
        mode = config.key_file.stat().st_mode
        key = config.key_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotServe(f"the key file cannot be read: {error}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and os.name == "posix":
        raise CannotServe(f"others may read {config.key_file}: chmod 600 it, and change the key")
    if len(key) < 16:
        raise CannotServe(f"the key in {config.key_file} has fewer than 16 characters")
    return key
