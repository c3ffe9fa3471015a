"""OpenAPI: version 3 for validation and `explain`, and the few bytes of version 2 that kubectl needs."""

from collections.abc import Iterable

from clusterops.apiserver.discovery import Document
from clusterops.apiserver.kinds import Kind


class OpenApi:
    """The OpenAPI documents of a set of kinds; made anew when the set changes."""

    def __init__(self, kinds: Iterable[Kind]) -> None: ...

    def v2(self) -> Document:
        """`/openapi/v2`."""
        raise NotImplementedError

    def index(self) -> Document:
        """`/openapi/v3`: paths of the documents, each with a hash of its content."""
        raise NotImplementedError

    def document(self, path: str) -> Document | None:
        """`/openapi/v3/PATH`, PATH being api/v1 or apis/GROUP/VERSION (without the query)."""
        raise NotImplementedError
