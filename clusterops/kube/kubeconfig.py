"""Reads kubeconfig files by kubectl's rules, and the environment of a pod.

Of several files the first one to name a cluster, a user, a context or the current context wins.
Paths in a file are relative to that file. Every error says which file, which entry and why.
"""

import base64
import binascii
import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from clusterops.kube.access import Access, ExecPlugin
from clusterops.kube.errors import ConfigError, printable

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_MAX_BYTES = 8 * 1024 * 1024
_SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class _Entry:
    """A named cluster, user or context, and the file it stands in."""

    section: str
    name: str
    body: Mapping[str, Any]
    file: Path

    def error(self, what: str) -> ConfigError:
        entry = f"{_SECTIONS[self.section]} {self.name!r}"
        return ConfigError(printable(f"{self.file}: {entry}: {what}"))

    def text(self, field: str) -> str | None:
        """A field that must be a string when it is there; empty counts as absent."""
        value = self.body.get(field)
        if value is not None and not isinstance(value, str):
            raise self.error(f"{field} must be a string, not {type(value).__name__}")
        return value or None

    def flag(self, field: str) -> bool:
        value = self.body.get(field, False)
        if not isinstance(value, bool):
            raise self.error(f"{field} must be true or false, not {value!r}")
        return value

    def path(self, field: str) -> Path | None:
        value = self.text(field)
        return None if value is None else self.file.parent / Path(value).expanduser()

    def content(self, field: str) -> bytes | None:
        """`FIELD-data` in base64, or else the file that `FIELD` names."""
        inline = self.text(f"{field}-data")
        if inline is not None:
            try:
                return base64.b64decode(inline, validate=False)
            except (binascii.Error, ValueError) as error:
                raise self.error(f"{field}-data is no base64: {error}") from error
        path = self.path(field)
        if path is None:
            return None
        try:
            return path.read_bytes()
        except OSError as error:
            raise self.error(f"{field} cannot be read: {error}") from error


@dataclass(frozen=True)
class Kubeconfig:
    """The entries of one file or several merged ones."""

    files: tuple[Path, ...]
    current_context: str
    clusters: Mapping[str, _Entry]
    users: Mapping[str, _Entry]
    contexts: Mapping[str, _Entry]

    def access(self, context: str | None = None) -> Access:
        """What the named context, else the current one, comes down to; raises ConfigError."""
        name = context or self.current_context
        where = ", ".join(str(file) for file in self.files)
        if not name:
            raise ConfigError(
                f"{where}: no current-context is set; choose one of: {_listing(self.contexts)}"
            )
        chosen = _lookup(self.contexts, name, "context", where)
        cluster_name = chosen.text("cluster")
        if cluster_name is None:
            raise chosen.error("names no cluster")
        access = _cluster_access(_lookup(self.clusters, cluster_name, "cluster", where))
        user_name = chosen.text("user")
        if user_name is not None:
            user = _lookup(self.users, user_name, "user", where)
            cluster = self.clusters[cluster_name]
            access = _with_user(access, user, cluster)
        return replace(access, context=name, namespace=chosen.text("namespace") or "default")


def default_files(environ: Mapping[str, str], home: Path) -> list[Path]:
    """The files of $KUBECONFIG that exist, else ~/.kube/config if that exists, else none."""
    named = environ.get("KUBECONFIG", "")
    if named:
        candidates = [Path(part).expanduser() for part in named.split(os.pathsep) if part]
    else:
        candidates = [home / ".kube" / "config"]
    return [path for path in candidates if path.exists()]


def read(files: list[Path]) -> Kubeconfig:
    """Reads and merges files; raises ConfigError for one that cannot be read or is malformed."""
    current = ""
    merged: dict[str, dict[str, _Entry]] = {section: {} for section in _SECTIONS}
    for file in files:
        document = _document(file)
        named = document.get("current-context")
        if named is not None and not isinstance(named, str):
            raise ConfigError(f"{file}: current-context must be a string, not {named!r}")
        current = current or named or ""
        for section, inner in _SECTIONS.items():
            for entry in _entries(document, section, inner, file):
                merged[section].setdefault(entry.name, entry)
    return Kubeconfig(tuple(files), current, **merged)


def in_cluster(environ: Mapping[str, str], directory: Path = SERVICE_ACCOUNT_DIR) -> Access | None:
    """The access that Kubernetes gives to a pod; None outside of one. Raises ConfigError."""
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        return None
    token_file = directory / "token"
    if not token_file.is_file():
        raise ConfigError(
            f"running in a pod, but {token_file} does not exist; "
            "is automountServiceAccountToken off?"
        )
    try:
        ca_pem = (directory / "ca.crt").read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the cluster's CA cannot be read: {error}") from error
    try:
        namespace = (directory / "namespace").read_text("utf-8").strip()
    except OSError:
        namespace = ""
    bracketed = f"[{host}]" if ":" in host else host
    return Access(
        server=f"https://{bracketed}:{port}",
        ca_pem=ca_pem,
        token_file=token_file,
        namespace=namespace or "default",
        context="in-cluster",
        user="service account",
    )


