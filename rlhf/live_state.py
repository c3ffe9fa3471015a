"""What a running pipeline waits for this very moment: written every few seconds, read by the doctor.

The journal tells what has happened; a run that hangs writes nothing there. `live.json` in the run
folder says who holds what, since when, and where in the code. Its age is told by the system's
monotonic clock, which all processes of a machine share until it boots anew; so it is believed only on
the machine that wrote it, and only while its process lives.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from rlhf.reward_queue_types import Stage, Stall, Wait

NAME = "live.json"
EVERY_SECONDS = 2.0
_OLD_SECONDS = 30.0
_SHOWN_WAITS = 12
_LONGEST_STACK = 4000
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class LiveState(msgspec.Struct, frozen=True, rename="camel"):
    """One look at the queue. `oldest_seconds` is the age of the oldest wait in which somebody holds a
    sample; `stack` where its holder stands.
    """

    boot_id: str
    pid: int
    written_at: float
    delivered: int
    trained: int
    depth: int
    waits: list[str]
    oldest_seconds: float = 0.0
    stack: str = ""


def observed(
    waits: Sequence[Wait],
    now: float,
    *,
    delivered: int,
    trained: int,
    depth: int,
    where: Callable[[Stall], str],
) -> LiveState:
    """The state of a queue. `now` is on the clock of the waits; `where` finds the holder's stack."""
    held = [each for each in waits if each.stage in (Stage.ROLLOUT, Stage.GRADING)]
    oldest = min(held, key=lambda each: each.since, default=None)
    stack = "" if oldest is None else where(Stall(oldest.since, (oldest,)))
    return LiveState(
        boot_id=_boot_id(),
        pid=os.getpid(),
        written_at=time.monotonic(),
        delivered=delivered,
        trained=trained,
        depth=depth,
        waits=[each.sentence(now) for each in waits[:_SHOWN_WAITS]],
        oldest_seconds=0.0 if oldest is None else now - oldest.since,
        stack=stack[:_LONGEST_STACK],
    )


def write(folder: Path, state: LiveState) -> None:
    """Writes it, whole or not at all."""
    draft = folder / f".{NAME}.draft"
    draft.write_bytes(msgspec.json.encode(state))
    draft.replace(folder / NAME)


def read(folder: Path) -> LiveState | None:
    """The state of a run that goes on here and now; None of any other."""
    try:
        state = msgspec.json.decode((folder / NAME).read_bytes(), type=LiveState)
    except (OSError, msgspec.MsgspecError):
        return None
    if state.boot_id != _boot_id() or time.monotonic() - state.written_at > _OLD_SECONDS:
        return None
    return state if _lives(state.pid) else None


def remove(folder: Path) -> None:
    """The run goes on no longer."""
    (folder / NAME).unlink(missing_ok=True)


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
