"""From what the NVML child says to events: only changes, only what lasts, nothing of garbage. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from health.events import (
    FarEnd,
    Hint,
    Identity,
    LinkEnd,
    Operational,
    PciAddress,
    Quantity,
    Reading,
    Source,
    Watching,
    What,
    Wiring,
    Xid,
)
from health.nvml_counters import CounterNotes
from health.nvml_link_counts import LinkCounts
from health.nvml_messages import OPERATIONAL, Board, Device, End, Happened, Ready, Traits, Values

SUSTAINED_ROUNDS = 3
"""What shows for less is no news: clocks slow down at every change of load, fabrics take a while."""
LASTING_REASONS = 0x8 | 0x20 | 0x40 | 0x80
UNKNOWN_ERROR = 999
FABRIC_READY = 3
_QUANTITIES = frozenset(Quantity)
_XID = 0x8
# Events that are better asked about at once than believed by themselves.
_HINTS = {
    0x200: "ecc_storm",
    0x400: "memory_retired",
    0x800: "memory_retirement_failed",
    0x1000: "poison_contained",
    0x2000: "poison_fatal",
    0x4000: "gpu_unavailable",
}
_SEVERITIES = {20: "corrected", 30: "recoverable", 40: "fatal"}
_UNCONTAINED, _PROPAGATED, _THRESHOLD, _PRIMARY = 1 << 0, 1 << 2, 1 << 4, 1 << 5
_SIMULATED = 1 << 2

Key = tuple[PciAddress | None, Quantity]


class Heard(NamedTuple):
    """What an event of NVML says, whether to ask all GPUs at once, and what the driver says of it."""

    events: list[What]
    ask: bool
    operational: Operational | None = None


class ReadingFilter:
    """Remembers what was told last."""

    def __init__(self, told: Mapping[Key, int | None], expected: int | None) -> None:
        """`told` are the readings of this boot so far; `expected` is the number of GPUs, None = as
        many as ever were there.
        """
        self._told = dict(told)
        self._fixed = expected is not None
        self.expected = expected or 0
        self._identities: dict[PciAddress, Identity] = {}
        self._wirings: dict[PciAddress, Wiring] = {}
        self._links = LinkCounts(told)
        self._counters = CounterNotes()
        self._rounds: dict[Key, int] = {}
        self._unknown_before: dict[PciAddress, bool] = {}
        self._watches = False
        self.garbage = 0
        """Answers that were not believed."""
        self.restart_wanted = False
        """An unknown error may be the child's own: another child is asked before it is told."""

    def ready(self, message: Ready) -> list[What]:
        """Which boards are where, how they hang together, and how many are missing."""
        events: list[What] = []
        for board in message.boards:
            device = PciAddress(*board.device)
            identity = Identity(
                device, board.uuid, board.serial, board.vbios, board.slot, message.driver
            )
            if self._identities.get(device) != identity and (board.uuid or board.serial):
                self._identities[device] = identity
                events.append(identity)
            wiring = _wiring(board)
            if self._wirings.get(device) != wiring:
                self._wirings[device] = wiring
                events.append(wiring)
        if not self._fixed:
            self.expected = max(self.expected, len(message.boards))
        missing = max(0, self.expected - len(message.boards))
        events += self._changed([(None, Quantity.DEVICES_MISSING, missing)])
        # A new child begins to hear now, whatever the one before it heard.
        self._watches = False
        return [*events, *self._watching(watches=message.listens)]

    def values(self, message: Values, uptime: float) -> list[What]:
        """What changed about one GPU, asked at an uptime in seconds."""
        device = _address(message.device)
        self.garbage += message.implausible
        error = self._error(device, message.error)
        readings: list[tuple[PciAddress | None, Quantity, int | None]] = []
        if error is not None:
            readings.append((device, Quantity.DEVICE_ERROR, error))
        down = self._links.down(device, message.links_active, message.links_there)
        for name, value in [*message.values.items(), (Quantity.LINKS_DOWN, down)]:
            if name not in _QUANTITIES:
                self.garbage += 1
                continue
            quantity = Quantity(name)
            # A GPU that fails its calls has not changed its other values.
            if value is None and (message.error or (device, quantity) in self._told):
                continue
            if quantity is Quantity.CLOCKS_EVENT_REASONS and value is not None:
                value &= LASTING_REASONS
            if self._lasts(device, quantity, value):
                readings.append((device, quantity, value))
        events = self._changed(readings)
        counters = self._counters.note(device, message.counters, uptime, news=bool(events))
        return events if counters is None else [*events, counters]

    def happened(self, message: Happened) -> Heard:
        """What an event of NVML says."""
        device = _address(message.device)
        self._counters.alarmed(device)
        operational = _operational(message.traits) if message.traits is not None else None
        if message.kind == OPERATIONAL and message.traits is not None:
            return Heard(_hint_of_traits(device, message.traits), True, operational)
        if message.kind != _XID:
            name = _HINTS.get(message.kind)
            if name is None:
                return Heard([], True)
            return Heard([Hint(name, device, f"NVML event 0x{message.kind:x}")], True)
        if not 0 < message.content < 100_000:
            self.garbage += 1
            return Heard([], True)
        xid = Xid(
            device,
            message.content,
            gpu_instance=message.gpu_instance,
            compute_instance=message.compute_instance,
        )
        return Heard([xid], True, operational)

    def monitor(
        self, *, error: int = 0, hang_seconds: int = 0, device: Device | None
    ) -> list[What]:
        """How the watch itself does; `device` is the GPU that a call hangs for."""
        where = _address(device) if device is not None else None
        readings: list[tuple[PciAddress | None, Quantity, int | None]] = [
            (None, Quantity.MONITOR_ERROR, error)
        ]
        if hang_seconds:
            readings.append((where, Quantity.MONITOR_HANG, hang_seconds))
        elif not error:
            hung = [key for key in self._told if key[1] is Quantity.MONITOR_HANG]
            readings += [(place, quantity, 0) for place, quantity in hung]
        events = self._changed(readings)
        return [*events, *self._watching(watches=False)] if error or hang_seconds else events

    def _watching(self, *, watches: bool) -> list[What]:
        if self._watches == watches:
            return []
        self._watches = watches
        return [Watching(Source.NVML, watches=watches)]

    def _error(self, device: PciAddress, error: int) -> int | None:
        if error != UNKNOWN_ERROR:
            self._unknown_before.pop(device, None)
            return error
        if self._unknown_before.get(device):
            return error
        self._unknown_before[device] = True
        self.restart_wanted = True
        return None

    def _lasts(self, device: PciAddress, quantity: Quantity, value: int | None) -> bool:
        """False for what passes by itself as a rule and has not lasted yet."""
        passing = _PASSING.get(quantity)
        if passing is None:
            return True
        key = (device, quantity)
        if value is None or not passing(value):
            self._rounds.pop(key, None)
            return True
        self._rounds[key] = self._rounds.get(key, 0) + 1
        return self._rounds[key] >= SUSTAINED_ROUNDS

    def _changed(
        self, readings: Iterable[tuple[PciAddress | None, Quantity, int | None]]
    ) -> list[What]:
        events: list[What] = []
        for device, quantity, value in readings:
            key = (device, quantity)
            if key in self._told and self._told[key] == value:
                continue
            self._told[key] = value
            events.append(Reading(quantity, value, device))
        return events


