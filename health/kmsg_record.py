"""The record format of /dev/kmsg: `prio,sequence,microseconds,flags[,...];message`.

Further lines that begin with a blank are the kernel's own key=value pairs. Bytes that cannot be
printed are written `\\xNN`, so a message of several lines arrives as one line. Pure.
"""

import re

import msgspec

KERNEL_FACILITY = 0
"""Only the kernel writes with it: whatever a user writes into /dev/kmsg gets another one."""
MAX_RECORD_BYTES = 16_384
"""Twice the longest that any kernel prints; a read into less fails with EINVAL."""

_HEAD = re.compile(rb"(\d{1,5}),(\d{1,19}),(\d{1,18}),[^;]{0,200};")
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message of the kernel."""

    sequence: int
    """Counts all records of this boot, whoever wrote them; a gap means lost records."""
    monotonic_us: int
    """Microseconds since boot."""
    text: str
    """The message, with line breaks where the kernel printed them."""


class Head(msgspec.Struct, frozen=True, gc=False):
    """What stands before a message."""

    facility: int
    sequence: int
    monotonic_us: int


def head(raw: bytes) -> Head | None:
    """The numbers in front of the message, None when they are not those of a record."""
    found = _HEAD.match(raw)
    if found is None:
        return None
    priority, sequence, microseconds = found.groups()
    return Head(int(priority) >> 3, int(sequence), int(microseconds))


def message(raw: bytes) -> str:
    """The message of a record, as the kernel meant it: escapes undone, key=value lines left out."""
    text = raw.partition(b";")[2].partition(b"\n")[0]
    if b"\\x" in text:
        text = _ESCAPE.sub(_byte, text)
    return text.decode("utf-8", "replace")


def of_driver(raw: bytes) -> bool:
    """Whether a record can be one of the GPU or switch driver; cheap, and never wrongly False."""
    return b"NVRM" in raw or b"Xid" in raw or b"nvidia-nvswitch" in raw


def _byte(found: re.Match[bytes]) -> bytes:
    return bytes((int(found[1], 16),))
