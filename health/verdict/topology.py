"""How the GPUs of a node hang together, as NVML tells it."""

from collections.abc import Mapping

import msgspec

from health.events import FarEnd, PciAddress, Wiring

_AMPERE, _HOPPER = 7, 9


class Topology(msgspec.Struct, frozen=True):
    """What is known of the node's GPUs. Empty = nothing is known: each GPU stands for itself."""

    reset_together: tuple[tuple[PciAddress, ...], ...] = ()
    """Groups that the hardware resets only as a whole (boards with NVSwitch, A100 without MIG)."""
    busy: tuple[PciAddress, ...] = ()
    """GPUs whose jobs nobody will ask to leave before a reset."""

    def reset_domain(self, device: PciAddress) -> tuple[PciAddress, ...]:
        """The GPUs that a reset of this one takes along, itself among them."""
        for group in self.reset_together:
            if device in group:
                return group
        return (device,)

    def others_busy(self, device: PciAddress) -> bool:
        """Whether a reset of this GPU would take jobs of others along."""
        return any(each in self.busy for each in self.reset_domain(device) if each != device)


def of_wirings(wirings: Mapping[PciAddress, Wiring]) -> Topology:
    """What NVML told of the wiring, as groups that reset together.

    Up to Hopper GPUs on switches belong together, and up to Ampere those that are linked directly;
    later ones, and divided ones, reset alone. Nobody is busy: who follows a verdict drains first.
    """
    groups: list[set[PciAddress]] = []
    tied = {device: wiring for device, wiring in wirings.items() if not wiring.divided}
    switched = {
        device
        for device, wiring in tied.items()
        if (wiring.generation or _HOPPER + 1) <= _HOPPER
        and any(link.kind is FarEnd.SWITCH for link in wiring.links)
    }
    groups.append(switched)
    for device, wiring in tied.items():
        if (wiring.generation or _HOPPER + 1) > _AMPERE:
            continue
        peers = {
            link.device
            for link in wiring.links
            if link.kind is FarEnd.GPU and link.device is not None and link.device in tied
        }
        groups.append({device} | peers)
    return Topology(reset_together=tuple(_joined(groups)))


def _joined(groups: list[set[PciAddress]]) -> list[tuple[PciAddress, ...]]:
    """Groups with a member in common are one; those of one are none."""
    joined: list[set[PciAddress]] = []
    for group in groups:
        touching = [other for other in joined if other & group]
        joined = [other for other in joined if not other & group]
        joined.append(group.union(*touching))
    return sorted(tuple(sorted(group)) for group in joined if len(group) > 1)
