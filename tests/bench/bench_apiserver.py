"""The embedded API server under load: writes, reads, lists, fan-out of watches, memory.

    python tests/bench/bench_apiserver.py [--objects 10000]

One server process and this load generator share the machine, so each rate comes with the CPU time
of both sides: the server's tells of the server alone, whatever else runs. Everything goes over TLS
and every write is durable before its answer. Baselines, measured in the same run: SQLite alone
committing one row at a time, a server on the same stack that answers with constant bytes, and a list
that is decoded and encoded anew for its reader.
"""

import argparse
import asyncio
import contextlib
import json
import sqlite3
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
from support.apiserver_load import Load, Spent  # noqa: E402  (after the path)
from support.embedded import EmbeddedServer, free_port  # noqa: E402  (after the path)

JOBS = "/apis/clusterops.io/v1alpha1/namespaces/bench/trainingjobs"
WRITES = 1500
READS = 8000
WATCHERS = 50
EVENTS = 2000
JSON = "Content-Type: application/json\r\n"
MERGE_PATCH = "Content-Type: application/merge-patch+json\r\n"


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


async def list_in_pages(load: Load) -> float:
    """Seconds to list all jobs, 500 a page."""
    seconds, token = 0.0, ""
    while True:
        more = f"&continue={token}" if token else ""
        page, spent = await load.body(load.request("GET", f"{JOBS}?limit=500{more}"))
        seconds += spent.wall
        head = page[:400]
        if b'"continue":"' not in head:
            return seconds
        token = head.split(b'"continue":"')[1].split(b'"')[0].decode()


async def fastest(times: int, measure: Callable[[], Awaitable[float]]) -> float:
    return min([await measure() for _ in range(times)])


def creates(load: Load, numbers: range) -> list[bytes]:
    bodies = (json.dumps(job(f"job-{number:05}")).encode() for number in numbers)
    return [load.request("POST", JOBS, body, JSON) for body in bodies]


def status_patches(load: Load, count: int, text: str) -> list[bytes]:
    """Patches of the first thousand jobs in turn."""
    requests = []
    for number in range(count):
        body = {"status": {"phase": "Running", "message": f"{text}{number}"}}
        path = f"{JOBS}/job-{number % 1000:05}/status"
        requests.append(load.request("PATCH", path, json.dumps(body).encode(), MERGE_PATCH))
    return requests


def gets(load: Load) -> list[bytes]:
    return [load.request("GET", f"{JOBS}/job-{n % 1000:05}") for n in range(READS)]


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


async def constant_answers(server: EmbeddedServer) -> Spent:
    """Gets of a server on the same stack, in its own process, that answers with constant bytes."""
    port = free_port()
    command = [sys.executable, __file__, "--constant-server", str(port)]
    files = [str(server.certificates.server), str(server.certificates.server_key)]
    process = await asyncio.create_subprocess_exec(*command, *files)
    try:
        load = Load(process.pid, port, server.tls(), server.token)
        requests = gets(load)
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):
                await load.answers(16, requests[:64])
                return await load.answers(16, requests)
            assert time.monotonic() < deadline, "the server with constant answers did not start"
            await asyncio.sleep(0.05)
    finally:
        process.terminate()
        await process.wait()


def constant_server(port: int, certificate: str, key: str) -> None:
    """Serve until SIGTERM."""
    body = json.dumps(job("x")).encode()
    headers = [(b"content-type", b"application/json"),
               (b"content-length", str(len(body)).encode())]  # fmt: skip

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    uvicorn.run(
        application, port=port, http="httptools", loop="uvloop", lifespan="off",
        log_config=None, access_log=False, ssl_certfile=certificate, ssl_keyfile=key,
    )  # fmt: skip


