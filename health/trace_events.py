"""The driver's trace events as the kernel prints them: an Xid or SXid with its device. Pure.

    python3-4711    [003] d..1.  1234.567890: nvidia_dev_xid: Xid (PCI:0000:1b:00.0): 79, ...

They are the log's reports without the log: not lost with the console's level or a journal that turns
over. The message is the same, so the same parser reads it.
"""

import re
from typing import NamedTuple

import msgspec

from health.events import SXid
from health.parse import lines
from health.parse.lines import Line

MAX_LINE_BYTES = 16_384
_EVENT = re.compile(
    rb"\s{0,16}.{1,16}-\d{1,10}\s{1,16}(?:\([ \d-]{1,10}\)\s{1,8})?\[\d{1,6}\]\s{1,4}\S{1,8}\s{1,16}"
    rb"(\d{1,12})\.(\d{6}):\s{1,4}(nvidia_dev_xid|nvswitch_dev_sxid):\s{1,4}(S?Xid \(.*)",
    re.DOTALL,
)
_LOST = re.compile(rb"CPU:\d{1,6} \[LOST (?:(\d{1,18}) )?EVENTS\]")
_DRIVER = "NVRM: "
_SWITCH_DRIVER = "nvidia-nvswitch0: "  # the event does not tell which switch's driver it was


class TraceRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event."""

    monotonic_us: int
    """Microseconds since boot, on the clock that the tracing instance was told to use."""
    text: str
    """`Xid (PCI:...): 79, ...` or `SXid (...`."""


class Lost(NamedTuple):
    """The ring was overrun; how many events that took is not always known."""

    events: int


def record(raw: bytes) -> TraceRecord | Lost | None:
    """One printed line; None when it is none of the driver's events."""
    found = _EVENT.match(raw[:MAX_LINE_BYTES])
    if found is not None:
        seconds, micros, _, text = found.groups()
        return TraceRecord(int(seconds) * 1_000_000 + int(micros), text.decode("utf-8", "replace"))
    lost = _LOST.match(raw)
    return Lost(int(lost[1] or 1)) if lost is not None else None


def line(text: str) -> Line:
    """What an event says, as the log's parser reads it. Never raises."""
    if not text.startswith("SXid"):
        return lines.line(_DRIVER + text)
    read = lines.line(_SWITCH_DRIVER + text)
    if isinstance(read.what, SXid):
        read = read._replace(what=msgspec.structs.replace(read.what, switch=None))
    return read._replace(body=text)
