"""What may be done about a fault, least drastic first, and how a node stands.

The names are those of the remediation ladder; the numbers that the driver uses for its own wish are
in the catalogue. Standard library only, no input or output.
"""

from enum import StrEnum


class Action(StrEnum):
    """What a fault calls for."""

    NONE = "none"
    RESTART_APP = "restart_app"
    RESET_GPU = "reset_gpu"
    REBOOT_NODE = "reboot_node"
    HARDWARE_TICKET = "hardware_ticket"

    @property
    def severity(self) -> int:
        """0 for none, growing with what the action costs."""
        return _SEVERITY[self]

    @property
    def concerns_hardware(self) -> bool:
        """True when the GPU or node may not be given to jobs before it was carried out."""
        return _SEVERITY[self] >= _SEVERITY[Action.RESET_GPU]


_SEVERITY: dict[str, int] = {action: place for place, action in enumerate(Action)}


def gravest(actions: list[Action]) -> Action:
    """The most drastic of several actions, none when there is none."""
    return max(actions, key=_severity_of, default=Action.NONE)


def _severity_of(action: Action) -> int:
    return _SEVERITY[action]


class Standing(StrEnum):
    """How a GPU or node stands, in the words of NodeHealth."""

    HEALTHY = "Healthy"
    WATCH = "Watch"
    RESTART_APP = "RestartApp"
    RESET_GPU = "ResetGpu"
    REBOOT_NODE = "RebootNode"
    HARDWARE_TICKET = "HardwareTicket"


def standing(action: Action, *, watched: bool) -> Standing:
    """The standing that an action means; `watched` tells a quiet node from one under suspicion."""
    if action is Action.NONE:
        return Standing.WATCH if watched else Standing.HEALTHY
    return _STANDINGS[action]


_STANDINGS = {
    Action.RESTART_APP: Standing.RESTART_APP,
    Action.RESET_GPU: Standing.RESET_GPU,
    Action.REBOOT_NODE: Standing.REBOOT_NODE,
    Action.HARDWARE_TICKET: Standing.HARDWARE_TICKET,
}


class Drain(StrEnum):
    """Which jobs have to leave before the action."""

    NONE = "none"
    PEER_TO_PEER = "peer_to_peer"
    GPU = "gpu"
