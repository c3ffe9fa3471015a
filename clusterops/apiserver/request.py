"""One HTTP request, taken apart: headers, query, and what its path names."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from clusterops.apiserver.access import User
from clusterops.apiserver.kind import Kind
from clusterops.apiserver.kind_set import KindSet
from clusterops.apiserver.refusals import bad_request, no_such_path, too_large

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODY_LIMIT = 3 * 1024 * 1024  # bytes, as kube-apiserver
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class Request:
    """A request on its way through the server. `headers` have lower-case names."""

    __slots__ = ("_query", "headers", "method", "path", "query_string", "receive", "send", "user")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        path: str = scope["path"]
        root = scope.get("root_path", "")
        self.path = path[len(root) :] if root and path.startswith(root) else path
        self.query_string: bytes = scope.get("query_string", b"")
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.receive = receive
        self.send = send
        self.user = ANONYMOUS
        self._query: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """The query; of a parameter that is given twice the last counts."""
        if self._query is None:
            text = self.query_string.decode("latin-1")
            self._query = dict(parse_qsl(text, keep_blank_values=True)) if text else {}
        return self._query

    def flag(self, name: str) -> bool:
        """A boolean parameter."""
        return self.query.get(name, "").lower() in ("true", "1")

    def number(self, name: str) -> int | None:
        """A whole number of 0 or more; None when it is not given. Raises 400."""
        text = self.query.get(name, "")
        if not text:
            return None
        if not (text.isascii() and text.isdecimal()) or len(text) > 18:
            raise bad_request(f'invalid value for {name}: "{text[:40]}" is no whole number')
        return int(text)

    async def body(self) -> bytes:
        """The whole body. Raises 413 when it is larger than allowed."""
        declared = self.headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > BODY_LIMIT:
            raise too_large(BODY_LIMIT)
        message = await self.receive()
        content: bytes = message.get("body", b"")
        if not message.get("more_body"):
            return content
        pieces, size = [content], len(content)
        while message.get("more_body"):
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > BODY_LIMIT:
                raise too_large(BODY_LIMIT)
        return b"".join(pieces)


class ClientGone(Exception):
    """The client left before the request was complete."""


class Target(NamedTuple):
    """What a path names. `namespace` is None for all namespaces and for cluster-scoped kinds."""

    kind: Kind
    namespace: str | None
    name: str
    subresource: str

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name, as the state knows them."""
        return (self.namespace or "", self.name)


def resource_target(kinds: KindSet, parts: list[str]) -> Target:
    """The target of a path below /api or /apis, split at its slashes. Raises 404."""
    if parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    else:
        group, version, rest = parts[1], parts[2], parts[3:]
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) >= 3 and not _of_namespace_itself(group, rest):
        namespace, rest = rest[1], rest[2:]
    kind = kinds.find(group, version, rest[0])
    if kind is None or len(rest) > 3 or "" in rest[1:]:
        raise no_such_path()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in kind.subresources:
        raise no_such_path()
    if (namespace is not None) != kind.namespaced and (name or namespace is not None):
        raise no_such_path()
    return Target(kind, namespace, name, subresource)


def _of_namespace_itself(group: str, rest: list[str]) -> bool:
    return not group and len(rest) == 3 and rest[2] in ("status", "finalize")
