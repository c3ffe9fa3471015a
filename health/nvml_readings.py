"""From what the NVML child says to events: only changes, only what lasts, nothing of garbage. Pure."""

from collections.abc import Iterable, Mapping

from health.events import Hint, Identity, PciAddress, Quantity, Reading, What, Xid
from health.nvml_messages import Device, Happened, Ready, Values

SUSTAINED_ROUNDS = 3
"""A clock that slows down for less is no news: it happens at every change of load."""
LASTING_REASONS = 0x8 | 0x20 | 0x40 | 0x80
UNKNOWN_ERROR = 999
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

Key = tuple[PciAddress | None, Quantity]


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
        self._slow_rounds: dict[PciAddress, int] = {}
        self._unknown_before: dict[PciAddress, bool] = {}
        self.garbage = 0
        """Answers that were not believed."""
        self.restart_wanted = False
        """An unknown error may be the child's own: another child is asked before it is told."""

    def ready(self, message: Ready) -> list[What]:
        """Which boards are where, and how many are missing."""
        events: list[What] = []
        for board in message.boards:
            device = PciAddress(*board.device)
            identity = Identity(device, board.uuid, board.serial)
            if self._identities.get(device) != identity and (board.uuid or board.serial):
                self._identities[device] = identity
                events.append(identity)
        if not self._fixed:
            self.expected = max(self.expected, len(message.boards))
        missing = max(0, self.expected - len(message.boards))
        events += self._changed([(None, Quantity.DEVICES_MISSING, missing)])
        return events

    def values(self, message: Values) -> list[What]:
        """What changed about one GPU."""
        device = _address(message.device)
        self.garbage += message.implausible
        error = self._error(device, message.error)
        readings: list[tuple[PciAddress | None, Quantity, int | None]] = []
        if error is not None:
            readings.append((device, Quantity.DEVICE_ERROR, error))
        for name, value in message.values.items():
            if name not in _QUANTITIES:
                self.garbage += 1
                continue
            quantity = Quantity(name)
            if quantity is Quantity.CLOCKS_EVENT_REASONS:
                value = self._lasting(device, value)
            # A GPU that fails its calls has not changed its other values.
            if value is None and (message.error or (device, quantity) in self._told):
                continue
            readings.append((device, quantity, value))
        return self._changed(readings)

    def happened(self, message: Happened) -> tuple[list[What], bool]:
        """An event of NVML, and whether to ask all GPUs at once."""
        device = _address(message.device)
        if message.kind != _XID:
            name = _HINTS.get(message.kind)
            if name is None:
                return [], True
            return [Hint(name, device, f"NVML event 0x{message.kind:x}")], True
        if not 0 < message.content < 100_000:
            self.garbage += 1
            return [], True
        xid = Xid(
            device,
            message.content,
            gpu_instance=message.gpu_instance,
            compute_instance=message.compute_instance,
        )
        return [xid], True

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
        return self._changed(readings)

    def _error(self, device: PciAddress, error: int) -> int | None:
        if error != UNKNOWN_ERROR:
            self._unknown_before.pop(device, None)
            return error
        if self._unknown_before.get(device):
            return error
        self._unknown_before[device] = True
        self.restart_wanted = True
        return None

    def _lasting(self, device: PciAddress, reasons: int | None) -> int | None:
        """The reasons for slow clocks once they lasted, 0 before."""
        slow = (reasons or 0) & LASTING_REASONS
        rounds = self._slow_rounds.get(device, 0) + 1 if slow else 0
        self._slow_rounds[device] = rounds
        if reasons is None:
            return None
        return slow if rounds >= SUSTAINED_ROUNDS else 0

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


def _address(device: Device) -> PciAddress:
    return PciAddress(*device)
