"""The transport on the `kubernetes` package: its connection pool, proxies, and its older logins.

The package's typed layer is not used: bodies go in and out as bytes. Importing this module costs
about a second; only `connect` does so, when asked or when nothing else gets through.
"""

import asyncio
import base64
import logging
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import aiohttp
import yarl
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger
from kubernetes.aio.config.openid import OpenIDRequestor

from clusterops.kube.access import Access, is_loopback
from clusterops.kube.credentials import Credential, Credentials, credentials_for
from clusterops.kube.errors import ConfigError, Unreachable, from_answer, printable
from clusterops.kube.tls import client_context
from clusterops.kube.transport import Response

log = logging.getLogger(__name__)

# The package's loader has no annotations.
_Merger: Any = KubeConfigMerger

_LOGIN_SECONDS = 60.0
_CONNECT_SECONDS = 10.0
_STREAM_START_SECONDS = 30.0
_MAX_ERROR_BYTES = 1024 * 1024


class OfficialTransport:
    """Implements `transport.Transport` for one server and one identity, in one event loop."""

    def __init__(
        self,
        access: Access,
        files: tuple[Path, ...] = (),
        *,
        credentials: Credentials | None = None,
        user_agent: str = "clusterops",
    ) -> None:
        """`files` are the kubeconfig files of the access, needed for an auth-provider only."""
        if access.bares_secrets:
            raise ConfigError(
                f"a secret would go to {access.server} in the clear; use https, or no login"
            )
        self._access = access
        if credentials is not None:
            self._credentials = credentials
        elif access.auth_provider is not None:
            self._credentials = ProviderCredentials(access, files)
        else:
            self._credentials = credentials_for(access)
        self._user_agent = user_agent
        self._rest: _RestClient | None = None
        self._certificate: bytes | None = None
        self._closed = False

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
        headers = {"accept": accept}
        if body is not None:
            headers["content-type"] = content_type
        credential = await self._credentials.current()
        try:
            async with asyncio.timeout(timeout_seconds):
                answer = await self._exchange(method, path, query, body, headers, credential)
                # A 401 was not acted upon, so that even a create may be sent again.
                if answer.status == 401 and await self._credentials.rejected(credential):
                    credential = await self._credentials.current()
                    answer = await self._exchange(method, path, query, body, headers, credential)
        except TimeoutError as error:
            raise Unreachable(
                f"no answer within {timeout_seconds:g} s: {method} {self._access.server}{path}"
            ) from error
        if answer.status >= 300:
            raise from_answer(answer.status, answer.headers, answer.body)
        return answer

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
        try:
            async with asyncio.timeout(_STREAM_START_SECONDS):
                answer = await self._start_stream(path, query, {"accept": accept})
        except TimeoutError as error:
            raise Unreachable(
                f"no answer within {_STREAM_START_SECONDS:g} s: GET {self._access.server}{path}"
            ) from error
        try:
            yield self._pieces(answer, path, silence_seconds)
        finally:
            answer.close()

    async def close(self) -> None:
        """Closes all connections."""
        self._closed = True
        if self._rest is not None:
            await self._rest.close()

    async def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        headers: Mapping[str, str],
        credential: Credential,
    ) -> Response:
        answer = await self._send(method, path, query, body, headers, credential)
        try:
            content = await answer.read()
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(method, error) from error
        finally:
            answer.release()
        return Response(answer.status, _lower(answer), content)

    async def _start_stream(
        self, path: str, query: Mapping[str, str] | None, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        credential = await self._credentials.current()
        for last_try in (False, True):
            answer = await self._send("GET", path, query, None, headers, credential)
            if answer.status < 300:
                return answer
            try:
                content = await answer.content.read(_MAX_ERROR_BYTES)
            finally:
                answer.close()
            if last_try or answer.status != 401 or not await self._credentials.rejected(credential):
                raise from_answer(answer.status, _lower(answer), content)
            credential = await self._credentials.current()
        raise AssertionError("unreachable: the last try returns or raises")

    async def _pieces(
        self, answer: aiohttp.ClientResponse, path: str, silence_seconds: float | None
    ) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(silence_seconds):
                    piece = await answer.content.readany()
            except TimeoutError as error:
                # The kernel's time-out is one too: keep-alive found that the peer is gone.
                waited = "long" if silence_seconds is None else f"{silence_seconds:g} s"
                raise Unreachable(
                    f"nothing came for {waited}: GET {self._access.server}{path}"
                ) from error
            except (aiohttp.ClientError, OSError) as error:
                raise self._broken("GET", error) from error
            if not piece:
                return
            yield piece

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        headers: Mapping[str, str],
        credential: Credential,
    ) -> aiohttp.ClientResponse:
        full = {"user-agent": self._user_agent, **headers}
        if credential.authorization:
            full["authorization"] = credential.authorization
        url = self._access.server + path + (f"?{urlencode(query)}" if query else "")
        try:
            rest = await self._rest_client(credential)
            return await rest.session().request(
                method,
                yarl.URL(url, encoded=True),
                data=body,
                headers=full,
                proxy=self._access.proxy_url,
                server_hostname=self._access.tls_server_name,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            )
        except aiohttp.ClientConnectorCertificateError as error:
            raise ConfigError(
                f"the certificate of {self._access.server} is not to be trusted: "
                f"{error.certificate_error}; is certificate-authority that of this cluster?"
            ) from error
        except aiohttp.ServerTimeoutError as error:
            raise Unreachable(f"{self._access.server} did not accept a connection") from error
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(method, error) from error

    async def _rest_client(self, credential: Credential) -> "_RestClient":
        """The package's client, made anew when a credential plugin gave a new certificate."""
        if self._closed:
            raise Unreachable(f"the connection to {self._access.server} was closed by this program")
        if self._rest is None or self._certificate != credential.certificate_pem:
            before, self._rest = self._rest, None
            if before is not None:
                await before.close()
            context = client_context(self._access, credential.certificate_pem, credential.key_pem)
            self._rest = _RestClient(self._access, context)
            self._certificate = credential.certificate_pem
        return self._rest

    def _broken(self, method: str, error: BaseException) -> Unreachable:
        return Unreachable(
            f"the connection to {self._access.server} broke during a {method}: "
            f"{printable(str(error)) or type(error).__name__}"
        )


