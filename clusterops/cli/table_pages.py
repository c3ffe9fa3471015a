"""Pages of a Table as the API server sends them, decoded without building what is not shown."""

from typing import Any, NamedTuple

import msgspec


class _Metadata(msgspec.Struct):
    namespace: str = ""


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
    """One page: its columns (empty on later pages), its cells, and where to go on."""

    columns: list[dict[str, Any]]
    rows: list[list[Any]]
    namespaces: list[str]
    continue_token: str

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
        table.metadata.continue_token,
    )