# What a value looks like that as a rule goes away by itself.
_PASSING: dict[Quantity, Callable[[int], bool]] = {
    Quantity.CLOCKS_EVENT_REASONS: bool,
    Quantity.FABRIC_STATE: lambda state: state not in (0, FABRIC_READY),
    Quantity.PCIE_LANES_LOST: bool,
    Quantity.PCIE_GENERATIONS_LOST: bool,
}


def _address(device: Device) -> PciAddress:
    return PciAddress(*device)


def _wiring(board: Board) -> Wiring:
    links = tuple(_link_end(end) for end in board.ends)
    return Wiring(PciAddress(*board.device), board.generation, board.divided, links)


def _link_end(end: End) -> LinkEnd:
    try:
        kind = FarEnd(end.kind)
    except ValueError:
        kind = FarEnd.OTHER
    return LinkEnd(end.link, kind, _address(end.device) if end.device is not None else None)


def _operational(traits: Traits) -> Operational:
    return Operational(
        trace=traits.trace,
        primary=bool(traits.attributes & _PRIMARY),
        propagated=bool(traits.attributes & _PROPAGATED),
        uncontained=bool(traits.attributes & _UNCONTAINED),
        threshold_exceeded=bool(traits.attributes & _THRESHOLD),
        simulated=bool(traits.group_attributes & _SIMULATED),
    )


def _hint_of_traits(device: PciAddress, traits: Traits) -> list[What]:
    severity = _SEVERITIES.get(traits.severity)
    if severity is None:
        return []
    text = f"{traits.module or 'a part'} of the GPU reports event {traits.code}"
    return [Hint(f"operational_{severity}", device, text)]
