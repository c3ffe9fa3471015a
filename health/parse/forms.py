"""The driver's messages: each form it has printed since 2014, read into a fault.

All expressions are bounded or read each character once, so no text takes longer than its length.
"""

import re
from functools import lru_cache

from health.events import (
    FallenOff,
    Fault,
    Hint,
    Identity,
    PciAddress,
    Severity,
    SXid,
    SXidDetail,
    Xid,
)

_ADDRESS = r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.[0-7])?"
_XID = re.compile(
    rf"Xid \((?:PCI:)?{_ADDRESS}(?:[ ,]{{1,3}}GPU-I:(\d{{1,3}}))?(?:[ ,]{{1,3}}GPU-CI:(\d{{1,3}}))?\):\s{{0,4}}"
    r"(\d{1,5})(?!\d)(?:,\s{0,8}pid=([^,]{0,40}))?(?:,\s{0,8}name=((?:[^,]|,(?! )){0,40}))?,?\s{0,8}",
    re.ASCII,
)
_SXID = re.compile(
    rf"nvidia-nvswitch(\d{{1,4}}): SXid \((?:PCI:)?{_ADDRESS}\):\s{{0,4}}(\d{{1,6}})(?!\d),?\s{{0,4}}",
    re.ASCII,
)
_SXID_TAG = re.compile(r"(Fatal|Non-?fatal|Correctable)\b[, ]{0,3}", re.ASCII | re.IGNORECASE)
_SXID_PLACE = re.compile(
    r"(?:Link (-?\d{1,3})|instance=(\d{1,3})(?:, chiplet=\d{1,3})?)[, ]{0,3}",
    re.ASCII | re.IGNORECASE,
)
_SXID_DETAIL = re.compile(
    r"Severity (?:\d|\Z)|Severity\Z|Data ?(?:[\[{]|\Z)", re.ASCII | re.IGNORECASE
)
_SXID_GRAVITY_WORDS = ("fatal", "non-fatal", "nonfatal", "correctable", "severity", "data")
_FIRST = " (First)"

_OFF = "fallen off the bus"
_OFF_WHERE = re.compile(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?{_ADDRESS}(?!\d)", re.ASCII)
_OFF_MESSAGE = re.compile(r"NVRM:\s{1,4}(?:The NVIDIA |A )?(?:GPU\b|fallen off)", re.ASCII)
_UUID = re.compile(rf"NVRM: GPU at (?:PCI:)?{_ADDRESS}: (GPU-[0-9A-Fa-f-]{{8,64}})", re.ASCII)
_SERIAL = re.compile(
    rf"NVRM: GPU (?:{_ADDRESS}: GPU serial number is|Board Serial Number:) ([\w-]{{1,32}})",
    re.ASCII,
)
_HINTS = (
    ("gsp_heartbeat", "Heartbeat timed out"),
    ("gsp_history", "GSP RPC buffer contains"),
    ("gsp_crash_report", "GSP-CrashCat Report"),
    ("nvlink_discovery", "knvlinkDiscoverPostRxDetLinks"),
    ("probe_failed", "probe routine failed"),
    ("adapter_not_initialised", "RmInitAdapter failed"),
    ("link_disabled", "disabled due to error"),
)
_SEVERITIES = {
    "fatal": Severity.FATAL,
    "nonfatal": Severity.NON_FATAL,
    "correctable": Severity.CORRECTABLE,
}


def xid(body: str, start: int) -> Xid | None:
    """The Xid whose word begins at `start`, None when the form is broken."""
    found = _XID.match(body, start)
    if found is None:
        return None
    domain, bus, device, instance, compute, code, pid, name = found.groups()
    return Xid(
        address(domain, bus, device),
        int(code),
        body[found.end() :],
        int(pid) if pid is not None and pid.isascii() and pid.isdigit() and len(pid) < 11 else None,
        name if name != "<unknown>" else None,
        int(instance) if instance is not None else None,
        int(compute) if compute is not None else None,
    )


@lru_cache(maxsize=4096)
def address(domain: str, bus: str, device: str) -> PciAddress:
    """An address from its hexadecimal parts; NVML writes the domain with 8 digits, the kernel with 4."""
    return PciAddress(int(domain, 16), int(bus, 16), int(device, 16))


def sxid(body: str) -> SXid | SXidDetail | None:
    """A line of the switch driver, None when the form is broken."""
    found = _SXID.match(body)
    if found is None:
        return None
    switch, domain, bus, device, code = found.groups()
    where = address(domain, bus, device)
    rest = body[found.end() :]
    if _SXID_DETAIL.match(rest):
        return SXidDetail(where, int(code), int(switch), rest)
    tag = _SXID_TAG.match(rest)
    severity = None
    if tag is not None:
        severity = _SEVERITIES[tag[1].lower().replace("-", "")]
        rest = rest[tag.end() :]
    place = _SXID_PLACE.match(rest)
    link = None
    if place is not None:
        link = int(place[1] or place[2])
        rest = rest[place.end() :]
    first = rest.endswith(_FIRST)
    text = rest.removesuffix(_FIRST)
    cut = severity is None and link is None and _ends_before_gravity(text)
    return SXid(where, int(code), int(switch), severity, link, text, first, cut)


def _ends_before_gravity(text: str) -> bool:
    """Whether nothing, or the beginning of the word that tells how grave, is all there is after the number."""
    return any(word.startswith(text.rstrip(", ").lower()) for word in _SXID_GRAVITY_WORDS)


def other(body: str) -> Fault | None:
    """Any other message of the driver that says something; None for the many that do not."""
    if _OFF in body:
        return _fallen_off(body)
    if "GPU-" in body or "erial" in body:
        identity = _identity(body)
        if identity is not None:
            return identity
    for name, words in _HINTS:
        if words in body:
            where = _OFF_WHERE.match(body)
            return Hint(name, address(*where.groups()) if where is not None else None, body)
    return None


def _fallen_off(body: str) -> FallenOff | None:
    """The forms without an Xid: on one line, and the record of three lines that a probe prints."""
    flat = " ".join(body.split())
    if not _OFF_MESSAGE.match(flat):
        return None
    where = _OFF_WHERE.match(flat)
    return FallenOff(address(*where.groups()) if where is not None else None, flat)


def _identity(body: str) -> Identity | None:
    uuid = _UUID.match(body)
    if uuid is not None:
        return Identity(address(*uuid.groups()[:3]), uuid=uuid[4])
    serial = _SERIAL.match(body)
    if serial is None:
        return None
    domain, bus, device, number = serial.groups()
    return Identity(address(domain, bus, device) if domain is not None else None, serial=number)
