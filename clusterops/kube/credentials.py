"""Who we say we are: tokens, token files that rotate, passwords, programs that print credentials."""

import asyncio
import base64
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

from clusterops.kube.access import Access, ExecPlugin
from clusterops.kube.errors import ConfigError, printable

log = logging.getLogger(__name__)


class Credential(NamedTuple):
    """The Authorization header, and a client certificate with its key where there is one."""

    authorization: str | None = None
    certificate_pem: bytes | None = None
    key_pem: bytes | None = None


class Credentials(Protocol):
    """A source of credentials, asked before each request."""

    async def current(self) -> Credential:
        """The credential to use now; raises ConfigError when there is none."""
        ...

    async def rejected(self, credential: Credential) -> bool:
        """The server answered 401 to `credential`; whether there is now another worth a try."""
        ...


def credentials_for(access: Access) -> Credentials:
    """The source that the access asks for."""
    if access.exec_plugin is not None:
        return ExecCredentials(access.exec_plugin, access.user)
    if access.token_file is not None:
        return TokenFile(access.token_file)
    if access.token:
        return Fixed(Credential(f"Bearer {access.token}"))
    if access.username:
        pair = f"{access.username}:{access.password or ''}".encode()
        return Fixed(Credential("Basic " + base64.b64encode(pair).decode("ascii")))
    return Fixed(Credential())


class Fixed:
    """One credential for good."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    async def current(self) -> Credential:
        """That one."""
        return self._credential

    async def rejected(self, credential: Credential) -> bool:
        """There is no other."""
        return credential != self._credential


class TokenFile:
    """A file with a bearer token that its owner rotates, such as a service account's.

    Read again when the file changes, when the server refuses the token, and every 60 seconds. While
    the file is away (a rotation in progress) the last token goes on being used.
    """

    def __init__(
        self,
        path: Path,
        *,
        reread_seconds: float = 60.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._reread_seconds = reread_seconds
        self._now = now
        self._token = ""
        self._read_at = 0.0
        self._signature: tuple[int, int, int] | None = None

    async def current(self) -> Credential:
        """The token that is in the file, or was when it could last be read."""
        signature = self._stat()
        stale = self._now() - self._read_at >= self._reread_seconds
        if not self._token or stale or (signature and signature != self._signature):
            self._read()
        return Credential(f"Bearer {self._token}")

    async def rejected(self, credential: Credential) -> bool:
        """Whether the file has another token by now."""
        self._read()
        return credential.authorization != f"Bearer {self._token}"

    def _read(self) -> None:
        signature = self._stat()
        try:
            token = self._path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            token, reason = "", str(error)
        else:
            reason = f"{self._path} is empty"
        if token:
            self._token, self._signature = token, signature
        elif not self._token:
            raise ConfigError(f"the token file cannot be used: {reason}")
        else:
            log.warning("keeping the last token: %s", printable(reason))
        self._read_at = self._now()

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size


class ExecCredentials:
    """Runs a credential plugin and keeps its answer until a minute before that expires."""

    _EARLY = timedelta(seconds=60)

    def __init__(
        self,
        plugin: ExecPlugin,
        user: str = "",
        *,
        timeout_seconds: float = 60.0,
        wall_now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._plugin = plugin
        self._user = user
        self._timeout_seconds = timeout_seconds
        self._wall_now = wall_now
        self._lock = asyncio.Lock()
        self._credential: Credential | None = None
        self._expires: datetime | None = None

    async def current(self) -> Credential:
        """The plugin's last answer while that is valid, else a new one; raises ConfigError."""
        async with self._lock:
            expired = self._expires is not None and self._wall_now() >= self._expires - self._EARLY
            if self._credential is None or expired:
                await self._run()
            assert self._credential is not None
            return self._credential

    async def rejected(self, credential: Credential) -> bool:
        """Asks the plugin anew, once for all requests that were refused the same credential."""
        async with self._lock:
            if self._credential == credential:
                await self._run()
            return self._credential != credential

    async def _run(self) -> None:
        output = await self._output()
        try:
            answer = json.loads(output)
            status = answer["status"]
            token, certificate = status.get("token"), status.get("clientCertificateData")
            expires = status.get("expirationTimestamp")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._error(f"printed no ExecCredential with a status ({error})") from error
        if answer.get("apiVersion") != self._plugin.api_version:
            raise self._error(
                f"answered in {answer.get('apiVersion')}, the kubeconfig says {self._plugin.api_version}"
            )
        if not token and not certificate:
            raise self._error("gave neither a token nor a client certificate")
        try:
            self._expires = _timestamp(expires) if expires else None
        except ValueError as error:
            raise self._error(f"gave an expiry that is no timestamp: {expires!r}") from error
        self._credential = Credential(
            f"Bearer {token}" if token else None,
            certificate.encode() if certificate else None,
            (status.get("clientKeyData") or "").encode() if certificate else None,
        )

    async def _output(self) -> bytes:
        # A login that talks to its user does so through our terminal, as with kubectl.
        interactive = sys.stdin.isatty() and self._plugin.interactive_mode != "Never"
        if self._plugin.interactive_mode == "Always" and not interactive:
            raise self._error("needs a terminal, and there is none")
        spec: dict[str, object] = {"interactive": interactive}
        if self._plugin.cluster_info is not None:
            spec["cluster"] = self._plugin.cluster_info
        info = {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}
        environment = {**os.environ, **dict(self._plugin.env)}
        environment["KUBERNETES_EXEC_INFO"] = json.dumps(info)
        try:
            process = await asyncio.create_subprocess_exec(
                self._plugin.command,
                *self._plugin.args,
                env=environment,
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if interactive else asyncio.subprocess.PIPE,
                start_new_session=not interactive,
            )
        except OSError as error:
            hint = f"; {self._plugin.install_hint}" if self._plugin.install_hint else ""
            raise self._error(f"cannot be started: {error}{hint}") from error
        try:
            async with asyncio.timeout(self._timeout_seconds):
                output, complaint = await process.communicate()
        except TimeoutError as error:
            raise self._error(f"took longer than {self._timeout_seconds:g} s") from error
        finally:
            if process.returncode is None:
                _kill(process.pid, group=not interactive)
                await process.wait()
        if process.returncode:
            said = (complaint or b"").decode("utf-8", "replace").strip()
            raise self._error(
                f"ended with code {process.returncode}" + (f": {said}" if said else "")
            )
        return output

    def _error(self, what: str) -> ConfigError:
        who = f" of user {self._user!r}" if self._user else ""
        return ConfigError(printable(f"the credential plugin {self._plugin.command!r}{who} {what}"))


def _timestamp(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _kill(pid: int, *, group: bool) -> None:
    try:
        if group:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended by itself meanwhile
