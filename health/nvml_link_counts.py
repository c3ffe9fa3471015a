"""How many NVLinks of a GPU should be up: as many as once were, or as its siblings have. Pure.

What the product is called says nothing: a card without a bridge has links that are all down, and that
is as it should be.
"""

from collections.abc import Mapping

from health.events import PciAddress, Quantity


class LinkCounts:
    """Remembers what was up, over restarts too."""

    def __init__(self, told: Mapping[tuple[PciAddress | None, Quantity], int | None]) -> None:
        """`told` are earlier readings: a link that was told to be down is still missed."""
        self._missed = {
            device: value
            for (device, quantity), value in told.items()
            if quantity is Quantity.LINKS_DOWN and value
        }
        self._most: dict[PciAddress, tuple[int, int]] = {}

    def down(self, device: PciAddress, active: int | None, there: int) -> int | None:
        """How many links are down that should be up; None for a GPU without links."""
        if active is None:
            return None
        _, most = self._most.get(device, (there, 0))
        most = min(there, max(most, active + self._missed.pop(device, 0)))
        self._most[device] = (there, most)
        if not most:
            return 0
        alike = [up for links, up in self._most.values() if links == there]
        return max(alike) - active
