"""Putting the server together, and its life from the open database to the last answered request."""

import asyncio
import logging
import os
import signal
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from clusterops.apiserver.access import Gate, Tokens, load_tokens
from clusterops.apiserver.definitions import RESOURCE as DEFINITIONS
from clusterops.apiserver.deletion import Deletion
from clusterops.apiserver.expiry import EventExpiry
from clusterops.apiserver.failpoints import from_environment
from clusterops.apiserver.front import Front, tls_context
from clusterops.apiserver.http import ApiServer
from clusterops.apiserver.kind import Kind
from clusterops.apiserver.kind_set import KindSet
from clusterops.apiserver.kinds import builtin_kinds
from clusterops.apiserver.lifecycle import Lifecycle
from clusterops.apiserver.log_files import LogReader
from clusterops.apiserver.operations import Operations
from clusterops.apiserver.pod_actions import PodActions
from clusterops.apiserver.pod_logs import PodLogs
from clusterops.apiserver.reads import Reads
from clusterops.apiserver.registry import Registry
from clusterops.apiserver.reviews import Reviews
from clusterops.apiserver.state import State
from clusterops.apiserver.storage import open_storage
from clusterops.apiserver.stored import decode, encode
from clusterops.apiserver.uids import Uids
from clusterops.apiserver.watch import Watches
from clusterops.apiserver.writes import Writes
from clusterops.apiserver.written_object import WriteOptions, as_text

HOST = "127.0.0.1"  # the only address it ever listens on
FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")

_log = logging.getLogger(__name__)


class PortTaken(Exception):
    """Another program listens on the port. The text says which port and what to do."""


@dataclass(frozen=True)
class ServerConfig:
    """What a server needs.

    `kinds` are the built-in kinds (empty: all there are), `crds` are CustomResourceDefinitions that
    exist from the start. `port` 0 picks a free one.
    """

    database: Path
    port: int
    tls_certificate: Path
    tls_key: Path
    tokens_file: Path
    pod_logs_dir: Path | None = None
    kinds: tuple[Kind, ...] = ()
    crds: tuple[dict[str, Any], ...] = ()


class Server:
    """All parts of one server over one database. Exists within a running event loop."""

    def __init__(self, config: ServerConfig, tokens: Tokens, port: int) -> None:
        loop = asyncio.get_running_loop()
        failpoint = from_environment()
        random = Random()
        self._config = config
        storage = open_storage(config.database, failpoint)
        try:
            self.state = State(storage, monotonic=loop.time, failpoint=failpoint)
        except BaseException:
            storage.close()
            raise
        self.kinds = KindSet(config.kinds or builtin_kinds(), lambda: as_text(_now()))
        self.registry = Registry(
            self.state, self.kinds, now=_now, new_uid=Uids(os.urandom).new, random=random
        )
        deletion = Deletion(self.registry)
        self.lifecycle = Lifecycle(self.registry, deletion)
        events = self.kinds.find("", "v1", "events")
        self.expiry = EventExpiry(self.state, deletion, events, loop.time)
        self.watches = Watches(self.state, _now, random.uniform)
        reads = Reads(self.state, _now)
        logs = LogReader(config.pod_logs_dir) if config.pod_logs_dir is not None else None
        self.application = ApiServer(
            gate=Gate(tokens, port),
            kinds=self.kinds,
            reads=reads,
            writes=Writes(self.registry, deletion, reads),
            watches=self.watches,
            reviews=Reviews(tokens),
            pod_actions=PodActions(self.registry, deletion),
            pod_logs=PodLogs(self.state, logs, _now, lambda: self.watches.closing),
            operations=Operations(self.state, lambda: self.watches.open),
        )

    async def start(self) -> None:
        """Begin to write; create what every server has. Raises Refused for a bad definition."""
        self.kinds.load(self.state.collection(DEFINITIONS).scan())
        self.lifecycle.load()
        self.expiry.load()
        self.state.observers += [
            self.kinds.observe, self.lifecycle.observe, self.expiry.observe,
        ]  # fmt: skip
        self.state.start()
        await self._ensure_namespaces()
        for definition in self._config.crds:
            await self._ensure_definition(definition)

    async def _ensure_namespaces(self) -> None:
        kind = self.kinds.find("", "v1", "namespaces")
        if kind is None:
            return
        known = self.state.collection(kind.group_resource)
        missing = [name for name in FIRST_NAMESPACES if known.latest(("", name)) is None]
        await asyncio.gather(
            *(
                self.registry.create(
                    kind, "", {"metadata": {"name": name}}, WriteOptions("clusterops-apiserver")
                )
                for name in missing
            )
        )

    async def _ensure_definition(self, definition: dict[str, Any]) -> None:
        kind = self.kinds.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        assert kind is not None, "definitions are handed in, so their kind must be served"
        obj = decode(encode(definition))  # its caller's copy stays as it is
        key = ("", obj["metadata"]["name"])
        options = WriteOptions("clusterops-apiserver")
        if self.state.collection(DEFINITIONS).latest(key) is None:
            await self.registry.create(kind, "", obj, options)
        else:
            await self.registry.change(
                kind, key, lambda live: {**live, "spec": obj["spec"]}, options
            )

    def end_streams(self) -> None:
        """End all watches and followed logs."""
        self.watches.close()

    def close(self) -> None:
        """Make everything that was staged durable and close the database."""
        self.state.close()


def _now() -> datetime:
    return datetime.now(UTC)


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        raise PortTaken(
            f"cannot listen on {HOST}:{port} ({error.strerror}); stop what uses the port, or "
            "choose another"
        ) from error
    listener.setblocking(False)
    return listener


async def serve(config: ServerConfig, stop: asyncio.Event, ready: asyncio.Event) -> None:
    """Serve until `stop`; `ready` is set once requests are answered.

    Raises StorageError (the database cannot be used), AccessError (the tokens cannot), PortTaken,
    Refused (a definition cannot be served). On return every acknowledged write is durable, all
    streams have ended and the database is closed.
    """
    tokens = load_tokens(config.tokens_file)
    listener = _listen(config.port)
    try:
        server = Server(config, tokens, listener.getsockname()[1])
    except BaseException:
        listener.close()
        raise
    try:
        await server.start()
        await _serve_requests(config, server, listener, stop, ready)
    finally:
        listener.close()
        await asyncio.to_thread(server.close)


async def _serve_requests(
    config: ServerConfig,
    server: Server,
    listener: socket.socket,
    stop: asyncio.Event,
    ready: asyncio.Event,
) -> None:
    front = Front(server.application, _now)
    collector = asyncio.create_task(server.lifecycle.run(), name="lifecycle")
    expiry = asyncio.create_task(server.expiry.run(), name="expiry")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    tasks = (collector, expiry, stopping)
    try:
        await front.start(listener, tls_context(config.tls_certificate, config.tls_key))
        ready.set()
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.end_streams()
        await front.stop()
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


def run(config: ServerConfig) -> None:
    """`serve` as a whole process, on uvloop, until SIGTERM or SIGINT."""
    import uvloop

    async def main() -> None:
        stop, ready = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await serve(config, stop, ready)

    uvloop.run(main())
