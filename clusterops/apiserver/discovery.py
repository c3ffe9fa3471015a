"""Discovery: what clients ask to learn which kinds there are."""

from collections.abc import Iterable
from typing import NamedTuple

from clusterops.apiserver.kinds import Kind


class Document(NamedTuple):
    """An answer made once: body, exact content type, ETag (with its quotes)."""

    body: bytes
    content_type: str
    etag: str


class Discovery:
    """All discovery documents of a set of kinds; made anew when the set changes."""

    def __init__(self, kinds: Iterable[Kind]) -> None: ...

    def core(self, accept: str) -> Document:
        """`/api`: aggregated v2 or v2beta1 when `accept` asks for it, else APIVersions."""
        raise NotImplementedError

    def groups(self, accept: str) -> Document:
        """`/apis`: aggregated or APIGroupList."""
        raise NotImplementedError

    def group(self, group: str) -> Document | None:
        """`/apis/GROUP`: APIGroup, None when there is no such group."""
        raise NotImplementedError

    def resources(self, group: str, version: str) -> Document | None:
        """`/apis/GROUP/VERSION` and `/api/v1` (group ""): APIResourceList."""
        raise NotImplementedError
