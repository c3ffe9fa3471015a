"""The embedded API server under load: writes, reads, lists, fan-out of watches, memory.

    python tests/bench/bench_apiserver.py [--objects 10000]

One server process and this load generator share the machine. Everything goes over TLS and every
write is durable before its answer. Baselines, measured in the same run: SQLite alone committing one
row at a time, a server on the same stack that answers with constant bytes, and a list that is
decoded and encoded anew for its reader.
"""

import argparse
import asyncio
import json
import sqlite3
import ssl
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import msgspec  # noqa: E402  (after the path)
import uvicorn  # noqa: E402  (after the path)
import uvloop  # noqa: E402  (after the path)
from support.embedded import EmbeddedServer, free_port  # noqa: E402  (after the path)

JOBS = "/apis/clusterops.io/v1alpha1/namespaces/bench/trainingjobs"
WRITES = 1500
READS = 8000
WATCHERS = 50
EVENTS = 2000


def job(name: str) -> dict[str, Any]:
    """A TrainingJob of about 2.4 KB, as it is stored."""
    environment = [{"name": f"SETTING_{n}", "value": "x" * 24} for n in range(22)]
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "command": ["python", "-m", "train"],
        "env": environment,
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
    }
    return {
        "apiVersion": "clusterops.io/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "bench", "labels": {"team": "research"}},
        "spec": {
            "queueName": "research",
            "priorityClassName": "high",
            "replicas": 2,
            "template": {"spec": {"containers": [container]}},
        },
    }


