"""A FakeCluster behind a real loopback socket, with or without TLS, and with bad manners on demand.

Each request takes the next entry of `script`, or is served by the cluster when there is none:
"silent" reads the request and says nothing more; "close" closes without an answer; "cut" closes
within the body; an Answer, or one made by a function, is sent; raw bytes are sent as they are and then the connection closes.
"""

import asyncio
import datetime
import ipaddress
import json
import ssl
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from support.kube_cluster import Answer, FakeCluster, status_answer


@dataclass
class Seen:
    """A request as it arrived, and the number of the connection it came on."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    connection: int
    client_subject: str = ""


@dataclass
class FakeHttpServer:
    cluster: FakeCluster
    tls: ssl.SSLContext | None = None
    tokens: set[str] | None = None  # None: nobody needs one
    base_path: str = ""
    script: deque[Any] = field(default_factory=deque)
    seen: list[Seen] = field(default_factory=list)
    open_connections: int = 0
    connections: int = 0
    port: int = 0

    async def __aenter__(self) -> "FakeHttpServer":
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        scheme = "https" if self.tls else "http"
        return f"{scheme}://127.0.0.1:{self.port}{self.base_path}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open_connections += 1
        try:
            await self._serve(reader, writer, self.connections)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or the test is over
        finally:
            self.open_connections -= 1
            self._tasks.discard(task)
            writer.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        while True:
            request = await self._read(reader, writer, number)
            self.seen.append(request)
            action = self.script.popleft() if self.script else None
            if callable(action):
                action = action()
            if action == "silent":
                await reader.read()  # until the client closes
                return
            if action == "close":
                return
            if action == "cut":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n" + b"{" * 10)
                await writer.drain()
                return
            if isinstance(action, bytes):
                writer.write(action)
                await writer.drain()
                return
            if isinstance(action, Answer):
                _send(writer, action)
            elif not self._known(request):
                _send(writer, status_answer(401, "Unauthorized"))
            elif request.query.get("watch"):
                await self._watch(request, reader, writer)
                return
            else:
                path = request.path.removeprefix(self.base_path)
                handled = self.cluster.handle(request.method, path, request.query, request.body)
                _send(writer, handled)
            await writer.drain()

    async def _read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> Seen:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        url = urlsplit(target)
        peer = writer.get_extra_info("peercert") or {}
        subject = "".join(value for part in peer.get("subject", ()) for _, value in part)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        return Seen(method, url.path, query, headers, body, number, subject)

    def _known(self, request: Seen) -> bool:
        if self.tokens is None:
            return True
        return request.headers.get("authorization", "").removeprefix("Bearer ") in self.tokens

    async def _watch(
        self, request: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        gone = asyncio.create_task(reader.read())
        events = self.cluster.watch(request.path.removeprefix(self.base_path), request.query)
        pump = asyncio.create_task(_pump(events, writer))
        try:
            await asyncio.wait([gone, pump], return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            pump.cancel()
            await asyncio.gather(gone, pump, return_exceptions=True)


async def _pump(events: Any, writer: asyncio.StreamWriter) -> None:
    async for event in events:
        line = json.dumps(event).encode() + b"\n"
        writer.write(b"%x\r\n%s\r\n" % (len(line), line))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _send(writer: asyncio.StreamWriter, answer: Answer) -> None:
    body = json.dumps(answer.body).encode() if not isinstance(answer.body, bytes) else answer.body
    headers = {"content-type": "application/json", **answer.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {answer.status} X\r\ncontent-length: {len(body)}\r\n{lines}\r\n"
    writer.write(head.encode("latin-1") + body)


class Authority:
    """A certificate authority for one test run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test CA")])
        self._certificate = self._sign(self._name, self._key, ca=True)
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")

    def issue(self, subject: str) -> tuple[bytes, bytes]:
        """A certificate and key, PEM, good for 127.0.0.1 and api.example.org."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)])
        certificate = self._sign(name, key, ca=False)
        return (
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )

    def server_context(self, *, ask_client: bool = False) -> ssl.SSLContext:
        certificate, key = self.issue("server")
        path = self.directory / "server.pem"
        path.write_bytes(certificate + key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=self.pem)
        context.load_cert_chain(path)
        if ask_client:
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if not ca:
            names = [
                x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                x509.DNSName("api.example.org"),
            ]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())
