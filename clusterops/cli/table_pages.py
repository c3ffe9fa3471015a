"""Pages of a Table as the API server sends them, decoded without building what is not shown."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec


class _Metadata(msgspec.Struct):
    namespace: str = ""
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Row(msgspec.Struct):
    cells: list[Any]
    object: _Object | None = None


class _ListMetadata(msgspec.Struct):
    continue_token: str = msgspec.field(default="", name="continue")


class _Table(msgspec.Struct, rename="camel"):
    column_definitions: list[dict[str, Any]] = []
    rows: list[_Row] = []
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


class Page(NamedTuple):
    """One page: its columns (empty on later pages), its cells, what its objects' metadata say when
    they came along, and where to go on.
    """

    columns: list[dict[str, Any]]
    rows: list[list[Any]]
    namespaces: list[str]
    annotations: list[dict[str, str] | None]
    continue_token: str

    def only(self, wanted: Callable[[dict[str, str] | None], bool]) -> "Page":
        """The page with the rows alone whose object has annotations that are wanted."""
        kept = [index for index, each in enumerate(self.annotations) if wanted(each)]
        return self._replace(
            rows=[self.rows[index] for index in kept],
            namespaces=[self.namespaces[index] for index in kept],
            annotations=[self.annotations[index] for index in kept],
        )

    def rows_with_namespace(self) -> list[list[Any]]:
        """The cells with the namespace of their object before them."""
        return [
            [namespace, *cells] for namespace, cells in zip(self.namespaces, self.rows, strict=True)
        ]


def decode(body: bytes) -> Page:
    """A page from the bytes of the answer.

    Raises:
        Unreachable: the answer is no Table; something else than an API server sent it.
    """
    from clusterops.kube.errors import Unreachable

    try:
        table = msgspec.json.decode(body, type=_Table)
    except msgspec.DecodeError as error:
        raise Unreachable(f"the server's answer is no table: {error}") from error
    return Page(
        table.column_definitions,
        [row.cells for row in table.rows],
        [row.object.metadata.namespace if row.object else "" for row in table.rows],
        [row.object.metadata.annotations if row.object else None for row in table.rows],
        table.metadata.continue_token,
    )
