"""What the controller runtime costs: import, list, watch events through reflector, store and queue.

Run: python tests/bench/bench_kube.py [--objects N] [--events N]

The baseline of every ratio is measured in the same process on the same bytes: decoding each object
once with msgspec into a dict, which is the least that any client of raw JSON must do.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from clusterops.kube.access import Access
from clusterops.kube.client import Client
from clusterops.kube.light import LightTransport
from clusterops.kube.reflector import Reflector
from clusterops.kube.store import Store
from clusterops.kube.transport import Resource, Response
from clusterops.kube.wire import ObjectMeta
from clusterops.kube.workqueue import WorkQueue

JOBS = Resource("example.org", "v1", "jobs", "Job", True)


class Status(msgspec.Struct):
    phase: str = ""
    step: int = 0


class Job(msgspec.Struct):
    metadata: ObjectMeta
    status: Status


def job(number: int, version: int) -> dict[str, Any]:
    """About 2.5 KB, a third of it managedFields, like a training job's."""
    pad = {f"field-{n}": f"value-{n}-{number}" for n in range(30)}
    managed = [{"manager": f"m{n}", "fieldsV1": {f"f:{k}": {} for k in pad}} for n in range(2)]
    return {
        "apiVersion": "example.org/v1",
        "kind": "Job",
        "metadata": {
            "name": f"job-{number}",
            "namespace": f"team-{number % 20}",
            "uid": f"00000000-0000-0000-0000-{number:012d}",
            "resourceVersion": str(version),
            "labels": {"queue": f"q{number % 7}"},
            "managedFields": managed,
        },
        "spec": pad,
        "status": {"phase": "Running", "step": version, "nodes": [f"n{n}" for n in range(8)]},
    }