class _RestClient(RESTClientObject):
    """The package's pool with our TLS context, used below its own request encoding."""

    def __init__(self, access: Access, context: ssl.SSLContext) -> None:
        configuration = Configuration(host=access.server)
        configuration.proxy = access.proxy_url
        if is_loopback(urlsplit(access.server).hostname or ""):
            # A proxy of the environment cannot reach this machine's loopback.
            configuration.client_session_kwargs = {"trust_env": False}
        super().__init__(configuration)
        self.ssl_context = context

    def session(self) -> aiohttp.ClientSession:
        """The pool, made at the first use because it belongs to the running event loop."""
        if self.pool_manager is None:
            self.pool_manager = self._create_pool_manager()
        session: aiohttp.ClientSession = self.pool_manager
        return session


class ProviderCredentials:
    """Logs in by a kubeconfig's auth-provider (oidc, gcp) with the package's loader.

    A refreshed token is written back to the kubeconfig, as kubectl does: many issuers accept a
    refresh token only once.
    """

    def __init__(self, access: Access, files: tuple[Path, ...]) -> None:
        self._access = access
        self._files = files
        self._lock = asyncio.Lock()
        self._loader: Any = None

    async def current(self) -> Credential:
        """The provider's token, refreshed when it is about to expire; raises ConfigError."""
        async with self._lock:
            return await self._log_in()

    async def rejected(self, credential: Credential) -> bool:
        """Asks the provider for another token."""
        async with self._lock:
            if self._loader is not None:
                self._loader.forget_token()
            return await self._log_in() != credential

    async def _log_in(self) -> Credential:
        provider = self._access.auth_provider
        try:
            if self._loader is None:
                merger = _Merger(os.pathsep.join(str(file) for file in self._files))
                provider_loader: Any = _ProviderLoader
                self._loader = provider_loader(
                    config_dict=merger.config,
                    config_base_path=None,
                    active_context=self._access.context,
                    config_persister=lambda _: merger.save_changes(),
                )
            async with asyncio.timeout(_LOGIN_SECONDS):
                await self._loader._load_authentication()
            token: str = self._loader.token
        except (
            ConfigException,
            aiohttp.ClientError,
            OSError,
            ValueError,
            LookupError,
            AttributeError,
        ) as error:
            raise ConfigError(
                f"user {self._access.user!r} cannot log in by auth-provider {provider!r}: "
                f"{str(error) or type(error).__name__}"
            ) from error
        return Credential(token)


class _ProviderLoader(KubeConfigLoader):
    """The package's loader, but its OIDC refresh verifies the issuer's certificate."""

    def forget_token(self) -> None:
        """Makes the next login fetch a new token."""
        user: Any = self._user
        config = user["auth-provider"].value.get("config") or {}
        config.pop("id-token", None)
        config.pop("access-token", None)

    async def _refresh_oidc(self, provider: Any) -> None:
        config: dict[str, Any] = provider["config"].value
        missing = [k for k in ("refresh-token", "client-id", "idp-issuer-url") if not config.get(k)]
        if missing:
            raise ConfigException(f"the token has expired and {missing[0]} is not set")
        authority = provider["config"].value.get("idp-certificate-authority-data")
        connect: Any = _VerifyingRequestor
        requestor = connect(
            config["client-id"],
            config.get("client-secret", ""),
            config["idp-issuer-url"],
            base64.b64decode(authority).decode("ascii") if authority else None,
        )
        answer = await requestor.refresh_token(config["refresh-token"])
        config["id-token"] = answer["id_token"]
        config["refresh-token"] = answer.get("refresh_token", config["refresh-token"])
        self._config_persister(self._config.value)


class _VerifyingRequestor(OpenIDRequestor):
    def _client_session(self) -> aiohttp.ClientSession:
        # The package's own session turns verification off when the kubeconfig names no CA.
        login = base64.b64encode(f"{self._client_id}:{self._client_secret}".encode()).decode()
        return aiohttp.ClientSession(
            headers={"Accept": "application/json", "Authorization": f"Basic {login}"},
            connector=aiohttp.TCPConnector(
                ssl=ssl.create_default_context(cadata=self._ssl_ca_cert)
            ),
            raise_for_status=True,
            trust_env=True,
        )


def _lower(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}
