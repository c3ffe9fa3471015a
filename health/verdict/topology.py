"""How the GPUs of a node hang together, as NVML tells it."""

import msgspec

from health.events import PciAddress


class Topology(msgspec.Struct, frozen=True):
    """What is known of the node's GPUs. Empty = nothing is known: each GPU stands for itself."""

    reset_together: tuple[tuple[PciAddress, ...], ...] = ()
    """Groups that the hardware resets only as a whole (boards with NVSwitch, A100 without MIG)."""
    busy: tuple[PciAddress, ...] = ()
    """GPUs with jobs on them."""

    def reset_domain(self, device: PciAddress) -> tuple[PciAddress, ...]:
        """The GPUs that a reset of this one takes along, itself among them."""
        for group in self.reset_together:
            if device in group:
                return group
        return (device,)

    def others_busy(self, device: PciAddress) -> bool:
        """Whether a reset of this GPU would take jobs of others along."""
        return any(each in self.busy for each in self.reset_domain(device) if each != device)