def _document(file: Path) -> Mapping[str, Any]:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"the kubeconfig cannot be read: {error}") from error
    if len(content) > _MAX_BYTES:
        raise ConfigError(f"{file}: {len(content)} bytes are too many for a kubeconfig")
    try:
        document = yaml.load(content, Loader=_Loader)  # noqa: S506 - a safe loader, the C one
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: no YAML: {printable(str(error))}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{file}: no kubeconfig: the top is a {type(document).__name__}")
    return document


def _entries(document: Mapping[str, Any], section: str, inner: str, file: Path) -> list[_Entry]:
    listed = document.get(section) or []
    if not isinstance(listed, list):
        raise ConfigError(f"{file}: {section} must be a list, not {type(listed).__name__}")
    entries = []
    for position, item in enumerate(listed):
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str):
            raise ConfigError(f"{file}: {section}[{position}] has no name")
        body = item.get(inner) or {}
        if not isinstance(body, dict):
            raise ConfigError(printable(f"{file}: {section}[{position}].{inner} must be a mapping"))
        entries.append(_Entry(section, name, body, file.absolute()))
    return entries


def _lookup(entries: Mapping[str, _Entry], name: str, what: str, where: str) -> _Entry:
    if name in entries:
        return entries[name]
    close = difflib.get_close_matches(name, list(entries), n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are: {_listing(entries)}"
    raise ConfigError(printable(f"{where}: no {what} is named {name!r}; {hint}"))


def _listing(entries: Mapping[str, _Entry]) -> str:
    names = sorted(entries)
    shown = ", ".join(names[:10]) or "none"
    return shown + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _cluster_access(cluster: _Entry) -> Access:
    server = cluster.text("server")
    if server is None or not server.startswith(("https://", "http://")):
        raise cluster.error(f"server must be an http(s) URL, not {server!r}")
    ca = cluster.content("certificate-authority")
    try:
        ca_pem = None if ca is None else ca.decode("ascii")
    except UnicodeDecodeError as error:
        raise cluster.error("certificate-authority is no PEM text") from error
    return Access(
        server=server.rstrip("/"),
        ca_pem=ca_pem,
        insecure_skip_tls_verify=cluster.flag("insecure-skip-tls-verify"),
        tls_server_name=cluster.text("tls-server-name"),
        proxy_url=cluster.text("proxy-url"),
    )


def _with_user(access: Access, user: _Entry, cluster: _Entry) -> Access:
    certificate, key = user.content("client-certificate"), user.content("client-key")
    if (certificate is None) != (key is None):
        raise user.error("client-certificate and client-key belong together; one is missing")
    provider = user.body.get("auth-provider")
    if provider is not None and not (isinstance(provider, dict) and provider.get("name")):
        raise user.error("auth-provider has no name")
    return replace(
        access,
        client_certificate_pem=certificate,
        client_key_pem=key,
        token=user.text("token"),
        token_file=user.path("tokenFile"),
        username=user.text("username"),
        password=user.text("password"),
        exec_plugin=_exec_plugin(user, cluster),
        auth_provider=None if provider is None else str(provider["name"]),
        user=user.name,
    )


def _exec_plugin(user: _Entry, cluster: _Entry) -> ExecPlugin | None:
    body = user.body.get("exec")
    if body is None:
        return None
    if not isinstance(body, dict):
        raise user.error("exec must be a mapping")
    command, version = body.get("command"), body.get("apiVersion")
    if not isinstance(command, str) or not command:
        raise user.error("exec.command is missing")
    if version not in ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"):
        raise user.error(f"exec.apiVersion {version!r} is not supported; v1 and v1beta1 are")
    if "/" in command:
        command = str(user.file.parent / command)
    try:
        args = tuple(str(argument) for argument in body.get("args") or ())
        env = tuple((str(item["name"]), str(item["value"])) for item in body.get("env") or ())
    except (TypeError, KeyError) as error:
        raise user.error(f"exec.args or exec.env is malformed: {error}") from error
    info: dict[str, object] | None = None
    if body.get("provideClusterInfo"):
        ca = cluster.content("certificate-authority")
        info = {"server": cluster.text("server") or ""}
        if ca is not None:
            info["certificate-authority-data"] = base64.b64encode(ca).decode("ascii")
    return ExecPlugin(
        command=command,
        args=args,
        env=env,
        api_version=version,
        install_hint=str(body.get("installHint") or "").strip(),
        interactive_mode=str(body.get("interactiveMode") or "IfAvailable"),
        cluster_info=info,
    )
