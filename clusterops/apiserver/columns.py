"""Columns of a Table: a heading, and how its cell is read from an object."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Column:
    """One column. `priority` 0 is always shown, 1 only with `-o wide`.

    `cell(obj, now)` gives the cell; `now` is seconds since the epoch, for ages.
    """

    name: str
    type: str
    cell: Callable[[dict[str, Any], float], Any]
    format: str = ""
    description: str = ""
    priority: int = 0
