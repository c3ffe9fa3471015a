"""What sources report, whatever the source: one event model for kernel log, NVML and trace events.

An `Event` says where and when something was seen; its `what` says what. Events are values: they can
be written to a ledger as JSON, read back and folded again to the same verdict.
"""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from health.actions import Action


class PciAddress(NamedTuple):
    """Where a device is on the PCI bus. The function is left out: GPUs and switches have only 0."""

    domain: int
    bus: int
    device: int

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.0"


class Source(StrEnum):
    """Who saw an event."""

    KMSG = "kmsg"
    JOURNAL = "journal"
    TRACE = "trace"
    NVML = "nvml"
    REPLAY = "replay"
    CLUSTER = "cluster"
    """The scheduler and the operator: ends of jobs, actions taken."""


class Severity(StrEnum):
    """The tag that the driver itself prints into NVLink and switch lines."""

    FATAL = "fatal"
    LINK_FATAL = "link_fatal"
    NON_FATAL = "non_fatal"
    CORRECTABLE = "correctable"

    @property
    def fatal(self) -> bool:
        """True for a fault that the link or device does not survive."""
        return self in (Severity.FATAL, Severity.LINK_FATAL)


class Xid(msgspec.Struct, frozen=True, tag="xid", gc=False):
    """A fault report of the GPU driver."""

    device: PciAddress
    code: int
    message: str = ""
    pid: int | None = None
    process: str | None = None
    """The kernel's short name of the process that made the last call, not always the culprit."""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    """The MIG slice concerned, when the line names one."""


class SXid(msgspec.Struct, frozen=True, tag="sxid", gc=False):
    """A fault report of the NVSwitch driver."""

    device: PciAddress
    code: int
    switch: int | None = None
    severity: Severity | None = None
    link: int | None = None
    text: str = ""
    first: bool = False
    """The first error of a tree of errors."""
    cut: bool = False
    """The line ends before the tag, so that even a further line of a report may look like this."""


class SXidDetail(msgspec.Struct, frozen=True, tag="sxid_detail", gc=False):
    """A further line of the switch report before it: belongs to it and counts for nothing."""

    device: PciAddress
    code: int
    switch: int | None = None
    text: str = ""


class FallenOff(msgspec.Struct, frozen=True, tag="fallen_off", gc=False):
    """A GPU that does not answer on the bus any more, said without an Xid: means Xid 79."""

    device: PciAddress | None
    text: str = ""


class Identity(msgspec.Struct, frozen=True, tag="identity", gc=False):
    """Which board is in which place. The serial line names no place: it follows the UUID's."""

    device: PciAddress | None = None
    uuid: str | None = None
    serial: str | None = None
    vbios: str | None = None
    slot: str | None = None
    """Where the board sits, as people find it: chassis, slot, module."""
    driver: str | None = None


class FarEnd(StrEnum):
    """What an NVLink ends at."""

    GPU = "gpu"
    SWITCH = "switch"
    OTHER = "other"


class LinkEnd(msgspec.Struct, frozen=True, gc=False):
    """One NVLink and what is at its other end."""

    link: int
    kind: FarEnd
    device: PciAddress | None = None


class Wiring(msgspec.Struct, frozen=True, tag="wiring"):
    """How one GPU hangs together with others, as NVML tells it and not as its product is named."""

    device: PciAddress
    generation: int | None = None
    """NVML's number of the architecture, growing with the years."""
    divided: bool | None = None
    """True while it is divided into slices (MIG)."""
    links: tuple[LinkEnd, ...] = ()


class Counters(msgspec.Struct, frozen=True, tag="counters"):
    """Error counters of one GPU at a moment: what they were before a fault and after it."""

    device: PciAddress
    values: dict[str, int]


class Watching(msgspec.Struct, frozen=True, tag="watching", gc=False):
    """From now on a source sees what happens, or does not: only then can it miss something."""

    source: Source
    watches: bool


class Hint(msgspec.Struct, frozen=True, tag="hint", gc=False):
    """A warning without an Xid: raises suspicion, never acts."""

    name: str
    device: PciAddress | None = None
    text: str = ""


