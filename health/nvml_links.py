"""A GPU's NVLinks: which are up, what they end at, what they have counted.

How many there are is what NVML says and not what the product is called. Runs in the child process
only.
"""

from typing import Any

import pynvml

from health.nvml_answers import CANNOT_TELL, MOST_COUNT, Answer, Implausible, fields
from health.nvml_messages import GPU, SWITCH, Device, End

MOST_LINKS = 64
_COUNTERS = {
    "nvlink_replays": 161,
    "nvlink_recoveries": 162,
    "nvlink_crc_errors": 163,
    "nvlink_malformed_packets": 206,
    "nvlink_buffer_overruns": 207,
    "nvlink_receive_errors": 208,
    "nvlink_remote_errors": 209,
    "nvlink_general_errors": 210,
    "nvlink_integrity_errors": 211,
    "nvlink_discards": 212,
    "nvlink_recovery_successes": 213,
    "nvlink_recovery_failures": 214,
    "nvlink_effective_errors": 219,
    "nvlink_symbol_errors": 221,
}
# Before the fields there was one call a link and counter.
_OLD_COUNTERS = {
    "nvlink_replays": 0,
    "nvlink_recoveries": 1,
    "nvlink_crc_errors": 2,
    "nvlink_data_crc_errors": 3,
    "nvlink_ecc_errors": 4,
}
_KINDS = {0: GPU, 2: SWITCH}


def states(handle: Any) -> list[bool]:
    """Whether each link is up. Raises NVMLError for what is no end of the list."""
    found: list[bool] = []
    for link in range(MOST_LINKS):
        try:
            found.append(bool(pynvml.nvmlDeviceGetNvLinkState(handle, link)))
        except pynvml.NVMLError as error:
            if error.value not in CANNOT_TELL:
                raise
            break  # the end of this GPU's links, or a GPU without any
    return found


def counters(handle: Any, links: int) -> dict[str, int]:
    """What the links have counted, summed over all of them. Raises NVMLError, Implausible."""
    found: dict[str, int] = {}
    for name, number in _COUNTERS.items():
        _add(found, name, _by_link(handle, number, links))
    if any(name in found for name in _OLD_COUNTERS):
        return found
    for name, counter in _OLD_COUNTERS.items():
        _add(found, name, [_old(handle, link, counter) for link in range(links)])
    return found


def ends(handle: Any) -> tuple[End, ...]:
    """What each link ends at; a link that cannot tell is one to something else."""
    there = states(handle)
    return tuple(_end(handle, link) for link in range(len(there)) if there[link])


def _add(found: dict[str, int], name: str, answers: list[Answer]) -> None:
    known = [answer for answer in answers if answer is not None]
    if any(not 0 <= answer <= MOST_COUNT for answer in known):
        raise Implausible
    if known:
        found[name] = min(sum(known), MOST_COUNT)


def _by_link(handle: Any, number: int, links: int) -> list[Answer]:
    try:
        return fields(handle, [(number, link) for link in range(links)])
    except pynvml.NVMLError as error:
        if error.value not in CANNOT_TELL:
            raise
        return []  # this driver knows the values, and not of links


def _old(handle: Any, link: int, counter: int) -> Answer:
    try:
        return int(pynvml.nvmlDeviceGetNvLinkErrorCounter(handle, link, counter))
    except pynvml.NVMLError as error:
        if error.value not in CANNOT_TELL:
            raise
        return None


def _end(handle: Any, link: int) -> End:
    try:
        kind = _KINDS.get(int(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)), "other")
    except pynvml.NVMLError:
        kind = "other"
    try:
        pci = pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)
    except pynvml.NVMLError:
        return End(link, kind)
    device = (int(pci.domain), int(pci.bus), int(pci.device))
    return End(link, kind, device if plausible(device) else None)


def plausible(device: Device) -> bool:
    """Whether it can be a place on a PCI bus."""
    return device[0] <= 0xFFFFFFFF and device[1] <= 0xFF and device[2] <= 0x1F
