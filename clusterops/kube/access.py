"""Where an API server is and how to prove who we are: what a kubeconfig context comes down to."""

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True)
class ExecPlugin:
    """A program that prints credentials (client.authentication.k8s.io), as argument vector.

    `cluster_info` is what it gets to see of the cluster, None unless it asked for that.
    """

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    cluster_info: dict[str, object] | None = field(default=None, hash=False)


@dataclass(frozen=True)
class Access:
    """One server and one identity. Secrets do not show in its repr.

    `server` is a URL, perhaps with a path before the API's own. At most one of the ways to log in
    is used, in the order exec, token_file, token, username; client certificates go along with any.
    `auth_provider` names an old-style provider (oidc, gcp) that only the official client knows.
    """

    server: str
    ca_pem: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    client_certificate_pem: bytes | None = None
    client_key_pem: bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    exec_plugin: ExecPlugin | None = None
    auth_provider: str | None = None
    namespace: str = "default"
    context: str = ""
    user: str = ""

    @property
    def bares_secrets(self) -> bool:
        """Whether a token or password would cross a network unencrypted."""
        if self.server.startswith("https://"):
            return False
        login = (self.token, self.token_file, self.username, self.exec_plugin, self.auth_provider)
        if all(way is None for way in login):
            return False
        return not is_loopback(urlsplit(self.server).hostname or "")


def is_loopback(host: str) -> bool:
    """Whether the host is this machine itself, by name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
