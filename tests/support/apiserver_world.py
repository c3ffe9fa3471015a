"""An API server without a network: the real parts over a real database, called through ASGI."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from clusterops.apiserver.access import Tokens, User
from clusterops.apiserver.serve import Server, ServerConfig

TOKEN = "token-of-the-tests-0123"
PORT = 6443
WIDGETS = "/apis/example.io/v1/namespaces/default/widgets"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
MERGE = {"content-type": "application/merge-patch+json"}


def widget_definition(**names: str) -> dict[str, Any]:
    """A small CRD: Widget, namespaced, with a status of its own."""
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 0},
                    "colour": {"type": "string", "default": "grey"},
                },
            },
            "status": {
                "type": "object",
                "properties": {"phase": {"type": "string"}},
            },
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", **names}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.example.io"},
        "spec": {
            "group": "example.io",
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }


def widget(name: str = "", size: int = 1, **metadata: Any) -> dict[str, Any]:
    found = {"name": name, **metadata} if name else metadata
    return {
        "apiVersion": "example.io/v1",
        "kind": "Widget",
        "metadata": found,
        "spec": {"size": size},
    }


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }


class Answer:
    """What a request was answered with."""

    def __init__(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.status = status
        self.headers = headers
        self.content = content

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def message(self) -> str:
        return str(self.json["message"])


class Watch:
    """An open watch, or a followed log."""

    def __init__(self, call: Any) -> None:
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._left = asyncio.Event()
        self._asked = False
        self._rest = b""
        self.pieces = 0
        self.status = 0
        self.started = asyncio.Event()
        self.task = asyncio.create_task(call(self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.started.set()
            return
        if message.get("body"):
            self.pieces += 1
        *lines, self._rest = (self._rest + message.get("body", b"")).split(b"\n")
        for line in lines:
            self._lines.put_nowait(line)
        if not message.get("more_body"):
            if self._rest:
                self._lines.put_nowait(self._rest)
            self._lines.put_nowait(None)

    async def line(self, seconds: float = 10.0) -> bytes | None:
        """The next line; None at the end."""
        async with asyncio.timeout(seconds):
            return await self._lines.get()

    async def next(self) -> Any:
        """The next event; None at the end."""
        line = await self.line()
        return None if line is None else json.loads(line)

    async def take(self, count: int) -> list[Any]:
        return [await self.next() for _ in range(count)]

    async def rest(self) -> list[Any]:
        """Everything up to the end of the stream."""
        found = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found

    @property
    def silent(self) -> bool:
        """Whether nothing more has come so far."""
        return self._lines.empty()

    async def leave(self) -> None:
        """The client goes away."""
        self._left.set()
        async with asyncio.timeout(10):
            await self.task


class World:
    """One server. `request` calls it as an HTTP server would."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._watches: list[Watch] = []

    def _scope(
        self, method: str, path: str, headers: dict[str, str], content: bytes
    ) -> dict[str, Any]:
        path, _, query = path.partition("?")
        sent = {
            "host": f"127.0.0.1:{PORT}",
            "authorization": f"Bearer {TOKEN}",
            "content-length": str(len(content)),
            **headers,
        }
        return {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(k.encode(), v.encode()) for k, v in sent.items() if v],
        }

    async def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        content = body if isinstance(body, bytes) else b"" if body is None else _encoded(body)
        received = [{"type": "http.request", "body": content, "more_body": False}]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if received:
                return received.pop()
            await asyncio.Event().wait()  # the client stays until it is answered
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = self._scope(method, path, headers or {}, content)
        await self.server.application(scope, receive, send)
        start = sent[0]
        found = {k.decode(): v.decode() for k, v in start["headers"]}
        return Answer(start["status"], found, b"".join(m.get("body", b"") for m in sent[1:]))

    async def get(self, path: str) -> Any:
        answer = await self.request("GET", path)
        assert answer.status == 200, answer.content
        return answer.json

    async def post(self, path: str, body: Any) -> Any:
        answer = await self.request("POST", path, body)
        assert answer.status == 201, answer.content
        return answer.json

    async def patch(self, path: str, body: Any) -> Any:
        answer = await self.request("PATCH", path, body, MERGE)
        assert answer.status == 200, answer.content
        return answer.json

    async def delete(self, path: str, body: Any = None) -> Any:
        answer = await self.request("DELETE", path, body)
        assert answer.status == 200, answer.content
        return answer.json

    async def watch(self, path: str, headers: dict[str, str] | None = None) -> Watch:
        scope = self._scope("GET", path, headers or {}, b"")
        watch = Watch(lambda receive, send: self.server.application(scope, receive, send))
        self._watches.append(watch)
        async with asyncio.timeout(10):
            await watch.started.wait()
        return watch

    async def until_gone(self, path: str, seconds: float = 10.0) -> None:
        """Wait until an object is not there."""
        async with asyncio.timeout(seconds):
            while (await self.request("GET", path)).status != 404:  # noqa: ASYNC110  (within a deadline)
                await asyncio.sleep(0.005)

    async def until_idle(self, seconds: float = 10.0) -> None:
        """Wait until the server has nothing left to clean up."""
        async with asyncio.timeout(seconds):
            while not self.server.lifecycle.idle:  # noqa: ASYNC110  (within a deadline)
                await asyncio.sleep(0.005)

    async def close_watches(self) -> None:
        for watch in self._watches:
            if not watch.task.done():
                await watch.leave()


def _encoded(body: Any) -> bytes:
    return json.dumps(body).encode()


@contextlib.asynccontextmanager
async def running_world(
    folder: Path, *, crds: tuple[dict[str, Any], ...] | None = None
) -> AsyncIterator[World]:
    """A server over the database in `folder`, with its clean-up running."""
    folder.mkdir(mode=0o700, exist_ok=True)
    config = ServerConfig(
        database=folder / "clusterops.db",
        port=PORT,
        tls_certificate=folder / "unused",
        tls_key=folder / "unused",
        tokens_file=folder / "unused",
        pod_logs_dir=folder / "pod-logs",
        crds=(widget_definition(),) if crds is None else crds,
    )
    tokens = Tokens({TOKEN: User("tester", ("system:masters", "system:authenticated"))})
    server = Server(config, tokens, PORT)
    collector = None
    try:
        await server.start()
        collector = asyncio.create_task(server.lifecycle.run())
        world = World(server)
        yield world
        await world.close_watches()
    finally:
        if collector is not None:
            collector.cancel()
            await asyncio.gather(collector, return_exceptions=True)
        server.end_streams()
        await asyncio.to_thread(server.close)
