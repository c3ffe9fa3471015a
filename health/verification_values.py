"""Which values of NVML are not those of a healthy GPU. Pure."""

from collections.abc import Mapping

from health.events import Quantity

# A value other than these keeps a node out; None = this GPU or driver does not tell.
WELL = {
    Quantity.RECOVERY_ACTION: (0, None),
    Quantity.REMAP_PENDING: (0, None),
    Quantity.REMAP_FAILURE: (0, None),
    Quantity.RETIREMENT_PENDING: (0, None),
    Quantity.REPAIR_PENDING: (0, None),
    Quantity.MEMORY_UNREPAIRABLE: (0, None),
    Quantity.SRAM_THRESHOLD_EXCEEDED: (0, None),
    Quantity.LINKS_DOWN: (0, None),
    Quantity.FABRIC_STATE: (0, 3, None),
    Quantity.FABRIC_STATUS: (0, None),
    Quantity.FABRIC_HEALTH: (0, 1, None),
}


def value_faults(values: Mapping[str, int | None]) -> list[str]:
    """Which values are not as those of a healthy GPU."""
    return [
        f"{quantity.value} is {values.get(quantity.value)}"
        for quantity, well in WELL.items()
        if values.get(quantity.value) not in well
    ]
