"""Columns of a Table: a heading, and how its cell is read from an object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from clusterops.apiserver.ages import age
from clusterops.apiserver.jsonpath import compile_path

Cell = Callable[[dict[str, Any], float], Any]
COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")


@dataclass(frozen=True)
class Column:
    """One column. `priority` 0 is always shown, 1 only with `-o wide`.

    `cell(obj, now)` gives the cell; `now` is seconds since the epoch, for ages.
    """

    name: str
    type: str
    cell: Cell
    format: str = ""
    description: str = ""
    priority: int = 0

    def definition(self) -> dict[str, Any]:
        """The column's entry in `columnDefinitions`."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


NAME = Column(
    "Name",
    "string",
    lambda obj, _: obj["metadata"].get("name", ""),
    format="name",
    description="The name of the object, unique in its namespace.",
)


def age_column(missing: str | None = "<unknown>") -> Column:
    """Time since creation; `missing` stands where there is no time."""
    return Column(
        "Age",
        "string" if missing else "date",
        lambda obj, now: age(obj["metadata"].get("creationTimestamp"), now, missing or ""),
        description="Time since the object was created.",
    )


def from_path(
    name: str, type_: str, path: str, *, priority: int = 0, format_: str = "", description: str = ""
) -> Column:
    """A printer column of a CRD: the first match of a JSON path, as its type wants it.

    Raises ValueError for a type or path that is not supported.
    """
    if type_ not in COLUMN_TYPES:
        raise ValueError(f"column type {type_!r} is none of {', '.join(COLUMN_TYPES)}")
    read = compile_path(path)
    shape = _SHAPES.get(type_)
    if type_ == "date":

        def cell(obj: dict[str, Any], now: float) -> Any:
            found = read(obj)
            return None if found is None else age(found, now, "<invalid>")

    else:

        def cell(obj: dict[str, Any], now: float) -> Any:  # noqa: ARG001 - cells have one shape
            found = read(obj)
            return None if found is None or shape is None else shape(found)

    return Column(name, type_, cell, format_, description, priority)


def _as_text(value: Any) -> str:
    if type(value) is str:
        return value
    return msgspec.json.encode(value).decode()


def _as_integer(value: Any) -> int | None:
    return int(value) if type(value) in (int, float) else None


def _as_number(value: Any) -> float | int | None:
    return value if type(value) in (int, float) else None


def _as_boolean(value: Any) -> bool | None:
    return value if type(value) is bool else None


_SHAPES: dict[str, Callable[[Any], Any]] = {
    "string": _as_text,
    "integer": _as_integer,
    "number": _as_number,
    "boolean": _as_boolean,
}
