"""A grader behind HTTP: samples are posted as JSON, signed; so is the reply.

TLS is required but for this machine itself. Every exchange has limits on time and size. How much is
asked again is the queue's decision, not this module's.
"""

import asyncio
import contextlib
import hmac
import ipaddress
import secrets
import ssl
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import h11

from rlhf.graders import http_exchange, wire
from rlhf.graders.protocol import Answer, BadAnswer, GraderFailed, Sample

_ERROR_TEXT_BYTES = 300


class _Connection(NamedTuple):
    state: h11.Connection
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self) -> None:
        self.writer.close()


class HttpGrader:
    """Scores by a server at `url`, which shares `key` (at least 16 bytes).

    Raises:
        ValueError: the URL is none, or would carry samples over a network without TLS.
    """

    def __init__(
        self,
        url: str,
        key: bytes,
        *,
        timeout_seconds: float = 30.0,
        pure: bool = False,
        largest_batch: int = 1,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no http or https URL")
        if parts.scheme == "http" and not _is_this_machine(parts.hostname):
            raise ValueError(f"{url!r} leaves this machine without TLS: use https")
        self.name = f"{parts.hostname}:{parts.port or ''}{parts.path}".rstrip(":")
        self.pure = pure
        self.largest_batch = largest_batch
        self._host, self._target = parts.hostname, parts.path or "/"
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._key = wire.checked_key(key)
        self._timeout_seconds = timeout_seconds
        self._idle: list[_Connection] = []

    async def grade(self, samples: Sequence[Sample]) -> list[Answer]:
        """One request for all samples.

        Raises:
            TimeoutError: no reply in time.
            GraderFailed: no connection, or the server says that it failed.
            BadAnswer: the reply is too large, not signed by who has the key, or no reply.
        """
        body = wire.encode_request(list(samples), secrets.token_hex(16))
        signature = wire.request_signature(self._key, body)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                reply = await self._exchange(body, signature)
        except TimeoutError:
            raise TimeoutError(f"no reply in {self._timeout_seconds:g} s") from None
        if reply.head.status_code != 200:  # type: ignore[union-attr] # a client receives responses
            said = reply.body[:_ERROR_TEXT_BYTES].decode("utf-8", "replace")
            raise GraderFailed(f"status {reply.head.status_code}: {said}")  # type: ignore[union-attr] # as above
        expected = wire.reply_signature(self._key, signature, reply.body)
        if not hmac.compare_digest(reply.header(wire.SIGNATURE_HEADER), expected):
            raise BadAnswer("the reply is not signed with our key for this request")
        return wire.decode_reply(reply.body)

    async def close(self) -> None:
        """Closes idle connections."""
        while self._idle:
            connection = self._idle.pop()
            connection.close()
            with contextlib.suppress(OSError):
                await connection.writer.wait_closed()

    async def _exchange(self, body: bytes, signature: str) -> http_exchange.Message:
        if self._idle:
            # The server may have closed it meanwhile: then a fresh one.
            with contextlib.suppress(http_exchange.Disconnected):
                return await self._once(self._idle.pop(), body, signature)
        try:
            return await self._once(await self._connect(), body, signature)
        except http_exchange.Disconnected as error:
            raise GraderFailed(f"the connection broke: {error}") from None

    async def _once(
        self, connection: _Connection, body: bytes, signature: str
    ) -> http_exchange.Message:
        head = h11.Request(
            method="POST",
            target=self._target,
            headers=[
                ("host", self._host),
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                (wire.SIGNATURE_HEADER, signature),
            ],
        )
        state = connection.state
        try:
            await http_exchange.send(state, connection.writer, head, body)
            reply = await http_exchange.receive(state, connection.reader, wire.MOST_BYTES)
            if reply is None:
                raise http_exchange.Disconnected("closed without a reply")
        except http_exchange.TooLarge as error:
            connection.close()
            raise BadAnswer(f"the reply is too large: {error}") from None
        except BaseException:
            connection.close()
            raise
        if state.our_state is h11.DONE and state.their_state is h11.DONE:
            state.start_next_cycle()
            self._idle.append(connection)
        else:
            connection.close()
        return reply

    async def _connect(self) -> _Connection:
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        except OSError as error:
            raise GraderFailed(f"no connection to {self._host}:{self._port}: {error}") from None
        return _Connection(h11.Connection(h11.CLIENT), reader, writer)


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
