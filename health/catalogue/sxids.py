"""Which meaning of an SXid a line has: some numbers were given to other faults with driver 550.40.07.

The text in the line settles it; without one, the driver's version does; without either, nothing may
be concluded from the number.
"""

from typing import NamedTuple

from health.catalogue.driver import DriverVersion
from health.catalogue.rows import SXidRow


class Meaning(NamedTuple):
    """The row that applies, and how it was told; no row when the code is unknown or ambiguous."""

    row: SXidRow | None
    how: str


def meaning(
    rows: dict[int, tuple[SXidRow, ...]], code: int, text: str, driver: DriverVersion | None
) -> Meaning:
    """The meaning of one line's SXid."""
    candidates = rows.get(code, ())
    if not candidates:
        return Meaning(None, "unknown")
    by_text = [row for row in candidates if row.text and fits(row.text, text)]
    if len(by_text) == 1:
        return Meaning(by_text[0], "text")
    if len(candidates) == 1:
        return Meaning(candidates[0], "number")
    if driver is not None:
        by_driver = [row for row in candidates if row.printed_by(driver)]
        if len(by_driver) == 1:
            return Meaning(by_driver[0], "driver version")
    return Meaning(None, "ambiguous")


def fits(template: str, text: str) -> bool:
    """Whether a text was printed from a template of the driver, whose holes are `%d` and the like.

    Looks for the fixed parts one after another, so it takes the length of the text at most.
    """
    at = 0
    for number, part in enumerate(template.split("%")):
        fixed = part if number == 0 else part.lstrip("0123456789lsuxd")
        found = text.find(fixed, at)
        if found < 0 or (number == 0 and found != 0):
            return False
        at = found + len(fixed)
    return True
