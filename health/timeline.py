"""One line of time for a node, over reboots and steps of its clock. Pure.

Within a boot it follows the uptime. A boot begins after all that is known of the one before it: so
long after as the wall clock says, when that can be believed.
"""

from typing import NamedTuple

STEP_SECONDS = 2.0
"""A smaller difference between wall clock and uptime is drift, and not worth moving timestamps for."""
LONGEST_OFF_SECONDS = 7 * 86_400.0
"""A longer time between two boots may be a clock that was wrong."""
SHORTEST_OFF_SECONDS = 1.0


class Boot(NamedTuple):
    """One boot of the node."""

    number: int
    id: str
    base: float
    """Where uptime 0 lies on the line, in seconds."""
    wall_offset: float
    """Wall time of uptime 0 as the clock last said, in seconds since 1970."""
    uptime: float
    """The latest uptime that is known, in seconds."""

    def at(self, uptime: float) -> float:
        """The place on the line of an uptime of this boot."""
        return self.base + uptime

    def wall(self, at: float) -> float:
        """The wall time of a place on the line, in seconds since 1970."""
        return self.wall_offset + at - self.base


def entered(boots: list[Boot], boot_id: str, *, uptime: float, wall: float) -> Boot:
    """The boot that is running: one that is known, brought up to date, or a new one."""
    known = next((boot for boot in reversed(boots) if boot.id == boot_id), None)
    if known is not None:
        return brought_up_to_date(known, uptime=uptime, wall=wall)
    offset = wall - uptime
    if not boots:
        return Boot(1, boot_id, 0.0, offset, uptime)
    last = boots[-1]
    off = offset - (last.wall_offset + last.uptime)
    if not SHORTEST_OFF_SECONDS <= off <= LONGEST_OFF_SECONDS:
        off = LONGEST_OFF_SECONDS if off > LONGEST_OFF_SECONDS else SHORTEST_OFF_SECONDS
    return Boot(last.number + 1, boot_id, last.base + last.uptime + off, offset, uptime)


def brought_up_to_date(boot: Boot, *, uptime: float, wall: float) -> Boot:
    """The boot with the uptime of now, and the clock's newest word when it was set."""
    offset = wall - uptime
    if abs(offset - boot.wall_offset) < STEP_SECONDS:
        offset = boot.wall_offset
    return boot._replace(uptime=max(boot.uptime, uptime), wall_offset=offset)


def wall_time(boots: list[Boot], at: float) -> float:
    """The wall time of any place on the line; the first boot's clock reaches back before it."""
    boot = boots[0]
    for candidate in boots:
        if candidate.base <= at:
            boot = candidate
    return boot.wall(at)
