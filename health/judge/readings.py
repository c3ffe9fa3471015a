"""What one NVML reading calls for: thresholds from the policy, and what is no fault at all.

A value of None (not supported, symbol missing, garbage) never is a symptom. That the monitor itself
fails says nothing about the hardware.
"""

from collections.abc import Callable

from health.actions import Action, Drain
from health.catalogue.rows import Cause
from health.catalogue.tables import Catalogue
from health.events import Quantity, Reading
from health.judge.judgement import Judgement
from health.policy.schema import Limits

Verdict = tuple[Action, str]

# Bits of the clocks' event reasons that mean the hardware slowed itself down. The others (idle, a
# power cap, an application's setting) are normal.
HARDWARE_SLOWDOWN = 0x8 | 0x40 | 0x80
FABRIC_READY = 3
_MASK_FAULT = 1  # of each 2-bit field of the fabric's health mask; 2 means well, 0 not supported
_FABRIC_FAULTS = (
    (0, "degraded bandwidth"),
    (2, "a route that recovers"),
    (4, "an unhealthy route"),
    (6, "an access time-out"),
)
_CONFIGURATION_AT, _CONFIGURATION_RIGHT = 8, 1  # 4 bits: 0 not supported, 1 right, more are reasons
_FABRIC_UNHEALTHY, _FABRIC_LIMITED = 2, 3
_GPU_IS_LOST, _RESET_REQUIRED, _VERSION_MISMATCH = 15, 16, 18


def judge(reading: Reading, catalogue: Catalogue, limits: Limits) -> Judgement | None:
    """What a reading calls for; None when it says that all is well, or cannot be read."""
    value = reading.value
    if value is None or value < 0:
        return None
    if reading.quantity is Quantity.RECOVERY_ACTION:
        return _recovery(value, catalogue)
    rule = _RULES.get(reading.quantity)
    found = rule(value, limits) if rule is not None else None
    if found is None:
        return None
    action, why = found
    monitor = reading.quantity in _OF_THE_MONITOR
    return Judgement(
        code=f"nvml:{reading.quantity}",
        action=action,
        rule=reading.quantity.value,
        why=why,
        cause=Cause.INFORMATION if monitor else Cause.HARDWARE,
        drain=Drain.GPU if action is Action.RESET_GPU else Drain.NONE,
    )


_OF_THE_MONITOR = (Quantity.MONITOR_ERROR, Quantity.MONITOR_HANG)


def _recovery(value: int, catalogue: Catalogue) -> Judgement | None:
    known = catalogue.recovery_actions.get(value)
    if value == 0:
        return None
    name = known.name if known is not None else "not known"
    return Judgement(
        code="nvml:recovery_action",
        action=known.action if known is not None else Action.NONE,
        rule="recovery_number" if known is not None else "recovery_number_unknown",
        why=f"NVML reports recovery action {value} ({name})",
        cause=Cause.INFORMATION,
        variant=str(value),
        drain=known.drain if known is not None else Drain.NONE,
        by_number=known is not None,
        follows_driver=True,
    )


def _when(flag: str, action: Action) -> Callable[[int, Limits], Verdict | None]:
    def rule(value: int, limits: Limits) -> Verdict | None:
        del limits
        return (action, flag) if value else None

    return rule


def _remapped(value: int, limits: Limits) -> Verdict | None:
    if value <= limits.remapped_rows:
        return None
    return Action.HARDWARE_TICKET, (
        f"{value} rows were replaced for uncorrectable errors, more than {limits.remapped_rows}"
    )


def _retired(value: int, limits: Limits) -> Verdict | None:
    if value < limits.retired_pages:
        return None
    return Action.HARDWARE_TICKET, (
        f"{value} memory pages are retired, {limits.retired_pages} or more are for the vendor"
    )


def _clocks(value: int, limits: Limits) -> Verdict | None:
    del limits
    if not value & HARDWARE_SLOWDOWN:
        return None
    return Action.NONE, f"the hardware slows its clocks down (reasons 0x{value:x})"


def _fabric_state(value: int, limits: Limits) -> Verdict | None:
    del limits
    if value in (0, FABRIC_READY):
        return None
    return Action.NONE, f"the NVLink fabric is in state {value} and not ready"


