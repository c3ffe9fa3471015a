"""Faults to inject into a simulated node: what its driver would print, and how the GPU would then be.

Pure. Nothing here reaches a real kernel's log: who writes the records decides where they go.
"""

import hashlib
from dataclasses import dataclass, field

from health.kmsg_record import KERNEL_FACILITY

FIRST_BUS = 0x1B
WARNING = 4
_PLAIN = "pid=4242, name=python"


class NoSuchFault(ValueError):
    """A fault of that name is not known; the text lists those that are."""


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    about: str
    lines: tuple[str, ...]
    """What the driver prints; {pci} is the GPU's place, {uuid} and {serial} are its own."""
    gpu: dict[str, int] = field(default_factory=dict)
    """How the GPU is afterwards, as the checks after a repair would find it."""
    ends_programs: bool = False
    """Whether the programs that use the GPU end with it."""


_IDENTITY = (
    "NVRM: GPU at PCI:{pci}: {uuid}",
    "NVRM: GPU Board Serial Number: {serial}",
)

FAULTS = {
    "bus": Fault(
        "the GPU falls off the bus (Xid 79), and the driver asks for a reboot (Xid 154)",
        (
            *_IDENTITY,
            f"NVRM: Xid (PCI:{{pci}}): 79, {_PLAIN}, GPU has fallen off the bus.",
            "NVRM: GPU {pci}.0: GPU has fallen off the bus.",
            "NVRM: Xid (PCI:{pci}): 154, GPU recovery action changed from 0x0 (None) to 0x2 "
            "(Node Reboot Required)",
            f"NVRM: Xid (PCI:{{pci}}): 45, {_PLAIN}, Ch 00000008",
        ),
        {"missing": 1},
        ends_programs=True,
    ),
    "uncontained": Fault(
        "a memory error that may have hit every program (Xid 95), and a reset is due (Xid 154)",
        (
            *_IDENTITY,
            f"NVRM: Xid (PCI:{{pci}}): 95, {_PLAIN}, Uncontained: LTC TAG (0x2,0x0). RST: Yes, "
            "D-RST: No",
            "NVRM: Xid (PCI:{pci}): 154, GPU recovery action changed from 0x0 (None) to 0x1 "
            "(GPU Reset Required)",
        ),
        {"recovery_action": 1},
        ends_programs=True,
    ),
    "drain": Fault(
        "an NVLink that is to be reset once its jobs have saved (Xid 154, Drain and Reset)",
        (
            *_IDENTITY,
            "NVRM: Xid (PCI:{pci}): 149, NETIR_LINK_EVT Link Fatal XC0 i0 Link 08 "
            "(0x02500006 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
            "NVRM: Xid (PCI:{pci}): 154, GPU recovery action changed from 0x0 (None) to 0x4 "
            "(Drain and Reset)",
        ),
        {"recovery_action": 4},
    ),
    "program": Fault(
        "a program reads where it must not (Xid 31): nothing is wrong with the node",
        (
            *_IDENTITY,
            f"NVRM: Xid (PCI:{{pci}}): 31, {_PLAIN}, Ch 00000010, intr 00000000. MMU Fault: ENGINE "
            "GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f27_40000000. Fault is of type FAULT_PDE "
            "ACCESS_TYPE_VIRT_READ",
        ),
    ),
}


def fault(name: str) -> Fault:
    """A fault by its name, or one line of any Xid by its number. Raises NoSuchFault."""
    if name in FAULTS:
        return FAULTS[name]
    if name.isascii() and name.isdecimal() and len(name) <= 4:
        line = f"NVRM: Xid (PCI:{{pci}}): {int(name)}, {_PLAIN}, injected"
        return Fault(f"Xid {int(name)}", (*_IDENTITY, line))
    raise NoSuchFault(f"{name!r} is no Xid and none of: {', '.join(FAULTS)}")


def lines(chosen: Fault, index: int, node: str) -> tuple[str, ...]:
    """The driver's words about the GPU with this index of a simulated node."""
    board = hashlib.blake2s(
        f"{node}/{index}".encode("utf-8", "replace"), digest_size=16
    ).hexdigest()
    places = (board[:8], board[8:12], board[12:16], board[16:20], board[20:])
    place = {
        "pci": f"0000:{FIRST_BUS + index:02x}:00",
        "uuid": "GPU-" + "-".join(places),
        "serial": f"165{int(board[:8], 16):010d}",
    }
    return tuple(line.format(**place) for line in chosen.lines)


def record(sequence: int, monotonic_us: int, text: str) -> bytes:
    """One record as /dev/kmsg hands it out, with its line end."""
    escaped = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte != 0x5C else f"\\x{byte:02x}"
        for byte in text.encode("utf-8", "replace")
    )
    priority = KERNEL_FACILITY << 3 | WARNING
    return f"{priority},{sequence},{monotonic_us},-;{escaped}\n".encode()