class Connection:
    """One HTTP/1.1 connection over TLS: as little as a load generator needs."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str):
        self._reader = reader
        self._writer = writer
        self._head = f" HTTP/1.1\r\nHost: {{host}}\r\nAuthorization: Bearer {token}\r\n"

    @classmethod
    async def open(cls, port: int, tls: ssl.SSLContext, token: str) -> "Connection":
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, limit=2**22)
        made = cls(reader, writer, token)
        made._head = made._head.replace("{host}", f"127.0.0.1:{port}")
        return made

    def send(self, method: str, path: str, body: bytes = b"", more: str = "") -> None:
        head = f"{method} {path}{self._head}{more}Content-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)

    async def call(self, method: str, path: str, body: bytes = b"", more: str = "") -> bytes:
        """The body of the answer, which must be a success."""
        self.send(method, path, body, more)
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        assert status < 300, head + await self._reader.read(2000)
        lower = head.lower()
        start = lower.index(b"content-length: ") + 16
        length = int(lower[start : lower.index(b"\r\n", start)])
        return await self._reader.readexactly(length)

    async def watch(self, path: str, lines: int) -> int:
        """Read a watch until that many events came; bytes read."""
        self.send("GET", path)
        await self._reader.readuntil(b"\r\n\r\n")
        seen = size = 0
        while seen < lines:
            block = await self._reader.read(2**18)
            assert block, "the watch ended early"
            seen += block.count(b'{"type":"')
            size += len(block)
        return size

    def close(self) -> None:
        self._writer.close()


class Load:
    """Drives one server."""

    def __init__(self, port: int, tls: ssl.SSLContext, token: str) -> None:
        self._open = lambda: Connection.open(port, tls, token)

    async def rate(
        self, clients: int, total: int, call: Callable[[Connection, int], Awaitable[Any]]
    ) -> float:
        """Calls a second over so many connections."""
        connections = [await self._open() for _ in range(clients)]
        numbers = iter(range(total))

        async def work(connection: Connection) -> None:
            for number in numbers:
                await call(connection, number)

        begun = time.perf_counter()
        await asyncio.gather(*map(work, connections))
        seconds = time.perf_counter() - begun
        for connection in connections:
            connection.close()
        return total / seconds

    async def once(self, call: Callable[[Connection], Awaitable[Any]]) -> float:
        """Seconds of the fastest of three calls."""
        connection = await self._open()
        best = float("inf")
        for _ in range(3):
            begun = time.perf_counter()
            await call(connection)
            best = min(best, time.perf_counter() - begun)
        connection.close()
        return best


async def list_in_pages(connection: Connection) -> int:
    """All jobs, 500 a page; how many."""
    count, token = 0, ""
    while True:
        more = f"&continue={token}" if token else ""
        page = await connection.call("GET", f"{JOBS}?limit=500{more}")
        count += page.count(b'"apiVersion":"clusterops.io/v1alpha1","kind":"TrainingJob"') or 1
        head = page[:400]
        if b'"continue":"' not in head:
            return count
        token = head.split(b'"continue":"')[1].split(b'"')[0].decode()


async def fan_out(load: Load, server: EmbeddedServer) -> float:
    """Events delivered a second, over all watchers, while 16 clients write."""
    listed = server.request("GET", f"{JOBS}?limit=1").json
    path = f"{JOBS}?watch=true&resourceVersion={listed['metadata']['resourceVersion']}"
    watchers = [await load._open() for _ in range(WATCHERS)]
    tasks = [asyncio.create_task(w.watch(path, EVENTS)) for w in watchers]
    await asyncio.sleep(0.3)  # all of them are waiting
    begun = time.perf_counter()
    await load.rate(16, EVENTS, lambda c, n: patch_status(c, n % 1000, f"f{n}"))
    await asyncio.gather(*tasks)
    seconds = time.perf_counter() - begun
    for watcher in watchers:
        watcher.close()
    return WATCHERS * EVENTS / seconds


def patch_status(connection: Connection, number: int, text: str) -> Awaitable[bytes]:
    body = json.dumps({"status": {"phase": "Running", "message": text}}).encode()
    more = "Content-Type: application/merge-patch+json\r\n"
    return connection.call("PATCH", f"{JOBS}/job-{number:05}/status", body, more)


def create(connection: Connection, number: int) -> Awaitable[bytes]:
    return connection.call("POST", JOBS, json.dumps(job(f"job-{number:05}")).encode())


def sqlite_alone(folder: Path) -> float:
    """Durable one-row transactions a second."""
    connection = sqlite3.connect(folder / "alone.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, body BLOB)")
    body = json.dumps(job("x")).encode()
    begun = time.perf_counter()
    for number in range(WRITES):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t VALUES (?, ?)", (number, body))
        connection.execute("COMMIT")
    seconds = time.perf_counter() - begun
    connection.close()
    return WRITES / seconds


async def constant_answers(server: EmbeddedServer) -> float:
    """Gets a second of a server on the same stack that answers with the same constant bytes."""
    body = json.dumps(job("x")).encode()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json"),
                   (b"content-length", str(len(body)).encode())]  # fmt: skip
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    port = free_port()
    script = asyncio.create_task(_constant_server(application, port, server))
    await asyncio.sleep(0.5)
    load = Load(port, server.tls(), server.token)
    rate = await load.rate(16, READS // 2, lambda c, _: c.call("GET", "/"))
    script.cancel()
    return rate


async def _constant_server(application: Any, port: int, server: EmbeddedServer) -> None:
    config = uvicorn.Config(
        application, port=port, http="httptools", lifespan="off", log_config=None,
        access_log=False, ssl_certfile=server.certificates.server,
        ssl_keyfile=server.certificates.server_key,
    )  # fmt: skip
    await uvicorn.Server(config)._serve()


def resident_mb(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def encoded_anew(bodies: list[bytes]) -> float:
    """Seconds to decode and encode a list for one reader."""
    begun = time.perf_counter()
    msgspec.json.encode({"items": [msgspec.json.decode(body) for body in bodies]})
    return time.perf_counter() - begun


def show(what: str, figure: float, unit: str, ratio: str = "") -> None:
    print(f"  {what:<38} {figure:>10,.1f} {unit:<9} {ratio}", flush=True)


async def measure(server: EmbeddedServer, objects: int, folder: Path) -> None:
    assert server.process is not None
    load = Load(server.port, server.tls(), server.token)
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
    show("RSS, empty", resident_mb(server.process.pid), "MB")
    alone = sqlite_alone(folder)
    show("baseline: SQLite alone, one row each", alone, "/s")

    one = await load.rate(1, WRITES, create)
    show("creates, 1 client", one, "/s", f"{one / alone:.2f} x SQLite alone")
    rest = objects - WRITES
    many = await load.rate(16, rest, lambda c, n: create(c, n + WRITES))
    show("creates, 16 clients", many, "/s", f"{many / one:.2f} x 1 client")
    one = await load.rate(1, WRITES, lambda c, n: patch_status(c, n, "a"))
    show("status patches, 1 client", one, "/s")
    many = await load.rate(16, 2 * WRITES, lambda c, n: patch_status(c, n % 1000, f"b{n}"))
    show("status patches, 16 clients", many, "/s", f"{many / one:.2f} x 1 client")

    gets = await load.rate(16, READS, lambda c, n: c.call("GET", f"{JOBS}/job-{n % 1000:05}"))
    constant = await constant_answers(server)
    show("gets, 16 clients", gets, "/s")
    show("  (constant bytes, in this process)", constant, "/s", "server and load share one core")

    whole = await load.once(lambda c: c.call("GET", JOBS))
    bodies = [msgspec.json.encode(item) for item in server.request("GET", JOBS).json["items"]]
    anew = encoded_anew(bodies)
    show(
        f"list of {objects:,}",
        whole * 1000,
        "ms",
        f"{anew / whole:.1f} x faster than encoding anew",
    )
    show("  in pages of 500", await load.once(list_in_pages) * 1000, "ms")
    accept = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n"
    table = await load.once(lambda c: c.call("GET", f"{JOBS}?includeObject=None", more=accept))
    show("  as a Table without objects", table * 1000, "ms")
    show(f"{WATCHERS} watchers x {EVENTS:,} events", await fan_out(load, server), "/s")
    show("RSS after", resident_mb(server.process.pid), "MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=10_000)
    objects = parser.parse_args().objects
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with EmbeddedServer(folder / "server") as server:
            print("embedded API server, TLS, every write durable:")
            uvloop.run(measure(server, objects, folder))


if __name__ == "__main__":
    main()