class Replay:
    """A transport that answers from bytes made beforehand, so that only the client is measured."""

    def __init__(self, objects: list[bytes], events: list[bytes]) -> None:
        self._objects = objects
        self._events = events
        self.go = asyncio.Event()
        self.done = asyncio.Event()

    async def request(self, _method: str, _path: str, **options: Any) -> Response:
        query = options["query"]
        start, limit = int(query.get("continue", 0)), int(query["limit"])
        items = b",".join(self._objects[start : start + limit])
        more = str(start + limit) if start + limit < len(self._objects) else ""
        meta = b'{"resourceVersion":"%d","continue":"%s"}' % (len(self._objects), more.encode())
        return Response(200, {}, b'{"metadata":%s,"items":[%s]}' % (meta, items))

    @asynccontextmanager
    async def stream(self, _path: str, **_options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        async def pieces() -> AsyncIterator[bytes]:
            await self.go.wait()
            for start in range(0, len(self._events), 20):
                yield b"".join(self._events[start : start + 20])
            self.done.set()
            await asyncio.Event().wait()

        yield pieces()

    async def close(self) -> None:
        """Nothing to close."""


def rss_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def of_dict(obj: Any) -> tuple[str, int]:
    """What is kept of a job that came as a dict."""
    return obj["status"]["phase"], obj["status"]["step"]


def of_struct(obj: Any) -> tuple[str, int]:
    """What is kept of a job that came as a Struct."""
    return obj.status.phase, obj.status.step


async def reflect(
    objects: list[bytes], events: list[bytes], shape: type | None
) -> dict[str, float]:
    """CPU seconds of the list and of all events, through store, index and a worker's queue."""
    transport = Replay(objects, events)
    store: Store[Any] = Store({"phase": lambda value: [value[0]]})
    queue: WorkQueue[Any] = WorkQueue()
    reflector = Reflector(
        Client(transport), JOBS, store, of_struct if shape else of_dict, queue.add, shape=shape
    )

    async def work() -> None:
        while True:
            queue.done(await queue.get())

    before, cpu = rss_mb(), time.process_time()
    watcher = asyncio.create_task(reflector.run())
    await reflector.wait_synced(300)
    listed, added = time.process_time() - cpu, rss_mb() - before
    worker = asyncio.create_task(work())
    await queue.join(300)
    cpu = time.process_time()
    transport.go.set()
    await transport.done.wait()
    await queue.join(300)
    watched = time.process_time() - cpu
    for task in (watcher, worker):
        task.cancel()
    await asyncio.gather(watcher, worker, return_exceptions=True)
    assert len(store) == len(objects)
    assert reflector.state().events == len(events)
    return {"list": listed, "rss": added, "watch": watched}


def bare_decode(lines: list[bytes]) -> float:
    decoder = msgspec.json.Decoder(dict[str, Any])
    cpu = time.process_time()
    for line in lines:
        decoder.decode(line)
    return time.process_time() - cpu


def import_seconds(modules: str) -> float:
    """The least of 5, of a new process's own CPU time, without that of an empty one."""

    def once(program: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", program], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return min(once(f"import {modules}") for _ in range(5)) - min(once("pass") for _ in range(5))


async def over_sockets(events: list[bytes]) -> float:
    """CPU seconds of the light transport to take the events from a loopback socket, one a chunk."""
    program = (
        "import asyncio, sys\n"
        "data = sys.stdin.buffer.read()\n"
        "async def serve(reader, writer):\n"
        "    await reader.readuntil(b'\\r\\n\\r\\n')\n"
        "    writer.write(b'HTTP/1.1 200 OK\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n')\n"
        "    for at in range(0, len(data), 65536):\n"
        "        writer.write(data[at : at + 65536]); await writer.drain()\n"
        "    writer.write(b'0\\r\\n\\r\\n'); await writer.drain(); writer.close()\n"
        "async def main():\n"
        "    server = await asyncio.start_server(serve, '127.0.0.1', 0)\n"
        "    print(server.sockets[0].getsockname()[1], flush=True)\n"
        "    await asyncio.sleep(120)\n"
        "asyncio.run(main())\n"
    )
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events))
    server.stdin.close()
    port = int(await server.stdout.readline())
    transport = LightTransport(Access(f"http://127.0.0.1:{port}"))
    cpu = time.process_time()
    size = 0
    async with transport.stream("/") as pieces:
        async for piece in pieces:
            size += len(piece)
    taken = time.process_time() - cpu
    assert size == sum(len(event) for event in events)
    await transport.close()
    server.kill()
    await server.wait()
    return taken


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=20_000)
    options = parser.parse_args()
    objects = [json.dumps(job(n, n)).encode() for n in range(options.objects)]
    changed = [
        json.dumps(job(n % options.objects, options.objects + n + 1)).encode()
        for n in range(options.events)
    ]
    events = [b'{"type":"MODIFIED","object":%s}\n' % line for line in changed]
    print(f"{options.objects} objects of {len(objects[0])} bytes, {options.events} events")

    decode_list, decode_events = bare_decode(objects), bare_decode(events)
    print(
        f"bare decode to dict: list {decode_list:.2f} s, {len(events) / decode_events:,.0f} events/cpu-s"
    )
    for name, shape in (("dict", None), ("Struct", Job)):
        cost = asyncio.run(reflect(objects, events, shape))
        rate = len(events) / cost["watch"]
        print(
            f"reflector -> store -> queue, {name}: list {cost['list']:.2f} s "
            f"(x{cost['list'] / decode_list:.2f}), +{cost['rss']:.0f} MB; "
            f"{rate:,.0f} events/cpu-s (x{cost['watch'] / decode_events:.2f} of bare decode)"
        )
    sockets = asyncio.run(over_sockets(events))
    print(
        f"light transport, one event a chunk: {len(events) / sockets:,.0f} events/cpu-s "
        f"(x{sockets / decode_events:.2f} of bare decode)"
    )
    light = import_seconds("clusterops.kube.connect")
    base = import_seconds("asyncio, ssl, yaml")
    print(
        f"import of clusterops.kube.connect: {light:.3f} s (asyncio, ssl, yaml alone: {base:.3f} s)"
    )


if __name__ == "__main__":
    main()