def resident_mb(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def encoded_anew(bodies: list[bytes]) -> float:
    """Seconds to decode and encode a list for one reader."""
    begun = time.perf_counter()
    msgspec.json.encode({"items": [msgspec.json.decode(body) for body in bodies]})
    return time.perf_counter() - begun


def show(what: str, figure: float, unit: str, ratio: str = "") -> None:
    print(f"  {what:<38} {figure:>10,.1f} {unit:<6} {ratio}", flush=True)


def show_spent(what: str, unit: str, spent: Spent, ratio: str = "") -> None:
    cpu = f"server CPU {spent.server_us:6.1f} us per {unit}, generator {spent.generator_us:5.1f}"
    show(what, spent.rate, "/s", f"{cpu}  {ratio}".rstrip())


async def measure_writes(load: Load, objects: int, folder: Path) -> None:
    alone = sqlite_alone(folder)
    show("baseline: SQLite alone, one row each", alone, "/s")
    one = await load.answers(1, creates(load, range(WRITES)))
    show_spent("creates, 1 client", "create", one, f"{one.rate / alone:.2f} x SQLite alone")
    many = await load.answers(16, creates(load, range(WRITES, objects)))
    show_spent("creates, 16 clients", "create", many, f"{many.rate / one.rate:.2f} x 1 client")
    one = await load.answers(1, status_patches(load, WRITES, "a"))
    show_spent("status patches, 1 client", "patch", one)
    many = await load.answers(16, status_patches(load, 2 * WRITES, "b"))
    ratio = f"{many.rate / one.rate:.2f} x 1 client"
    show_spent("status patches, 16 clients", "patch", many, ratio)


async def measure_reads(load: Load, server: EmbeddedServer, objects: int) -> None:
    constant = await constant_answers(server)
    show_spent("baseline: constant bytes, 16 clients", "get", constant)
    found = await load.answers(16, gets(load))
    ratio = f"{found.server_us / constant.server_us:.2f} x constant"
    show_spent("gets, 16 clients", "get", found, ratio)

    async def seconds(request: bytes) -> float:
        return (await load.body(request))[1].wall

    whole = await fastest(3, lambda: seconds(load.request("GET", JOBS)))
    bodies = [msgspec.json.encode(item) for item in server.request("GET", JOBS).json["items"]]
    ratio = f"{encoded_anew(bodies) / whole:.1f} x faster than encoding anew"
    show(f"list of {objects:,}", whole * 1000, "ms", ratio)
    show("  in pages of 500", await fastest(3, lambda: list_in_pages(load)) * 1000, "ms")
    accept = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n"
    table = load.request("GET", f"{JOBS}?includeObject=None", more=accept)
    show("  as a Table without objects", await fastest(3, lambda: seconds(table)) * 1000, "ms")


async def measure_fan_out(load: Load, server: EmbeddedServer) -> None:
    listed = server.request("GET", f"{JOBS}?limit=1").json
    revision = listed["metadata"]["resourceVersion"]
    watch = load.request("GET", f"{JOBS}?watch=true&resourceVersion={revision}")
    spent = await load.fan_out(watch, WATCHERS, status_patches(load, EVENTS, "f"))
    show_spent(f"{WATCHERS} watchers x {EVENTS:,} events", "event", spent, "writes included")


async def measure(server: EmbeddedServer, objects: int, folder: Path) -> None:
    assert server.process is not None
    load = Load(server.process.pid, server.port, server.tls(), server.token)
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
    show("RSS, empty", resident_mb(server.process.pid), "MB")
    await measure_writes(load, objects, folder)
    await measure_reads(load, server, objects)
    await measure_fan_out(load, server)
    show("RSS after", resident_mb(server.process.pid), "MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--constant-server", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.constant_server:
        port, certificate, key = arguments.constant_server
        constant_server(int(port), certificate, key)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with EmbeddedServer(folder / "server") as server:
            print("embedded API server, TLS, every write durable:")
            uvloop.run(measure(server, arguments.objects, folder))


if __name__ == "__main__":
    main()
