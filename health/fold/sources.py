"""The same event told by two sources counts once; told by one alone it shows a gap in the watch."""

from collections import deque
from typing import NamedTuple

from health.events import Event, PciAddress, Source

MAX_OPEN = 1024
MAX_CODES = 4096
Told = tuple[str, PciAddress | None]


class Telling(NamedTuple):
    """One source's word about an event. `bare` = it knows the code, but no message."""

    at: float
    source: Source
    bare: bool


class Sources:
    """Pairs reports of different sources about one code and device.

    `expected` are the sources that should all see a fault, here and now; with fewer than two there is
    nothing to pair.
    """

    def __init__(self, expected: frozenset[Source], within_seconds: float) -> None:
        self._expected = expected
        self._within = within_seconds
        self._open: dict[Told, deque[Telling]] = {}
        self.pairing = len(expected) > 1
        """Whether there is anything to pair."""
        self.gaps: dict[str, int] = {}
        """Events that a source should have told and did not, by source."""

    def told_before(
        self, event: Event, code: str, device: PciAddress | None, *, bare: bool
    ) -> Telling | None:
        """What another source has said of this very event already, None when it is news."""
        if event.source not in self._expected:
            return None
        if len(self._open) >= MAX_CODES:
            self.expire(event.at)
        waiting = self._open.setdefault((code, device), deque())
        self._expire(waiting, event.at)
        for place, telling in enumerate(waiting):
            if telling.source is not event.source:
                del waiting[place]
                return telling
        if len(waiting) < MAX_OPEN and len(self._open) <= MAX_CODES:
            waiting.append(Telling(event.at, event.source, bare))
        return None

    def expire(self, now: float) -> None:
        """Gives up on what the other sources have not told by now."""
        for told, waiting in list(self._open.items()):
            self._expire(waiting, now)
            if not waiting:
                del self._open[told]

    def _expire(self, waiting: deque[Telling], now: float) -> None:
        while waiting and now - waiting[0].at > self._within:
            source = waiting.popleft().source
            for missing in sorted(self._expected - {source}):
                self.gaps[missing] = self.gaps.get(missing, 0) + 1
