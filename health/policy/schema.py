"""The policy: how observations are grouped, what explains what, when repetition changes the verdict.

Written as YAML, read by `health.policy.yaml_text`. Every duration is in seconds.
"""

from enum import StrEnum
from typing import Annotated

import msgspec

from health.actions import Action

Seconds = Annotated[float, msgspec.Meta(gt=0, le=366 * 86_400)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_]{1,64}\Z")]
Code = Annotated[
    str, msgspec.Meta(pattern=r"^(?:\*|(?:xid|sxid):(?:\*|\d{1,5}(?:-\d{1,5})?)|(?:nvml|hint):[a-z_*]{1,64})\Z")
]  # fmt: skip
Codes = Annotated[tuple[Code, ...], msgspec.Meta(min_length=1, max_length=256)]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the file; a key that it does not know is refused."""


class Grouping(_Section, frozen=True, forbid_unknown_fields=True):
    """Which observations are one incident."""

    silence_seconds: Seconds
    """After so long without a word about a GPU, a new fault of it is a new incident."""
    quiet_seconds: Seconds
    """The same for a GPU that still waits for its repair: what goes on is no repetition."""
    same_cause_seconds: Seconds
    """The same fault on several GPUs within this time has one cause."""
    source_match_seconds: Seconds
    """One event seen by two sources is told by both within this time."""
    watch_seconds: Seconds
    """A suspicion ends after so long without anything new."""
    history_seconds: Seconds
    """What is older counts for nothing."""


class Jobs(_Section, frozen=True, forbid_unknown_fields=True):
    """How faults and ends of jobs belong together."""

    teardown_seconds: Seconds
    """Channels that are taken down so near to the end of a job belong to that end."""
    blame_seconds: Seconds
    """A job that ends so soon after a fault on its GPU was hit by it."""


class Limits(_Section, frozen=True, forbid_unknown_fields=True):
    """Limits of counters."""

    remapped_rows: Count
    """Rows replaced for uncorrectable errors that a board may have."""
    retired_pages: Count
    """Retired memory pages from which a board is for the vendor."""


class Where(StrEnum):
    """Where the cause of an effect is."""

    SAME_GPU = "same_gpu"
    OTHER_DEVICE = "other_device"
    NODE = "node"


class CauseRule(_Section, frozen=True, forbid_unknown_fields=True):
    """A fault that another one explains."""

    name: Name
    effects: Codes
    causes: Codes
    where: Where
    within_seconds: Seconds
    """The effect comes at most so long after the cause."""
    ahead_seconds: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 2.0
    """It may also be reported so long before it."""
    victim: bool = False
    """True when nothing has to be done about the effect itself."""
    disabled: bool = False
    """Switches a shipped rule off (`off` itself is a truth value in YAML)."""


class Counted(StrEnum):
    """What a threshold counts."""

    EVENTS = "events"
    INCIDENTS = "incidents"
    JOBS = "jobs"
    GPUS = "gpus"
    BOOTS = "boots"


class Scope(StrEnum):
    """Over what a threshold counts."""

    GPU = "gpu"
    NODE = "node"


class Threshold(_Section, frozen=True, forbid_unknown_fields=True):
    """A number of repetitions from which a fault calls for something else."""

    name: Name
    codes: Codes
    counted: Counted
    at_least: Count
    window_seconds: Seconds
    action: Action
    why: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    scope: Scope = Scope.GPU
    variant: str = ""
    """Only faults of this kind; empty = any."""
    same_place: bool = False
    """Only faults at one place of the GPU: one link, one GPC and TPC."""
    others_quiet: bool = False
    """Only while no other GPU of the node shows the same fault."""
    disabled: bool = False


class Override(_Section, frozen=True, forbid_unknown_fields=True):
    """What this site does about a code, whatever tag and catalogue say; the driver's number stands."""

    code: Annotated[
        str, msgspec.Meta(pattern=r"^(?:xid|sxid):\d{1,5}\Z|^(?:nvml|hint):[a-z_]{1,64}\Z")
    ]
    action: Action
    reason: Annotated[str, msgspec.Meta(min_length=3, max_length=300)]


class Policy(_Section, frozen=True, forbid_unknown_fields=True):
    """A whole policy."""

    grouping: Grouping
    jobs: Jobs
    limits: Limits
    causes: tuple[CauseRule, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    overrides: tuple[Override, ...] = ()


class CodeSet:
    """Which codes a rule is for: `xid:79`, ranges, and `*`."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._exact: set[str] = set()
        self._kinds: set[str] = set()
        self._all = "*" in patterns
        for pattern in patterns:
            kind, _, number = pattern.partition(":")
            if number == "*":
                self._kinds.add(kind)
                continue
            first, _, last = number.partition("-")
            if last:
                self._exact.update(f"{kind}:{code}" for code in range(int(first), int(last) + 1))
            else:
                self._exact.add(pattern)

    def __contains__(self, code: str) -> bool:
        return self._all or code in self._exact or code.partition(":")[0] in self._kinds

    def meets(self, other: "CodeSet") -> bool:
        """Whether a code could be in both."""
        if self._all or other._all:
            return True
        named = self._exact & other._exact or self._kinds & other._kinds
        return bool(named) or any(
            code.partition(":")[0] in one._kinds
            for one, two in ((self, other), (other, self))
            for code in sorted(two._exact)
        )
