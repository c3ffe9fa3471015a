"""What the NVML child tells the daemon: one JSON object a line. The daemon trusts none of it blindly."""

import msgspec

Device = tuple[int, int, int]
"""PCI domain, bus and device."""

NODE_FIELDS = 256
"""More values than this in one message are garbage."""


class Board(msgspec.Struct, frozen=True):
    """A GPU that answers."""

    device: Device
    uuid: str | None = None
    serial: str | None = None
    vbios: str | None = None


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """NVML is initialised."""

    driver: str | None
    boards: tuple[Board, ...]
    silent: dict[str, int] = {}
    """GPUs that NVML counts and that gave no handle: index to error."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """NVML as a whole does not work; the child ends."""

    call: str
    error: int


class Asking(msgspec.Struct, frozen=True, tag="asking"):
    """What comes next is about this GPU: if nothing comes, it is the one that hangs."""

    device: Device


class Values(msgspec.Struct, frozen=True, tag="values"):
    """What one GPU answered. None = it cannot tell."""

    device: Device
    error: int
    """The gravest error that a call for this GPU ended with, 0 when there was none."""
    values: dict[str, int | None]
    """By the names of `Quantity`."""
    counters: dict[str, int]
    """Counts that are shown and put into tickets; their growth is judged by people."""
    implausible: int = 0
    """Answers that no driver gives, taken as None."""


class Happened(msgspec.Struct, frozen=True, tag="happened"):
    """An event of NVML, of the types of its header."""

    device: Device
    kind: int
    content: int
    uptime: float
    gpu_instance: int | None = None
    compute_instance: int | None = None


class Done(msgspec.Struct, frozen=True, tag="done"):
    """All GPUs were asked."""

    event_wait_seconds: float
    """Since the wait for events last returned."""


Message = Ready | Failed | Asking | Values | Happened | Done

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Message).decode
