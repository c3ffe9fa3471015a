"""The transport that starts at once: asyncio streams and h11, nothing else.

Keeps connections alive in a pool, most recently used first. A kept-alive connection that the server
closed just as we sent is the one failure repeated here, and only for requests that do no harm twice;
everything else is the client's to decide. Requests that must not be repeated take a pooled
connection only when it was used within the last two seconds.

Goes straight to the server: proxies are the official transport's.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlencode, urlsplit

from clusterops.kube.access import Access
from clusterops.kube.credentials import Credential, Credentials, credentials_for
from clusterops.kube.errors import ConfigError, Unreachable, from_answer, printable
from clusterops.kube.http1 import CONNECTION_ERRORS, Head, HttpConnection
from clusterops.kube.tls import client_context
from clusterops.kube.transport import Response

_REPEATABLE_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_REPEATABLE_PATCHES = frozenset({"application/apply-patch+yaml", "application/merge-patch+json"})
_FRESH_SECONDS = 2.0
_MAX_ERROR_BYTES = 1024 * 1024


class LightTransport:
    """Implements `transport.Transport` for one server and one identity, in one event loop."""

    def __init__(
        self,
        access: Access,
        *,
        credentials: Credentials | None = None,
        user_agent: str = "clusterops",
        max_connections: int = 64,
        max_idle_seconds: float = 30.0,
        connect_timeout_seconds: float = 10.0,
        stream_start_timeout_seconds: float = 30.0,
    ) -> None:
        """`max_connections` bounds the requests at one time; streams are not counted.

        Raises ConfigError for what this transport cannot do, or should not.
        """
        url = urlsplit(access.server)
        try:
            port = url.port
        except ValueError as error:
            raise ConfigError(f"server {access.server!r}: {error}") from error
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ConfigError(f"server must be an http(s) URL with a host, not {access.server!r}")
        if access.auth_provider:
            raise ConfigError(
                f"auth-provider {access.auth_provider!r} needs the official transport "
                "(pip install 'clusterops[cluster]')"
            )
        if access.proxy_url:
            raise ConfigError("proxy-url needs the official transport")
        if access.bares_secrets:
            raise ConfigError(
                f"a secret would go to {access.server} in the clear; use https, or no login"
            )
        self._access = access
        self._host = url.hostname
        self._port = port or (443 if url.scheme == "https" else 80)
        self._base_path = url.path.rstrip("/")
        self._secure = url.scheme == "https"
        self._credentials = credentials or credentials_for(access)
        self._user_agent = user_agent.encode("ascii")
        self._host_header = url.netloc.rpartition("@")[2].encode("ascii")
        self._max_idle_seconds = max_idle_seconds
        self._connect_timeout_seconds = connect_timeout_seconds
        self._stream_start_timeout_seconds = stream_start_timeout_seconds
        self._slots = asyncio.Semaphore(max_connections)
        self._idle: list[HttpConnection] = []
        self._streams: dict[HttpConnection, None] = {}
        self._closed = False
        self._tls: ssl.SSLContext | None = None
        self._tls_certificate: bytes | None = None

    # Transport

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_seconds: float = 30.0,
    ) -> Response:
        """One request, one whole answer; see `Transport`."""
        target = self._target(path, query)
        repeatable = method in _REPEATABLE_METHODS or content_type in _REPEATABLE_PATCHES
        headers = [(b"accept", accept.encode("latin-1"))]
        if body is not None:
            headers.append((b"content-type", content_type.encode("latin-1")))
        try:
            async with asyncio.timeout(timeout_seconds), self._slots:
                head, content = await self._authenticated(
                    method, target, headers, body, repeatable=repeatable
                )
        except TimeoutError as error:
            # Whatever swallowed this answer may hold the idle connections too.
            self._drop_idle()
            raise Unreachable(
                f"no answer within {timeout_seconds:g} s: {method} {self._shown(path)}"
            ) from error
        if head.status >= 300:
            raise from_answer(head.status, head.headers, content)
        return Response(head.status, head.headers, content)

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "application/json",
        silence_seconds: float | None = None,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """A GET read as it comes; see `Transport`."""
        target = self._target(path, query)
        headers = [(b"accept", accept.encode("latin-1"))]
        try:
            async with asyncio.timeout(self._stream_start_timeout_seconds):
                connection, head = await self._start_stream(target, headers)
        except TimeoutError as error:
            self._drop_idle()
            raise Unreachable(
                f"no answer within {self._stream_start_timeout_seconds:g} s: "
                f"GET {self._shown(path)}"
            ) from error
        self._streams[connection] = None
        try:
            yield self._pieces(connection.stream(head), path, silence_seconds)
        finally:
            # Closing is how the server learns that nobody listens any more.
            self._streams.pop(connection, None)
            connection.abort()

    async def close(self) -> None:
        """Closes all connections, those of open streams too."""
        self._closed = True
        connections = [*self._idle, *self._streams]
        self._drop_idle()
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.wait_closed()

    # Exchanges

    async def _authenticated(
        self,
        method: str,
        target: str,
        headers: list[tuple[bytes, bytes]],
        body: bytes | None,
        *,
        repeatable: bool,
    ) -> tuple[Head, bytes]:
        """Sends with the current credential, and once more with a newer one after a 401."""
        credential = await self._credentials.current()
        answer = await self._exchange(method, target, headers, body, credential, repeatable)
        # A 401 was not acted upon, so that even a create may be sent again.
        if answer[0].status == 401 and await self._credentials.rejected(credential):
            credential = await self._credentials.current()
            answer = await self._exchange(method, target, headers, body, credential, repeatable)
        return answer

    async def _exchange(
        self,
        method: str,
        target: str,
        headers: list[tuple[bytes, bytes]],
        body: bytes | None,
        credential: Credential,
        repeatable: bool,
    ) -> tuple[Head, bytes]:
        full = self._headers(headers, credential)
        pooled = self._take_idle(
            credential, self._max_idle_seconds if repeatable else _FRESH_SECONDS
        )
        connection = pooled or await self._open(credential)
        while True:
            try:
                head = await connection.send(method, target, full, body)
                content = await connection.body()
            except CONNECTION_ERRORS as error:
                connection.abort()
                if isinstance(error, TimeoutError):
                    raise
                stale = connection is pooled and not connection.answered
                if not (stale and repeatable):
                    raise self._broken(method, error) from error
                self._drop_idle()
                connection = await self._open(credential)
            except BaseException:
                connection.abort()  # cancelled: half an answer is of no use to the next request
                raise
            else:
                self._give_back(connection)
                return head, content

    async def _start_stream(
        self, target: str, headers: list[tuple[bytes, bytes]]
    ) -> tuple[HttpConnection, Head]:
        """A connection on which an answer of status 200 has begun."""
        credential = await self._credentials.current()
        for last_try in (False, True):
            connection = await self._open(credential)
            try:
                head = await connection.send(
                    "GET", target, self._headers(headers, credential), None
                )
                if head.status < 300:
                    return connection, head
                content = await connection.body(_MAX_ERROR_BYTES)
            except BaseException as error:
                connection.abort()
                if isinstance(error, CONNECTION_ERRORS) and not isinstance(error, TimeoutError):
                    raise self._broken("GET", error) from error
                raise
            connection.abort()
            if last_try or head.status != 401 or not await self._credentials.rejected(credential):
                raise from_answer(head.status, head.headers, content)
            credential = await self._credentials.current()
        raise AssertionError("unreachable: the last try returns or raises")

    async def _pieces(
        self, pieces: AsyncIterator[bytes], path: str, silence_seconds: float | None
    ) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(silence_seconds):
                    piece = await anext(pieces, None)
            except TimeoutError as error:
                # The kernel's time-out is one too: keep-alive found that the peer is gone.
                waited = "long" if silence_seconds is None else f"{silence_seconds:g} s"
                raise Unreachable(f"nothing came for {waited}: GET {self._shown(path)}") from error
            except CONNECTION_ERRORS as error:
                raise self._broken("GET", error) from error
            if piece is None:
                return
            yield piece

    # Connections

    def _take_idle(self, credential: Credential, max_idle_seconds: float) -> HttpConnection | None:
        self._use_certificate(credential)
        now = asyncio.get_running_loop().time()
        while self._idle and now - self._idle[0].idle_since > self._max_idle_seconds:
            self._idle.pop(0).abort()
        while self._idle:
            if now - self._idle[-1].idle_since > max_idle_seconds:
                return None
            connection = self._idle.pop()
            if connection.usable():
                return connection
            connection.abort()
        return None

    def _give_back(self, connection: HttpConnection) -> None:
        if self._closed or not connection.recycle():
            connection.abort()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)

    def _drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.abort()

    async def _open(self, credential: Credential) -> HttpConnection:
        if self._closed:
            raise Unreachable(f"the connection to {self._access.server} was closed by this program")
        self._use_certificate(credential)
        try:
            async with asyncio.timeout(self._connect_timeout_seconds):
                return await HttpConnection.open(
                    self._host, self._port, self._tls, self._access.tls_server_name
                )
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(
                f"the certificate of {self._access.server} is not to be trusted: "
                f"{error.verify_message}; is certificate-authority that of this cluster?"
            ) from error
        except TimeoutError as error:
            raise Unreachable(
                f"{self._access.server} did not accept a connection within "
                f"{self._connect_timeout_seconds:g} s"
            ) from error
        except OSError as error:
            raise Unreachable(f"cannot connect to {self._access.server}: {_why(error)}") from error

    def _use_certificate(self, credential: Credential) -> None:
        """Makes the TLS context, again when a credential plugin gave a new certificate."""
        if not self._secure:
            return
        if self._tls is None or self._tls_certificate != credential.certificate_pem:
            self._drop_idle()
            self._tls = client_context(self._access, credential.certificate_pem, credential.key_pem)
            self._tls_certificate = credential.certificate_pem

    # Words

    def _target(self, path: str, query: Mapping[str, str] | None) -> str:
        return self._base_path + path + (f"?{urlencode(query)}" if query else "")

    def _headers(
        self, headers: list[tuple[bytes, bytes]], credential: Credential
    ) -> list[tuple[bytes, bytes]]:
        full = [(b"host", self._host_header), (b"user-agent", self._user_agent), *headers]
        if credential.authorization:
            full.append((b"authorization", credential.authorization.encode("latin-1")))
        return full

    def _shown(self, path: str) -> str:
        return self._access.server + path

    def _broken(self, method: str, error: BaseException) -> Unreachable:
        return Unreachable(
            f"the connection to {self._access.server} broke during a {method}: {_why(error)}"
        )


def _why(error: BaseException) -> str:
    return printable(str(error)) or type(error).__name__
