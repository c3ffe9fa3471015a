"""When the error counters of a GPU are worth keeping: before a fault, and after it. Pure."""

from collections.abc import Mapping

from health.events import Counters, PciAddress

KEEP_SECONDS = 3600.0
"""Counters that only grow a little are kept so often."""
# They go up and down and say nothing of errors.
_GAUGES = frozenset({"thermal_margin", "c2c_links"})


class CounterNotes:
    """Remembers what was kept last of each GPU."""

    def __init__(self) -> None:
        self._kept: dict[PciAddress, tuple[float, dict[str, int]]] = {}
        self._alarmed: set[PciAddress] = set()

    def alarmed(self, device: PciAddress) -> None:
        """Something happened to a GPU: its next counters are kept when they differ."""
        self._alarmed.add(device)

    def note(
        self, device: PciAddress, values: Mapping[str, int], uptime: float, *, news: bool
    ) -> Counters | None:
        """The counters to keep, None when they say nothing new. `news`: a reading changed as well."""
        counted = {name: value for name, value in values.items() if name not in _GAUGES}
        begun, before = self._kept.get(device, (None, {}))
        due = begun is None or news or uptime - begun >= KEEP_SECONDS
        alarmed = device in self._alarmed
        self._alarmed.discard(device)
        if not counted or counted == before or not (due or alarmed):
            return None
        self._kept[device] = (uptime, counted)
        return Counters(device, counted)