class Quantity(StrEnum):
    """What is read from NVML. A value of None means the GPU or driver cannot tell."""

    RECOVERY_ACTION = "recovery_action"
    REMAP_PENDING = "remap_pending"
    REMAP_FAILURE = "remap_failure"
    REMAPPED_UNCORRECTABLE = "remapped_uncorrectable"
    RETIRED_PAGES = "retired_pages"
    RETIREMENT_PENDING = "retirement_pending"
    SRAM_THRESHOLD_EXCEEDED = "sram_threshold_exceeded"
    REPAIR_PENDING = "repair_pending"
    MEMORY_UNREPAIRABLE = "memory_unrepairable"
    CLOCKS_EVENT_REASONS = "clocks_event_reasons"
    THERMAL_MARGIN = "thermal_margin"
    """Degrees below the slowdown. Some GPUs answer 0 or less for ever: shown, never judged."""
    FABRIC_STATE = "fabric_state"
    FABRIC_STATUS = "fabric_status"
    """The NVML error that joining the fabric ended with, 0 when it has joined."""
    FABRIC_HEALTH_MASK = "fabric_health_mask"
    FABRIC_HEALTH = "fabric_health"
    """The driver's own summary of the mask: 1 well, 2 not, 3 with less than its capacity."""
    PCIE_LANES_LOST = "pcie_lanes_lost"
    """Lanes of the bus that GPU and board could use together and do not."""
    PCIE_GENERATIONS_LOST = "pcie_generations_lost"
    """How much slower than possible the bus runs while the GPU works; idle ones slow it down."""
    LINKS_DOWN = "links_down"
    """NVLinks that should be up (as NVML counts them, not the product's name) and are not."""
    DEVICES_MISSING = "devices_missing"
    """GPUs that should be there and are not; of the node."""
    DEVICE_ERROR = "device_error"
    """The NVML error that a call for this GPU ended with, 0 when it answered."""
    MONITOR_ERROR = "monitor_error"
    """0 when NVML as a whole answers, an error when it does not; says nothing about the hardware."""
    MONITOR_HANG = "monitor_hang"
    """Seconds since a call into NVML should have returned; 0 when it did."""


class Reading(msgspec.Struct, frozen=True, tag="reading", gc=False):
    """One value read from NVML. Only changes need to be reported, and the first of each boot."""

    quantity: Quantity
    value: int | None
    device: PciAddress | None = None


class Ending(StrEnum):
    """How a job left its GPUs."""

    COMPLETED = "completed"
    FAILED = "failed"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    EVICTED = "evicted"

    @property
    def by_us(self) -> bool:
        """True when the end was decided outside of the job, or it simply was done."""
        return self is not Ending.FAILED


class JobEnded(msgspec.Struct, frozen=True, tag="job_ended"):
    """A job's processes on this node have ended or are being ended."""

    job: str
    how: Ending
    devices: tuple[PciAddress, ...] = ()
    """The GPUs it had; none named = any of the node."""
    pids: tuple[int, ...] = ()


class ActionTaken(msgspec.Struct, frozen=True, tag="action_taken"):
    """Somebody carried out an action here."""

    action: Action
    succeeded: bool
    device: PciAddress | None = None
    incident: str = ""


class Verified(msgspec.Struct, frozen=True, tag="verified"):
    """The checks after a repair have passed: for one GPU, or for the whole node."""

    device: PciAddress | None = None


class RecordsLost(msgspec.Struct, frozen=True, tag="records_lost", gc=False):
    """The source had to skip records; what they said is unknown."""

    count: int


Fault = Xid | SXid | SXidDetail | FallenOff | Identity | Hint
What = (
    Fault | Reading | Wiring | Counters | Watching | JobEnded | ActionTaken | Verified | RecordsLost
)


class Operational(msgspec.Struct, frozen=True):
    """What newer drivers say about an event beside its Xid; all of it guesswork on older ones."""

    trace: int | None = None
    """Events of one cause share it."""
    primary: bool = False
    propagated: bool = False
    uncontained: bool = False
    threshold_exceeded: bool = False
    simulated: bool = False


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something seen on a node.

    `at` is in seconds on the node's own line of time: within a boot it advances with the monotonic
    clock whatever the wall clock does, and a later boot lies later. It need not start at any
    particular moment.
    """

    at: float
    what: What
    boot: str = ""
    source: Source = Source.REPLAY
    sequence: int | None = None
    """The source's own number of the record; a gap means lost records."""
    monotonic_us: int | None = None
    """Microseconds since boot, when the source knows."""
    text: str = ""
    """The line itself, for people and tickets."""
    operational: Operational | None = None
