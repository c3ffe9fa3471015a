"""What the daemon shows on loopback: /metrics and /healthz, and nothing else. Nobody can tell it
anything: requests have no effect.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

REQUEST_SECONDS = 5.0
MAX_REQUEST_BYTES = 8192
MAX_CONNECTIONS = 16

log = logging.getLogger(__name__)


class Sample(NamedTuple):
    """One value of a metric."""

    labels: tuple[tuple[str, str], ...]
    value: float


class Family(NamedTuple):
    """A metric with its values."""

    name: str
    kind: str
    """counter or gauge."""
    about: str
    samples: tuple[Sample, ...]


def family(name: str, kind: str, about: str, value: float) -> Family:
    """A metric with one value."""
    return Family(name, kind, about, (Sample((), value),))


def rendered(families: Iterable[Family]) -> str:
    """The text exposition format, version 0.0.4."""
    return "".join(_lines(families))


def _lines(families: Iterable[Family]) -> Iterator[str]:
    for each in families:
        yield f"# HELP {each.name} {each.about}\n# TYPE {each.name} {each.kind}\n"
        for labels, value in each.samples:
            inner = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            yield (
                f"{each.name}{{{inner}}} {value:.17g}\n" if inner else f"{each.name} {value:.17g}\n"
            )


def _escaped(text: str) -> str:
    safe = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return "".join(c if c.isprintable() else "?" for c in safe)[:200]


class Exposition:
    """A small HTTP server for GET on two paths."""

    def __init__(
        self,
        port: int,
        metrics: Callable[[], Iterable[Family]],
        unwell: Callable[[], str],
        host: str = "127.0.0.1",
    ) -> None:
        """`unwell` says why the daemon is not well, empty when it is. Port 0 = any free one."""
        self._host, self.port = host, port
        self._metrics = metrics
        self._unwell = unwell
        self._connections = 0
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Serves until cancelled. Raises OSError when the port is taken."""
        server = await asyncio.start_server(
            self._connected, self._host, self.port, limit=MAX_REQUEST_BYTES
        )
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        log.info("metrics at http://%s:%d/metrics", self._host, self.port)
        async with server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= MAX_CONNECTIONS:
                async with asyncio.timeout(REQUEST_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(head))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._connections -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path not in (b"/metrics", b"/healthz"):
            return _response("404 Not Found", "there are /metrics and /healthz\n")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", "only GET\n")
        if path == b"/healthz":
            reason = self._unwell()
            if reason:
                return _response("503 Service Unavailable", reason + "\n")
            return _response("200 OK", "ok\n")
        return _response("200 OK", rendered(self._metrics()), "text/plain; version=0.0.4")


def _response(status: str, body: str, kind: str = "text/plain") -> bytes:
    content = body.encode("utf-8", "replace")
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content
