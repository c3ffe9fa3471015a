"""The same event told by several sources counts once; told by some alone it shows a gap in the watch."""

from collections import deque

import msgspec

from health.events import Event, Operational, PciAddress, Source

MAX_OPEN = 1024
MAX_CODES = 4096
LOGS = frozenset({Source.KMSG, Source.JOURNAL})
"""They also tell what happened while nobody read them; the others must be there when it happens."""
XIDS = frozenset({*LOGS, Source.TRACE, Source.NVML})
SWITCH_REPORTS = frozenset({*LOGS, Source.TRACE})
"""NVML knows nothing of the switches."""
Told = tuple[str, PciAddress | None]


class Telling(msgspec.Struct):
    """One event and who has told it. `bare` = so far only by code, without a message."""

    at: float
    by: set[Source]
    should: frozenset[Source]
    bare: bool
    extra: Operational | None = None
    """What the driver said beside it."""


class Sources:
    """Pairs reports of different sources about one code and device.

    `expected` are the sources that should all see a fault, here and now; with fewer than two there is
    nothing to pair.
    """

    def __init__(self, expected: frozenset[Source], within_seconds: float) -> None:
        self._expected = expected
        self._within = within_seconds
        self._open: dict[Told, deque[Telling]] = {}
        self._since: dict[Source, float] = {}
        self._always = len(expected - {Source.TRACE}) > 1
        self.gaps: dict[str, int] = {}
        """Events that a source should have told and did not, by source."""

    @property
    def pairing(self) -> bool:
        """Whether there is anything to pair. Trace events come only when they are watched."""
        return self._always or Source.TRACE in self._since

    def watches(self, source: Source, at: float, *, watches: bool) -> None:
        """From a moment on a source sees what happens, or does not."""
        if watches:
            self._since[source] = at
            return
        self._since.pop(source, None)
        for waiting in self._open.values():
            for telling in waiting:
                telling.should -= {source}

    def present(self, source: Source) -> bool:
        """Whether a source sees what happens now, as far as it was told."""
        return source in self._since

    def told_before(
        self,
        event: Event,
        code: str,
        device: PciAddress | None,
        *,
        bare: bool,
        among: frozenset[Source] = XIDS,
    ) -> Telling | None:
        """What other sources have said of this very event already, None when it is news.

        `among` are the kinds of sources that can see such an event at all.
        """
        if event.source not in self._expected or event.source not in among:
            return None
        if len(self._open) >= MAX_CODES:
            self.expire(event.at)
        waiting = self._open.setdefault((code, device), deque())
        self._expire(waiting, event.at)
        for telling in waiting:
            near = abs(event.at - telling.at) <= self._within
            if event.source not in telling.by and near:
                telling.by.add(event.source)
                telling.extra = telling.extra or event.operational
                return telling
        if len(waiting) < MAX_OPEN and len(self._open) <= MAX_CODES:
            should = frozenset(self._should(event.at) & among)
            telling = Telling(event.at, {event.source}, should, bare, event.operational)
            waiting.append(telling)
        return None

    def expire(self, now: float) -> None:
        """Gives up on what the other sources have not told by now."""
        for told, waiting in list(self._open.items()):
            self._expire(waiting, now)
            if not waiting:
                del self._open[told]

    def _should(self, at: float) -> frozenset[Source]:
        """The sources that were there to see what happened at a moment."""
        present = {source for source, since in self._since.items() if since <= at}
        return self._expected & (LOGS | present)

    def _expire(self, waiting: deque[Telling], now: float) -> None:
        while waiting and now - waiting[0].at > self._within:
            telling = waiting.popleft()
            for missing in sorted(telling.should - telling.by):
                self.gaps[missing] = self.gaps.get(missing, 0) + 1
