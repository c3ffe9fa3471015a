"""The rows of the catalogue's tables."""

from enum import StrEnum

import msgspec

from health.actions import Action, Drain
from health.catalogue.driver import DriverVersion
from health.events import Severity


class Cause(StrEnum):
    """Where a fault of this code comes from as a rule."""

    APPLICATION = "application"
    DRIVER = "driver"
    SOFTWARE = "software"
    FIRMWARE = "firmware"
    ENGINE = "engine"
    HARDWARE = "hardware"
    MEMORY = "memory"
    LINK = "link"
    BUS = "bus"
    POWER = "power"
    SECONDARY = "secondary"
    """The echo of another fault."""
    DETAIL = "detail"
    """A further line of another report."""
    INFORMATION = "information"
    RETIRED = "retired"
    """No longer printed; a line with it has another meaning nobody has settled."""


class Decode(StrEnum):
    """How the text of a line refines its code."""

    NONE = ""
    RECOVERY_ACTION = "recovery_action"
    NVLINK5 = "nvlink5"
    REGISTERS = "registers"
    RETIREMENT = "retirement"
    MMU_FAULT = "mmu_fault"
    CAUSED_BY = "caused_by"


class XidRow(msgspec.Struct, frozen=True):
    """One Xid."""

    code: int
    mnemonic: str
    meaning: str
    action: Action
    drain: Drain
    cause: Cause
    decode: Decode
    generations: tuple[str, ...]
    since: DriverVersion | None
    recovery_since: DriverVersion | None
    """The driver from which this Xid sets the recovery action (154, field 230); None = never."""
    note: str
    source: str


class SXidSeverity(StrEnum):
    """What the switch driver prints with a code."""

    FATAL = "fatal"
    NON_FATAL = "non_fatal"
    BY_LINE = "by_line"
    """Decided at run time: only the tag in the line tells."""
    UNTAGGED = "untagged"
    UNPRINTED = "unprinted"


class SXidRow(msgspec.Struct, frozen=True):
    """One meaning of an SXid; a code that was used again has a row for each meaning."""

    code: int
    name: str
    text: str
    severity: SXidSeverity
    scope: str
    action: Action
    """Without a tag in the line."""
    watch: bool
    """False for good news, and for what every start prints: raises no suspicion."""
    since: DriverVersion | None
    until: DriverVersion | None
    note: str
    source: str

    def printed_by(self, driver: DriverVersion) -> bool:
        """True when this driver means this row by the code."""
        after = self.since is None or driver >= self.since
        return after and (self.until is None or driver < self.until)


class Resolution(StrEnum):
    """What the NVLink5 sheet says to do."""

    NONE = "none"
    RESET_GPU = "reset_gpu"
    WAIT = "wait"
    """For the recovery action that the driver prints next."""


class Blame(StrEnum):
    """On which side of an NVLink5 fault to look."""

    DEVICE = "device"
    LINK = "link"
    PEER = "peer"
    USER = "user"
    HOST = "host"
    SECONDARY = "secondary"
    NOBODY = "nobody"


class Mask(msgspec.Struct, frozen=True):
    """Bits that a register word must have: `word & care == want`."""

    care: int
    want: int

    def matches(self, word: int) -> bool:
        """Whether the word has the bits."""
        return word & self.care == self.want


class NvlinkRow(msgspec.Struct, frozen=True):
    """One row of the NVLink5 sheet. Masks and names are those before (v1) and since (v2) R575."""

    xid: int
    unit_v1: str
    unit_v2: str
    mask_v1: Mask
    mask_v2: Mask
    statuses: tuple[int, ...]
    """Error-status words that the row is for; empty = any."""
    resolution: Resolution
    severity: Severity
    raised_mask_v1: Mask | None
    raised_mask_v2: Mask | None
    raised_resolution: Resolution | None
    """What holds instead when the first word also has these bits."""
    blame: Blame
    note: str
    source: str


class RecoveryRow(msgspec.Struct, frozen=True):
    """One value of the recovery action that the driver computes for a GPU."""

    code: int
    name: str
    action: Action
    drain: Drain
    words: str
    words_since_595_84: str
    note: str
    source: str
