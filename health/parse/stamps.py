"""The clock's words in a log line, and one line of time for a whole log.

Logs mix uptime, wall time with and without year, month names of any language, and nothing at all.
Decisions need durations and an order, not dates: within a boot they follow the uptime, across a step
of the wall clock the time simply goes on, and a line without a stamp happens when its neighbour did.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from health.parse import prefix

_UPTIME = re.compile(r"\[\s{0,12}(\d{1,12})\.(\d{1,9})\]", re.ASCII)
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
_NAMED_MONTH = re.compile(
    r"([^\W\d_]{1,12})\.?\s{1,4}(\d{1,2})\s{1,4}(\d\d):(\d\d):(\d\d)(?:\s(\d{4}))?(?!\d)"
)
_TIME_OF_DAY = re.compile(r"(?<![\d:])(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?(?![\d:])", re.ASCII)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

REBOOT_SECONDS = 5.0
"""An uptime that falls by more than this belongs to a new boot."""
DISORDER_SECONDS = 120.0
"""A wall time that falls by no more than this is disorder between writers, no step of the clock."""
_DAY = 86_400.0


class Stamp(NamedTuple):
    """When a line says it was written; either may be missing."""

    uptime: float | None
    wall: float | None
    sequence: int | None = None


NOTHING = Stamp(None, None)


def stamp(head: str) -> Stamp:
    """The stamp in the text before a message."""
    if not head:
        return NOTHING
    if ";" in head:
        numbers = prefix.kmsg_head(head)
        if numbers is not None:
            return Stamp(numbers[2] / 1e6, None, numbers[1])
    found = _UPTIME.search(head)
    uptime = float(f"{found[1]}.{found[2]}") if found is not None else None
    wall = _wall(head) if ":" in head else None
    return Stamp(uptime, wall)


# In a burst, hundreds of lines carry the very same second.
@lru_cache(maxsize=16)
def _wall(head: str) -> float | None:
    """Wall time in seconds; without a year, or a month that is known, only differences mean much."""
    found = _ISO.search(head)
    if found is not None:
        year, month, day, *clock = found.groups()[:6]
        zone = found[8] or "Z"
        return _seconds(int(year), int(month), int(day), clock, found[7]) - _offset(zone)
    found = _NAMED_MONTH.search(head)
    if found is not None:
        name, day, hours, minutes, seconds, year = found.groups()
        known = name[:3].lower() in _MONTHS
        month = _MONTHS.index(name[:3].lower()) + 1 if known else 1
        return _seconds(int(year or 2000), month, int(day), [hours, minutes, seconds], None)
    found = _TIME_OF_DAY.search(head)
    if found is not None:
        return _seconds(1970, 1, 1, list(found.groups()[:3]), found[4])
    return None


def _seconds(year: int, month: int, day: int, clock: list[str], fraction: str | None) -> float:
    """Seconds since 1970; days and months out of range simply run on."""
    # Days from the civil calendar, years beginning in March so that the leap day comes last.
    year -= month <= 2
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = 365 * year + year // 4 - year // 100 + year // 400 + day_of_year - 719_468
    hours, minutes, seconds = (int(part) for part in clock)
    rest = float(f"0.{fraction}") if fraction else 0.0
    return days * _DAY + hours * 3600 + minutes * 60 + seconds + rest


def _offset(zone: str) -> float:
    if zone == "Z":
        return 0.0
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    return (hours * 3600 + minutes * 60) * (-1.0 if zone[0] == "-" else 1.0)


class Timeline:
    """Puts the lines of one log on one line of time that never runs backwards."""

    def __init__(self) -> None:
        self.boot = 0
        """Boots seen so far, told by an uptime that begins anew."""
        self._now = 0.0
        self._begun = False
        self._uptime: float | None = None
        self._uptime_base = 0.0
        self._wall_shift: float | None = None

    def place(self, stamp: Stamp) -> float:
        """Seconds on the line of time for the next line of the log."""
        if stamp.uptime is not None:
            at = self._by_uptime(stamp.uptime)
        elif stamp.wall is not None:
            at = self._by_wall(stamp.wall)
        else:
            at = self._now
        self._now = at if not self._begun or at > self._now else self._now
        self._begun = True
        return self._now

    def _by_uptime(self, uptime: float) -> float:
        if self._uptime is None:
            self._uptime_base = self._now - uptime if self._begun else 0.0
        elif uptime < self._uptime - REBOOT_SECONDS:
            self.boot += 1
            self._uptime_base = self._now
            self._wall_shift = None
        self._uptime = uptime
        return self._uptime_base + uptime

    def _by_wall(self, wall: float) -> float:
        if self._wall_shift is None:
            self._wall_shift = self._now - wall if self._begun else 0.0
        at = wall + self._wall_shift
        if self._begun and at < self._now - DISORDER_SECONDS:
            self._wall_shift += self._now - at
            return self._now
        return at
