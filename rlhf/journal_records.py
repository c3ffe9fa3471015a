"""What the journal says: one record per thing that happened to a sample, a batch or the run.

Times `at`, `..._at` are seconds of one process's monotonic clock since its life began; `Started`
and `Resumed` begin a life. Digests are 32 hexadecimal digits. Records are only ever added to.
"""

from enum import StrEnum

import msgspec

from rlhf.identity import Shape
from rlhf.missing import Reason, Then

FORMAT = 1
"""Version of the records; a journal of a newer one is refused."""


class Ignored(StrEnum):
    """Why an answer or a response was counted and not applied."""

    DUPLICATE = "Duplicate"
    """The same answer once more."""
    LATE = "Late"
    """Of an attempt, a draw or a batch that is over."""
    CONFLICT = "Conflict"
    """Another value for a sample that has one; the first stays."""
    FOREIGN = "Foreign"
    """Of another run."""
    UNKNOWN = "Unknown"
    """For a slot that was never dispatched or has no response yet."""
    MISMATCH = "Mismatch"
    """For this slot, but computed on other tokens."""


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=True):
    """Base of all records."""


class Started(Record, frozen=True, tag="start"):
    """The first record. `began` is the time of day in ISO 8601, handed in."""

    shape: Shape
    began: str = ""
    format: int = FORMAT


class Resumed(Record, frozen=True, tag="resume"):
    """A new life after a restart: batches from `trained` on are delivered again."""

    trained: int
    life: int
    torn_bytes: int = 0
    began: str = ""


class Base(Record, frozen=True, tag="base"):
    """In place of everything about the batches below `trained`, which compaction removed."""

    trained: int
    order_digest: str
    life: int = 0
    dropped: dict[str, int] = {}
    """How often each thing but the usual happened among what was removed."""


class Submitted(Record, frozen=True, tag="sub"):
    """A response is there. `payload` is opaque to the queue: what training will need of it."""

    seq: int
    draw: int
    prompt_digest: str
    response_digest: str
    dispatched_at: float
    at: float
    payload: bytes = b""


class Answered(Record, frozen=True, tag="ans"):
    """The reward of a sample, by the attempt that won. `grader` and `worker` say who gave it."""

    seq: int
    draw: int
    attempt: int
    reward: float
    parts: dict[str, float]
    claimed_at: float
    at: float
    worker: str = ""
    hedged: bool = False


class Missed(Record, frozen=True, tag="miss"):
    """An attempt without a reward, or a slot without a response (`attempt` 0)."""

    seq: int
    draw: int
    attempt: int
    reason: Reason
    then: Then
    since: float
    at: float
    worker: str = ""
    detail: str = ""


class Redrawn(Record, frozen=True, tag="redraw"):
    """A group begins anew as draw `draw`, in its own slots."""

    group_id: int
    draw: int
    reason: Reason
    at: float


class IgnoredAnswer(Record, frozen=True, tag="ignore"):
    """Something that came and was not applied. `what` is "answer" or "response"."""

    seq: int
    draw: int
    attempt: int
    why: Ignored
    at: float
    what: str = "answer"
    worker: str = ""
    detail: str = ""


class Delivered(Record, frozen=True, tag="take"):
    """A batch was handed to the trainer. `order_digest` covers it and everything before."""

    batch: int
    count: int
    policy_version: int
    order_digest: str
    at: float


class Trained(Record, frozen=True, tag="train"):
    """The trainer has made its update with a batch."""

    batch: int
    at: float


class Ended(Record, frozen=True, tag="end"):
    """No slot at or beyond `total` will be dispatched."""

    total: int
    at: float


class Failed(Record, frozen=True, tag="fail"):
    """The run failed. `seq` is -1 when no single slot is to blame."""

    seq: int
    draw: int
    why: str
    at: float


class Stalled(Record, frozen=True, tag="stall"):
    """Nothing moved for a while. `waits` are sentences, `stack` where the holder was found."""

    since: float
    at: float
    waits: list[str]
    stack: str = ""


class Durable(Record, frozen=True, tag="sync"):
    """Everything before record `upto` was on the disk when this was written."""

    upto: int


AnyRecord = (
    Started
    | Resumed
    | Base
    | Submitted
    | Answered
    | Missed
    | Redrawn
    | IgnoredAnswer
    | Delivered
    | Trained
    | Ended
    | Failed
    | Stalled
    | Durable
)
