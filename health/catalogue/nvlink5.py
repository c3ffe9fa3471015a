"""NVLink5 faults (Xid 144-150) against the vendor's sheet: unit, bits of the first word, status.

The bits of the first word changed places with R575. Where the driver's version is not known, or was
read wrongly, the layout that fits the line is taken: the unit's name keeps them apart.
"""

from collections.abc import Iterator
from typing import NamedTuple

from health.catalogue.driver import DriverVersion
from health.catalogue.rows import NvlinkRow, Resolution
from health.events import Severity
from health.parse.details import NvlinkReport

SECOND_LAYOUT = DriverVersion(575)
_SUB_CAUSE_SHIFT, _SUB_CAUSE_BITS = 20, 0x3F


class Decoded(NamedTuple):
    """The row that a line matches, what it says to do, and by which layout."""

    row: NvlinkRow
    resolution: Resolution
    layout: int
    raised: bool
    """True when a further bit of the first word made it graver."""


def sub_cause(report: NvlinkReport) -> int | None:
    """Bits 25 to 20 of the first word, None when the words are cut off."""
    return report.words[0] >> _SUB_CAUSE_SHIFT & _SUB_CAUSE_BITS if report.words else None


def decode(
    rows: tuple[NvlinkRow, ...], report: NvlinkReport, driver: DriverVersion | None
) -> Decoded | None:
    """The row for a report, None when none fits or its words are cut off."""
    if not report.words:
        return None
    status = report.words[1] if len(report.words) > 1 else None
    for layout in _layouts(driver):
        for row in rows:
            if not _same_unit(row, report.unit) or not _same_status(row, status):
                continue
            word = report.words[0]
            raised = row.raised_mask_v1 if layout == 1 else row.raised_mask_v2
            if raised is not None and row.raised_resolution and raised.matches(word):
                return Decoded(row, row.raised_resolution, layout, raised=True)
            if (row.mask_v1 if layout == 1 else row.mask_v2).matches(word):
                return Decoded(row, row.resolution, layout, raised=False)
    return None


def agrees(row: NvlinkRow, severity: Severity | None) -> bool:
    """Whether the tag in the line tells the same as the row: both fatal, or neither."""
    return severity is None or severity.fatal == row.severity.fatal


def _layouts(driver: DriverVersion | None) -> Iterator[int]:
    newer_first = driver is not None and driver >= SECOND_LAYOUT
    yield from (2, 1) if newer_first else (1, 2)


def _same_unit(row: NvlinkRow, unit: str) -> bool:
    return unit.upper() in (row.unit_v1.upper(), row.unit_v2.upper())


def _same_status(row: NvlinkRow, status: int | None) -> bool:
    return not row.statuses or status in row.statuses
