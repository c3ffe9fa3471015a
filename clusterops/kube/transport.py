"""How bytes reach an API server: one protocol, two implementations.

`light.LightTransport` needs only the standard library and h11 and starts in a few hundredths of a
second; `official.OfficialTransport` uses the `kubernetes` package and adds exec plugins and OIDC.
Everything above speaks this protocol and raw JSON.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote


class ResourceType(Protocol):
    """Where a kind lives; `clusterops.api.names.ResourceType` is one such, any tuple alike will do."""

    @property
    def group(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def plural(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def namespaced(self) -> bool: ...


class Resource(NamedTuple):
    """A `ResourceType` for the kinds that this package itself reads and writes."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool


class Response(NamedTuple):
    """A successful answer. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Sends one request. Credentials, TLS and the server's address are the implementation's.

    Both methods raise the family of `errors`: `Unreachable` when no whole answer came within the
    deadline, an `ApiError` for any status of 400 or more.
    """

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
        """One request, one whole answer."""
        ...

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "application/json",
        silence_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """A GET whose answer is read as it comes, in pieces of any size (a watch, a followed log).

        Entering sends the request and checks the status. The iterator ends when the server ends the
        answer; it raises `Unreachable` when nothing came for `silence_seconds` (None: wait for
        ever) or the connection broke. Leaving closes the connection.
        """
        ...

    async def close(self) -> None:
        """Closes idle connections. The transport cannot be used afterwards."""
        ...


def resource_path(
    resource: ResourceType,
    namespace: str | None = None,
    name: str | None = None,
    subresource: str | None = None,
) -> str:
    """The URL path of a collection, an object or a subresource. `namespace=None` = all namespaces.

    Raises ValueError for a name that would lead to another path: empty, "." or "..".
    """
    root = (
        f"/apis/{resource.group}/{resource.version}"
        if resource.group
        else f"/api/{resource.version}"
    )
    scoped = resource.namespaced and namespace is not None
    parts = [*(("namespaces", namespace) if scoped else ()), resource.plural, name, subresource]
    return root + "".join(f"/{_segment(part)}" for part in parts if part is not None)


def _segment(part: str) -> str:
    if part in ("", ".", ".."):
        raise ValueError(f"{part!r} is no name of an object or a namespace")
    return quote(part, safe=":")


JsonObject = dict[str, Any]
