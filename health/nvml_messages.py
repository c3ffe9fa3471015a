"""What the NVML child tells the daemon: one JSON object a line. The daemon trusts none of it blindly."""

import msgspec

Device = tuple[int, int, int]
"""PCI domain, bus and device."""

SWITCH, GPU = "switch", "gpu"


class End(msgspec.Struct, frozen=True, array_like=True):
    """What one NVLink ends at."""

    link: int
    kind: str
    device: Device | None = None


class Board(msgspec.Struct, frozen=True):
    """A GPU that answers."""

    device: Device
    uuid: str | None = None
    serial: str | None = None
    vbios: str | None = None
    slot: str | None = None
    """Where it sits, as people find it."""
    generation: int | None = None
    divided: bool | None = None
    ends: tuple[End, ...] = ()


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """NVML is initialised."""

    driver: str | None
    boards: tuple[Board, ...]
    silent: dict[str, int] = {}
    """GPUs that NVML counts and that gave no handle: index to error."""
    listens: bool = False
    """Whether Xids of all these boards will be told as they happen."""


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
    links_active: int | None = None
    """NVLinks that are up, None for a GPU without any."""
    links_there: int = 0


class Traits(msgspec.Struct, frozen=True):
    """What the newest drivers say of an event beside its Xid."""

    severity: int
    attributes: int
    group_attributes: int = 0
    trace: int | None = None
    module: str | None = None
    code: int = 0


OPERATIONAL = 0
"""The kind of an event of the newest drivers that comes without an Xid."""


class Happened(msgspec.Struct, frozen=True, tag="happened"):
    """An event of NVML, of the types of its header."""

    device: Device
    kind: int
    content: int
    uptime: float
    gpu_instance: int | None = None
    compute_instance: int | None = None
    traits: Traits | None = None


class Done(msgspec.Struct, frozen=True, tag="done"):
    """All GPUs were asked."""

    event_wait_seconds: float
    """Since the wait for events last returned."""
    driver: str | None = None
    """The driver's version when the beginning could not tell it."""


Message = Ready | Failed | Asking | Values | Happened | Done

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Message).decode
