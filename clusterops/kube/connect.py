"""Finds the cluster to talk to, as kubectl does, and opens a transport to it."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from clusterops.kube import kubeconfig as kubeconfigs
from clusterops.kube.access import Access
from clusterops.kube.client import Client
from clusterops.kube.errors import ConfigError
from clusterops.kube.light import LightTransport
from clusterops.kube.transport import Transport

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Connection:
    """An API server and who we are there. `namespace` is the one to use when none is named.

    Opens no connection before the first request; belongs to the event loop of that request.
    """

    transport: Transport
    namespace: str
    server: str
    user: str

    def client(self) -> Client:
        """A client with the default rate limit and retries."""
        return Client(self.transport)

    async def close(self) -> None:
        """Closes the transport."""
        await self.transport.close()


def load(
    kubeconfig: Path | None = None,
    *,
    context: str | None = None,
    namespace: str | None = None,
    official: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Connection:
    """Explicit file > $KUBECONFIG > ~/.kube/config > the pod's service account.

    `official` uses the `kubernetes` package; it is taken by itself where only it can get through
    (auth-provider, proxy-url). Raises ConfigError with the file, the entry and the way out.
    """
    environ = os.environ if environ is None else environ
    access, files = _find(kubeconfig, context, environ)
    if namespace is not None:
        access = replace(access, namespace=namespace)
    if access.insecure_skip_tls_verify:
        log.warning(
            "TLS certificates of %s are NOT verified (insecure-skip-tls-verify): anybody on the "
            "way can read the token and change every answer. Set certificate-authority instead.",
            access.server,
        )
    transport: Transport
    if official or access.auth_provider or access.proxy_url:
        transport = _official(access, files)
    else:
        transport = LightTransport(access)
    return Connection(transport, access.namespace, access.server, access.user)


def _find(
    explicit: Path | None, context: str | None, environ: Mapping[str, str]
) -> tuple[Access, tuple[Path, ...]]:
    if explicit is not None:
        files = [explicit]
    else:
        files = kubeconfigs.default_files(environ, Path(environ.get("HOME") or Path.home()))
    if files:
        return kubeconfigs.read(files).access(context), tuple(files)
    access = kubeconfigs.in_cluster(environ)
    if access is None:
        named = environ.get("KUBECONFIG")
        tried = f"$KUBECONFIG ({named})" if named else "~/.kube/config"
        raise ConfigError(
            f"no cluster is configured: {tried} does not exist and this is not a pod; "
            "name a kubeconfig file"
        )
    if context is not None:
        raise ConfigError(f"there is no kubeconfig, so no context {context!r} in it")
    return access, ()


def _official(access: Access, files: tuple[Path, ...]) -> Transport:
    # Imported here: a second of start-up that most callers never need.
    try:
        from clusterops.kube.official import OfficialTransport
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"context {access.context!r} needs the Kubernetes client ({error.name} is missing): "
            "pip install 'clusterops[cluster]'"
        ) from error
    return OfficialTransport(access, files)
