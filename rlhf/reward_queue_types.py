"""What goes into the reward queue and what comes out of it: slots, batches, waits, limits."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from rlhf.identity import Envelope, SampleId, Score
from rlhf.missing import MissingPolicy


class Slot(NamedTuple):
    """A place in the stream to be filled with a response. All of it is fixed at dispatch.

    The prompt is that of `group_id` for draw 0, else one of the reserve stream at
    `identity.reserve_key(seed, first_seq, draw)`; the policy is that of `policy_version`, never a
    newer one; the sampling seed is `identity.sampling_seed(seed, seq, draw)`.
    """

    seq: int
    draw: int
    batch: int
    group_id: int
    first_seq: int
    policy_version: int

    @property
    def sample_id(self) -> SampleId:
        return SampleId(self.seq, self.draw)


class Claim(NamedTuple):
    """A sample to be graded: the envelope to echo, what rollout handed in, and whether it hedges."""

    envelope: Envelope
    payload: bytes
    hedge: bool


class Graded(msgspec.Struct, frozen=True, array_like=True):
    """A sample with its reward, as the trainer gets it. `payload` is what rollout handed in."""

    envelope: Envelope
    score: Score
    payload: bytes = b""
    worker: str = ""
    claimed_at: float = 0.0
    answered_at: float = 0.0


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """The samples of one update, by sequence. Only the last of a stream may be short."""

    number: int
    policy_version: int
    samples: list[Graded]
    order_digest: str


class EndOfStream(msgspec.Struct, frozen=True):
    """All `total` samples were delivered."""

    total: int


class RunFailure(msgspec.Struct, frozen=True):
    """The run cannot go on. `sample` is None when no single slot is to blame."""

    why: str
    sample: SampleId | None = None


class Stage(StrEnum):
    """Where a sample is on its way."""

    POLICY = "policy"
    """Waits for its policy version."""
    DISPATCH = "dispatch"
    """Nobody has taken the slot."""
    ROLLOUT = "rollout"
    CLAIM = "claim"
    """Has a response, and no grader has taken it."""
    GRADING = "grading"
    ORDER = "order"
    """Graded, and waits for those before it."""
    TRAINING = "training"


class Wait(NamedTuple):
    """One thing that somebody waits for: which samples, since when, and who holds them."""

    stage: Stage
    samples: tuple[SampleId, ...]
    since: float
    holder: str

    def sentence(self, now: float) -> str:
        """The wait in words, e.g. `grading of s17 by http-3 since 41.2 s`."""
        shown = ", ".join(map(str, self.samples[:5]))
        more = f" and {len(self.samples) - 5} more" if len(self.samples) > 5 else ""
        holder = f" by {self.holder}" if self.holder else ""
        return f"{self.stage} of {shown}{more}{holder} since {now - self.since:.1f} s"


class Hedge(msgspec.Struct, frozen=True):
    """When a slow request is sent a second time: beyond a measured percentile of the latencies.

    `after_samples` latencies are measured first; at most the fraction `budget` of all requests are
    hedges. `budget` 0 = never.
    """

    percentile: float = 0.95
    after_samples: int = 64
    budget: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.percentile < 1:
            raise ValueError(f"hedge percentile is {self.percentile}; it must be between 0 and 1")
        if not 0 <= self.budget <= 1:
            raise ValueError(f"hedge budget is {self.budget}; it must be between 0 and 1")


class Limits(msgspec.Struct, frozen=True):
    """Deadlines in seconds, and what is done when they pass."""

    grading_seconds: float = 60.0
    rollout_seconds: float = 600.0
    stall_seconds: float = 120.0
    """Nothing moved for so long: reported, with the names of what is waited for."""
    hedge: Hedge = Hedge()
    missing: MissingPolicy = MissingPolicy()

    def __post_init__(self) -> None:
        for name in ("grading_seconds", "rollout_seconds", "stall_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be more than 0")


class Outcome(StrEnum):
    """What became of something handed in."""

    APPLIED = "Applied"
    DUPLICATE = "Duplicate"
    LATE = "Late"
    CONFLICT = "Conflict"
    FOREIGN = "Foreign"
    UNKNOWN = "Unknown"
    MISMATCH = "Mismatch"
    MISSING = "Missing"
    """It was taken for a missing reward (e.g. NaN), and the policy for its reason was followed."""


class Expired(NamedTuple):
    """An attempt whose deadline has passed: whoever works on it is to be stopped."""

    envelope: Envelope
    worker: str


class Stall(NamedTuple):
    """Nothing has moved since `since`."""

    since: float
    waits: tuple[Wait, ...]


class Tick(NamedTuple):
    """What time has brought about."""

    expired: Sequence[Expired]
    stall: Stall | None
    next_at: float | None
    """When to look again; None: when something else happens."""


class Checkpoint(msgspec.Struct, frozen=True):
    """What a checkpoint keeps of the stream (`queue.json`): a place in the journal.

    `record` is the number of the first record after it; `trained` the updates in the weights.
    """

    run_id: str
    record: int
    trained: int
    order_digest: str
