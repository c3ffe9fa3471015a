"""The same event told by two sources counts once; told by one alone it shows a gap in the watch."""

from collections import deque

from health.events import Event, PciAddress, Source

MAX_OPEN = 1024
Told = tuple[str, PciAddress | None]


class Sources:
    """Pairs reports of different sources about one code and device.

    `expected` are the sources that should all see a fault, here and now; with fewer than two there is
    nothing to pair.
    """

    def __init__(self, expected: frozenset[Source], within_seconds: float) -> None:
        self._expected = expected
        self._within = within_seconds
        self._open: dict[Told, deque[tuple[float, Source]]] = {}
        self.gaps: dict[str, int] = {}
        """Events that a source should have told and did not, by source."""

    @property
    def pairing(self) -> bool:
        """Whether there is anything to pair."""
        return len(self._expected) > 1

    def told_before(self, event: Event, code: str, device: PciAddress | None) -> bool:
        """True when another source has told this very event already."""
        if event.source not in self._expected:
            return False
        waiting = self._open.setdefault((code, device), deque())
        self._expire(waiting, event.at)
        for place, (_, source) in enumerate(waiting):
            if source is not event.source:
                del waiting[place]
                return True
        waiting.append((event.at, event.source))
        if len(waiting) > MAX_OPEN:
            waiting.popleft()
        return False

    def expire(self, now: float) -> None:
        """Gives up on what the other sources have not told by now."""
        for told, waiting in list(self._open.items()):
            self._expire(waiting, now)
            if not waiting:
                del self._open[told]

    def _expire(self, waiting: deque[tuple[float, Source]], now: float) -> None:
        while waiting and now - waiting[0][0] > self._within:
            _, source = waiting.popleft()
            for missing in sorted(self._expected - {source}):
                self.gaps[missing] = self.gaps.get(missing, 0) + 1
