"""What stands before a kernel message: who wrote it, and the clock's words.

A line that only quotes a kernel message, or that a user wrote into the kernel's log, must not be
taken for one: a reboot could be forged with it. So the text before the message has to look like
something a kernel log puts there.
"""

import re
from functools import lru_cache

# prio,sequence,microseconds,flags;  The facility is prio // 8, and only 0 is the kernel.
_KMSG = re.compile(r"(\d{1,4}),(\d{1,20}),(\d{1,18}),[^;]{0,64};\Z", re.ASCII)
_PROGRAM_WITH_PID = re.compile(r"([\w.@()/+-]{1,64})\[\d{1,10}\]:", re.ASCII)
# A syslog stamp with host and program: `Aug 10 15:36:05 host kernel:`, `2025-...T... host kernel:`.
_SYSLOG = re.compile(
    r"\s*(?:<\d{1,3}>)?(?:\w{1,12}\.?\s+\d{1,2}\s+\d\d:\d\d:\d\d(?:\s+\d{4})?|\d{4}-\d\d-\d\dT[\d:.,+Z-]{8,26})"
    r"\s+(?P<host>[^\s\[\]:]{1,255})(?:\s+(?P<program>[^\s\[\]:]{1,64})(?:\[\d{1,10}\])?:)?"
)
# The newer form of syslog: `<4>1 2026-01-05T00:00:00Z host kernel - - -`. Facility 0 is the kernel.
_SYSLOG_5424 = re.compile(
    r"<(?P<priority>\d{1,3})>1 (?:-|[\dT:.+Z-]{10,35}) \S{1,255} (?P<program>\S{1,48}) \S{1,128} \S{1,32}"
    r" (?:-|(?:\[[^\]]{0,1024}\]){1,8})\s{0,8}\ufeff?",
    re.ASCII,
)
_KERNEL_NAMES = ("kernel", "kern", "klogd", "vmunix")
# What the text before a message may end with when it is no syslog line.
_ENDINGS = frozenset("]:;>|")


def from_kernel(head: str) -> bool:
    """Whether the text before a message is the prefix of a kernel log, and not somebody quoting it."""
    head = head.strip().removeprefix("\ufeff")
    if not head:
        return True
    if head[0] == "[" and head[-1] == "]" and "]:" not in head:
        return True
    if ";" in head:
        kmsg = _KMSG.search(head)
        if kmsg is not None:
            return int(kmsg.group(1)) < 8
    return _by_words(head)


# In a burst, hundreds of lines of a syslog carry the very same words.
@lru_cache(maxsize=16)
def _by_words(head: str) -> bool:
    if "]:" in head:
        for found in _PROGRAM_WITH_PID.finditer(head):
            if found.group(1).lower() not in _KERNEL_NAMES:
                return False
    newer = _SYSLOG_5424.match(head)
    if newer is not None:
        return int(newer["priority"]) < 8 and newer["program"].lower() in _KERNEL_NAMES
    if head[0] != "[":
        syslog = _SYSLOG.match(head)
        if syslog is not None:
            program = syslog["program"]
            if program is not None:
                return program.lower() in _KERNEL_NAMES
            if syslog.end() == len(head):
                return True
    return head[-1] in _ENDINGS or head[-1].isdigit()


class KmsgHead(tuple[int, int, int]):
    """prio, sequence and microseconds of a /dev/kmsg record."""

    __slots__ = ()


def kmsg_head(head: str) -> KmsgHead | None:
    """The numbers in front of a /dev/kmsg record, None for any other line."""
    found = _KMSG.search(head.strip())
    if found is None:
        return None
    return KmsgHead(int(part) for part in found.groups())
