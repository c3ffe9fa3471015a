"""What the message of a fault says beyond its code. Each reader is for one code's message."""

import re
from typing import NamedTuple

from health.events import Severity

_RECOVERY = re.compile(
    r"recovery action changed from 0x([0-9a-fA-F]{1,8})(?: \([^()]{0,64}\))? to 0x([0-9a-fA-F]{1,8})(?![0-9a-fA-F])",
    re.ASCII,
)
_NVLINK = re.compile(
    r"([A-Za-z][\w ]{1,40}?)\s{1,8}(Link ?Fatal|Fatal|Non-?fatal|Correctable)\b",
    re.ASCII | re.IGNORECASE,
)
_NVLINK_LINK = re.compile(r"\bLink\s{1,4}(-?\d{1,3})", re.ASCII)
_NVLINK_WORDS = re.compile(
    r"[(\[]\s?(0x[0-9a-fA-F]{1,8}(?:[ ,]{1,3}0x[0-9a-fA-F]{1,8}){0,15})", re.ASCII
)
_REGISTERS = re.compile(
    r"link (\d{1,3})\s?\(\s?(0x[0-9a-fA-F]{1,8}(?:,\s{0,4}0x[0-9a-fA-F]{1,8}){0,15})", re.ASCII
)
_LINK = re.compile(r"\blink (\d{1,3})", re.ASCII)
_PLACE = re.compile(r"\(GPC (\d{1,3}), TPC (\d{1,3})", re.ASCII)
_CAUSED_BY = re.compile(r"caused by previous Xid (\d{1,5})(?!\d)", re.ASCII)
_HEX = re.compile(r"0x[0-9a-fA-F]{1,8}", re.ASCII)
_SEVERITIES = {
    "fatal": Severity.FATAL,
    "linkfatal": Severity.LINK_FATAL,
    "nonfatal": Severity.NON_FATAL,
    "correctable": Severity.CORRECTABLE,
}


class RecoveryChange(NamedTuple):
    """The driver's own wish for a GPU, before and now, by number."""

    before: int
    now: int


def recovery_change(message: str) -> RecoveryChange | None:
    """The numbers of a 154, None when they are not all there: its words are never read."""
    found = _RECOVERY.search(message)
    return RecoveryChange(int(found[1], 16), int(found[2], 16)) if found is not None else None


class NvlinkReport(NamedTuple):
    """An NVLink5 message. Words may have been cut off."""

    unit: str
    severity: Severity | None
    link: int | None
    words: tuple[int, ...]


def nvlink_report(message: str) -> NvlinkReport:
    """Unit, tag, link and register words of a 144-150, as far as they are there."""
    tag = _NVLINK.match(message)
    link = _NVLINK_LINK.search(message, tag.end() if tag is not None else 0)
    words = _NVLINK_WORDS.search(message)
    return NvlinkReport(
        unit=" ".join(tag[1].split()) if tag is not None else message.split(" ", 1)[0],
        severity=_SEVERITIES[tag[2].lower().replace("-", "").replace(" ", "")] if tag else None,
        link=int(link[1]) if link is not None else None,
        words=_hex(words[1]) if words is not None else (),
    )


class LinkRegisters(NamedTuple):
    """A 74: the link and its register words, empty when cut off."""

    link: int | None
    words: tuple[int, ...]


def link_registers(message: str) -> LinkRegisters:
    """The link and the registers of a 74."""
    found = _REGISTERS.search(message)
    if found is not None:
        return LinkRegisters(int(found[1]), _hex(found[2]))
    link = _LINK.search(message)
    return LinkRegisters(int(link[1]) if link is not None else None, ())


def place(message: str) -> str:
    """GPC and TPC of a 13, empty when it names none."""
    found = _PLACE.search(message)
    return f"GPC {found[1]} TPC {found[2]}" if found is not None else ""


def caused_by(message: str) -> int | None:
    """The Xid that a 45 names as its cause."""
    found = _CAUSED_BY.search(message)
    return int(found[1]) if found is not None else None


def unattributed(message: str) -> bool:
    """True for an MMU fault whose client and type the driver could not make out."""
    return "UNRECOGNIZED_CLIENT" in message or "UNRECOGNIZED_FAULT" in message


# What the memory repair says of itself; the driver's words since 2020, and those before.
_PENDING = (
    "reset gpu to activate",
    "reboot to activate",
    "pending retirement",
    "pending remapping",
    "pending row remap",
    "pending bank remap",
    "pending lts swap",
    "to activate repair",
    "reboot to retire",
)
_EXHAUSTED = (
    "all reserved rows for bank are remapped",
    "row remapping table is full",
    "no spare for retirement",
    "hw limit reached",
    "no more spare",
)


def retirement_pending(message: str) -> bool:
    """True when memory was put aside and the next reset completes it."""
    words = message.lower()
    return any(phrase in words for phrase in _PENDING)


def spares_exhausted(message: str) -> bool:
    """True when there is nothing left to replace bad memory with."""
    words = message.lower()
    return any(phrase in words for phrase in _EXHAUSTED)


def _hex(text: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in _HEX.findall(text))
