"""Keeps a storm of one fault from filling disk and history, without losing its count. Pure.

A sick GPU can repeat one line a million times. The first thousand within ten minutes say all that
can be decided from; the others are counted. What is kept is all that the fold sees, so a restarted
daemon comes to the same verdict.
"""

from health.events import Event, FallenOff, Hint, SXid, SXidDetail, Xid

WINDOW_SECONDS = 600.0
KEPT = 1000
_MAX_KEYS = 10_000

Key = tuple[str, object, int | str]


class StormGate:
    """Decides for one event after another; of the events it passed a new one can be made."""

    def __init__(self) -> None:
        self._passed: dict[Key, tuple[float, int]] = {}

    def passes(self, event: Event) -> bool:
        """Whether an event is to be kept; False when enough like it were within the window."""
        key = _key(event)
        if key is None:
            return True
        begun, count = self._passed.get(key, (event.at, 0))
        if not begun <= event.at < begun + WINDOW_SECONDS:
            begun, count = event.at, 0
        if count >= KEPT:
            return False
        if key not in self._passed and len(self._passed) >= _MAX_KEYS:
            self._passed.pop(next(iter(self._passed)))
        self._passed[key] = (begun, count + 1)
        return True


def _key(event: Event) -> Key | None:
    what = event.what
    if isinstance(what, Xid | SXid | SXidDetail):
        return type(what).__name__, what.device, what.code
    if isinstance(what, FallenOff):
        return "FallenOff", what.device, 0
    if isinstance(what, Hint):
        return "Hint", what.device, what.name
    return None
