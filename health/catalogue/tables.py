"""The catalogue's tables from CSV text, every cell checked: there is no silent default.

A row without an action, with an unknown word or a code twice ends the loading with the place of the
mistake. Text comes in; nothing here opens a file.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import TypeVar

import msgspec

from health.actions import Action, Drain
from health.catalogue import rows
from health.catalogue.driver import DriverVersion, version
from health.events import Severity

MAX_TABLE_CHARACTERS = 4 << 20

Word = TypeVar("Word", bound=StrEnum)
_NUMBER = re.compile(r"(?:0x[0-9a-f]{1,8}|\d{1,9})\Z", re.ASCII)
_MASK = re.compile(r"[01-]{32}\Z")


class CatalogueError(Exception):
    """A table is broken. The message names table, line, column and what was expected."""


class Catalogue(msgspec.Struct, frozen=True):
    """All that is known of codes."""

    xids: dict[int, rows.XidRow]
    sxids: dict[int, tuple[rows.SXidRow, ...]]
    nvlink5: dict[int, tuple[rows.NvlinkRow, ...]]
    recovery_actions: dict[int, rows.RecoveryRow]


class Tables(msgspec.Struct, frozen=True):
    """The CSV texts of a catalogue."""

    xids: str
    sxids: str
    nvlink5: str
    recovery_actions: str


def catalogue(texts: Tables) -> Catalogue:
    """Reads and checks a whole catalogue.

    Raises:
        CatalogueError: a table has a wrong header, cell or repeated code.
    """
    return Catalogue(
        xids=_unique("xids", _rows("xids", texts.xids, rows.XidRow, _xid)),
        sxids=_sxids(_rows("sxids", texts.sxids, rows.SXidRow, _sxid)),
        nvlink5=_nvlink5(_rows("nvlink5", texts.nvlink5, None, _nvlink_row)),
        recovery_actions=_unique(
            "recovery_actions",
            _rows("recovery_actions", texts.recovery_actions, rows.RecoveryRow, _recovery),
        ),
    )


class _Row:
    """One line of a table; reads cells and says where a wrong one is."""

    def __init__(self, table: str, line: int, cells: Mapping[str, str]) -> None:
        self._where = f"{table}, line {line}"
        self._cells = cells

    def wrong(self, column: str, wanted: str) -> CatalogueError:
        return CatalogueError(
            f"{self._where}, column {column}: {self._cells[column]!r} is not {wanted}"
        )

    def text(self, column: str) -> str:
        return self._cells[column]

    def some(self, column: str) -> str:
        if not self._cells[column].strip():
            raise self.wrong(column, "allowed to be empty")
        return self._cells[column]

    def number(self, column: str) -> int:
        cell = self._cells[column]
        if not _NUMBER.match(cell):
            raise self.wrong(column, "a number")
        return int(cell, 0)

    def numbers(self, column: str) -> tuple[int, ...]:
        cell = self._cells[column]
        parts = cell.split("/") if cell else []
        if not all(_NUMBER.match(part) for part in parts):
            raise self.wrong(column, "numbers with / between")
        return tuple(int(part, 0) for part in parts)

    def word(self, column: str, kind: type[Word]) -> Word:
        try:
            return kind(self._cells[column])
        except ValueError:
            choices = ", ".join(member.value or "nothing" for member in kind)
            raise self.wrong(column, f"one of {choices}") from None

    def flag(self, column: str) -> bool:
        cell = self._cells[column]
        if cell not in ("yes", "no"):
            raise self.wrong(column, "yes or no")
        return cell == "yes"

    def version(self, column: str) -> DriverVersion | None:
        cell = self._cells[column]
        found = version(cell) if cell else None
        if cell and found is None:
            raise self.wrong(column, "a driver version")
        return found

    def mask(self, column: str) -> rows.Mask:
        cell = self._cells[column]
        if not _MASK.match(cell):
            raise self.wrong(column, "32 of the characters 0, 1 and -, highest bit first")
        care = int(cell.replace("0", "1").replace("-", "0"), 2)
        return rows.Mask(care, int(cell.replace("-", "0"), 2))


Kind = TypeVar("Kind")


def _rows(
    table: str, text: str, kind: type[msgspec.Struct] | None, read: Callable[[_Row], Kind]
) -> Iterator[Kind]:
    if len(text) > MAX_TABLE_CHARACTERS:
        raise CatalogueError(f"{table}: more than {MAX_TABLE_CHARACTERS} characters")
    reader = csv.reader(text.splitlines(), strict=True)
    columns = list(NVLINK_COLUMNS) if kind is None else list(kind.__struct_fields__)
    try:
        header = next(reader, [])
        if header != columns:
            raise CatalogueError(f"{table}: the header is {header}, expected {columns}")
        for cells in reader:
            if len(cells) != len(columns):
                raise CatalogueError(
                    f"{table}, line {reader.line_num}: {len(cells)} cells, expected {len(columns)}"
                )
            yield read(_Row(table, reader.line_num, dict(zip(columns, cells, strict=True))))
    except csv.Error as error:
        raise CatalogueError(f"{table}, line {reader.line_num}: {error}") from error


NVLINK_COLUMNS = (
    "xid", "unit_v1", "unit_v2", "mask_v1", "mask_v2", "status", "resolution", "severity",
    "raised_mask_v1", "raised_mask_v2", "raised_resolution", "blame", "note", "source",
)  # fmt: skip


def _xid(row: _Row) -> rows.XidRow:
    return rows.XidRow(
        code=row.number("code"),
        mnemonic=row.some("mnemonic"),
        meaning=row.some("meaning"),
        action=row.word("action", Action),
        drain=row.word("drain", Drain),
        cause=row.word("cause", rows.Cause),
        decode=row.word("decode", rows.Decode),
        generations=tuple(filter(None, row.text("generations").split(";"))),
        since=row.version("since"),
        recovery_since=row.version("recovery_since"),
        note=row.text("note"),
        source=row.some("source"),
    )


def _sxid(row: _Row) -> rows.SXidRow:
    return rows.SXidRow(
        code=row.number("code"),
        name=row.some("name"),
        text=row.text("text"),
        severity=row.word("severity", rows.SXidSeverity),
        scope=row.text("scope"),
        action=row.word("action", Action),
        watch=row.flag("watch"),
        since=row.version("since"),
        until=row.version("until"),
        note=row.text("note"),
        source=row.some("source"),
    )


def _nvlink_row(row: _Row) -> rows.NvlinkRow:
    raised = bool(row.text("raised_resolution"))
    return rows.NvlinkRow(
        xid=row.number("xid"),
        unit_v1=row.some("unit_v1"),
        unit_v2=row.some("unit_v2"),
        mask_v1=row.mask("mask_v1"),
        mask_v2=row.mask("mask_v2"),
        statuses=row.numbers("status"),
        resolution=row.word("resolution", rows.Resolution),
        severity=row.word("severity", Severity),
        raised_mask_v1=row.mask("raised_mask_v1") if raised else None,
        raised_mask_v2=row.mask("raised_mask_v2") if raised else None,
        raised_resolution=row.word("raised_resolution", rows.Resolution) if raised else None,
        blame=row.word("blame", rows.Blame),
        note=row.text("note"),
        source=row.some("source"),
    )


def _recovery(row: _Row) -> rows.RecoveryRow:
    return rows.RecoveryRow(
        code=row.number("code"),
        name=row.some("name"),
        action=row.word("action", Action),
        drain=row.word("drain", Drain),
        words=row.text("words"),
        words_since_595_84=row.text("words_since_595_84"),
        note=row.text("note"),
        source=row.some("source"),
    )


Coded = TypeVar("Coded", rows.XidRow, rows.RecoveryRow)


def _unique(table: str, found: Iterator[Coded]) -> dict[int, Coded]:
    by_code: dict[int, Coded] = {}
    for row in found:
        if row.code in by_code:
            raise CatalogueError(f"{table}: code {row.code} twice")
        by_code[row.code] = row
    return by_code


def _sxids(found: Iterator[rows.SXidRow]) -> dict[int, tuple[rows.SXidRow, ...]]:
    by_code: dict[int, tuple[rows.SXidRow, ...]] = {}
    for row in found:
        earlier = by_code.get(row.code, ())
        if any(_overlap(row, other) for other in earlier):
            raise CatalogueError(f"sxids: code {row.code} twice for the same drivers")
        by_code[row.code] = (*earlier, row)
    return by_code


def _overlap(one: rows.SXidRow, other: rows.SXidRow) -> bool:
    def ends_before(first: rows.SXidRow, second: rows.SXidRow) -> bool:
        return first.until is not None and second.since is not None and first.until <= second.since

    return not ends_before(one, other) and not ends_before(other, one)


def _nvlink5(found: Iterator[rows.NvlinkRow]) -> dict[int, tuple[rows.NvlinkRow, ...]]:
    by_xid: dict[int, tuple[rows.NvlinkRow, ...]] = {}
    for row in found:
        by_xid[row.xid] = (*by_xid.get(row.xid, ()), row)
    return by_xid