def _fabric_status(value: int, limits: Limits) -> Verdict | None:
    del limits
    return (Action.NONE, f"joining the NVLink fabric ended with error {value}") if value else None


def _fabric_mask(value: int, limits: Limits) -> Verdict | None:
    del limits
    faulty = [name for place, name in _FABRIC_FAULTS if value >> place & 3 == _MASK_FAULT]
    if value >> _CONFIGURATION_AT & 0xF > _CONFIGURATION_RIGHT:
        faulty.append("wrong configuration")
    if not faulty:
        return None
    return Action.NONE, f"the fabric's health mask 0x{value:x} has {', '.join(faulty)}"


def _fabric_health(value: int, limits: Limits) -> Verdict | None:
    del limits
    if value not in (_FABRIC_UNHEALTHY, _FABRIC_LIMITED):
        return None
    word = "is not healthy" if value == _FABRIC_UNHEALTHY else "has less than its capacity"
    return Action.NONE, f"the driver says that the GPU's NVLink fabric {word}"


def _lanes(value: int, limits: Limits) -> Verdict | None:
    del limits
    if not value:
        return None
    return Action.NONE, f"the bus runs with {value} lanes less than GPU and board could use"


def _generations(value: int, limits: Limits) -> Verdict | None:
    del limits
    if not value:
        return None
    return Action.NONE, f"the bus runs {value} generations slower than possible, under load"


def _device_error(value: int, limits: Limits) -> Verdict | None:
    del limits
    return {
        _GPU_IS_LOST: (Action.REBOOT_NODE, "NVML says the GPU is lost, which is Xid 79"),
        _RESET_REQUIRED: (Action.RESET_GPU, "NVML says the GPU needs a reset"),
        _VERSION_MISMATCH: (
            Action.REBOOT_NODE,
            "the driver was replaced underneath: reload it or reboot, no fault of the hardware",
        ),
    }.get(value, (Action.NONE, f"NVML answers error {value} for this GPU") if value else None)


def _monitor(value: int, limits: Limits) -> Verdict | None:
    del limits
    if not value:
        return None
    return Action.NONE, "the monitor cannot read NVML; the hardware may well be healthy"


def _links(value: int, limits: Limits) -> Verdict | None:
    del limits
    return (Action.NONE, f"{value} NVLinks are down that should be up") if value else None


def _missing(value: int, limits: Limits) -> Verdict | None:
    del limits
    if not value:
        return None
    return Action.REBOOT_NODE, f"{value} of the node's GPUs are missing"


_RULES: dict[Quantity, Callable[[int, Limits], Verdict | None]] = {
    Quantity.REMAP_PENDING: _when("replaced memory rows wait for a reset", Action.RESET_GPU),
    Quantity.REMAP_FAILURE: _when("memory rows could not be replaced", Action.HARDWARE_TICKET),
    Quantity.REMAPPED_UNCORRECTABLE: _remapped,
    Quantity.RETIRED_PAGES: _retired,
    Quantity.RETIREMENT_PENDING: _when("retired pages wait for a reset", Action.RESET_GPU),
    Quantity.SRAM_THRESHOLD_EXCEEDED: _when(
        "on-chip memory has more errors than the vendor allows", Action.HARDWARE_TICKET
    ),
    Quantity.REPAIR_PENDING: _when("a repair of the chip waits for a reset", Action.RESET_GPU),
    Quantity.MEMORY_UNREPAIRABLE: _when("memory is beyond repair", Action.HARDWARE_TICKET),
    Quantity.CLOCKS_EVENT_REASONS: _clocks,
    Quantity.FABRIC_STATE: _fabric_state,
    Quantity.FABRIC_STATUS: _fabric_status,
    Quantity.FABRIC_HEALTH_MASK: _fabric_mask,
    Quantity.FABRIC_HEALTH: _fabric_health,
    Quantity.PCIE_LANES_LOST: _lanes,
    Quantity.PCIE_GENERATIONS_LOST: _generations,
    Quantity.LINKS_DOWN: _links,
    Quantity.DEVICES_MISSING: _missing,
    Quantity.DEVICE_ERROR: _device_error,
    Quantity.MONITOR_ERROR: _monitor,
    Quantity.MONITOR_HANG: _monitor,
}
