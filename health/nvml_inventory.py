"""Which boards a node has: identity, place, and how they hang together. Runs in the child process only."""

import ctypes
import re
from pathlib import Path
from typing import Any

import pynvml

from health.nvml_links import ends, plausible
from health.nvml_messages import Board, Device, Ready

MAX_BOARDS = 64
PCI_SLOTS = Path("/sys/bus/pci/slots")
_WORD = re.compile(r"[\w.:-]{1,80}", re.ASCII)
_MOST_PLACE = 255


def inventory(slots: Path = PCI_SLOTS) -> tuple[Ready, dict[Device, Any]]:
    """What is there, and a handle for each board. Raises NVMLError when not even a number is told."""
    boards, silent, handles = [], {}, {}
    for index in range(min(pynvml.nvmlDeviceGetCount(), MAX_BOARDS)):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            pci = pynvml.nvmlDeviceGetPciInfo(handle)
        except pynvml.NVMLError as error:
            silent[str(index)] = int(error.value)
            continue
        device = (int(pci.domain), int(pci.bus), int(pci.device))
        if not plausible(device) or device in handles:
            silent[str(index)] = pynvml.NVML_ERROR_UNKNOWN
            continue
        handles[device] = handle
        boards.append(_board(device, handle, slots))
    return Ready(driver_version(), tuple(boards), silent), handles


def driver_version() -> str | None:
    """The driver's version, None when it cannot be told now."""
    return word(pynvml.nvmlSystemGetDriverVersion)


def word(question: Any, *arguments: Any) -> str | None:
    """A name that NVML gives, None when it has none or it is garbage."""
    try:
        answer = question(*arguments)
        text = answer.decode("ascii") if isinstance(answer, bytes) else str(answer)
    except (pynvml.NVMLError, UnicodeDecodeError, AttributeError):
        return None
    return text if _WORD.fullmatch(text) else None


def _board(device: Device, handle: Any, slots: Path) -> Board:
    mode = _number(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    try:
        links = ends(handle)
    except pynvml.NVMLError:
        links = ()  # the rounds tell what is wrong with it
    return Board(
        device,
        uuid=word(pynvml.nvmlDeviceGetUUID, handle),
        serial=word(pynvml.nvmlDeviceGetSerial, handle),
        vbios=word(pynvml.nvmlDeviceGetVbiosVersion, handle),
        slot=place(handle, device, slots),
        generation=_number(lambda: pynvml.nvmlDeviceGetArchitecture(handle)),
        divided=None if mode is None else mode == 1,
        ends=links,
    )


def place(handle: Any, device: Device, slots: Path) -> str | None:
    """Where somebody with a screwdriver finds the board: as the chassis says, and the board, and the bus."""
    parts = _in_chassis(handle)
    if not any(part.startswith("module") for part in parts):
        module = _number(lambda: pynvml.nvmlDeviceGetModuleId(handle, ctypes.c_uint()))
        if module is not None:
            parts.append(f"module {module}")
    slot = _pci_slot(device, slots)
    if slot is not None:
        parts.append(f"PCI slot {slot}")
    return ", ".join(parts) or None


def _in_chassis(handle: Any) -> list[str]:
    try:
        info = pynvml.c_nvmlPlatformInfo_v2_t()
        pynvml.nvmlDeviceGetPlatformInfo(handle, ctypes.byref(info))
    except (pynvml.NVMLError, AttributeError):
        return []
    serial = word(lambda: info.chassisSerialNumber)
    if serial is None:
        return []
    # The binding reads these bytes as text, which not every number is.
    numbers = [
        (name, ctypes.Structure.__getattribute__(info, field)[0])
        for name, field in (("slot", "slotNumber"), ("tray", "trayIndex"), ("module", "moduleId"))
    ]
    return [f"chassis {serial}", *(f"{name} {number}" for name, number in numbers if number)]


def _pci_slot(device: Device, slots: Path) -> str | None:
    wanted = f"{device[0]:04x}:{device[1]:02x}:{device[2]:02x}"
    try:
        for slot in sorted(slots.iterdir()):
            if (slot / "address").read_text(encoding="ascii").strip() == wanted:
                return word(lambda slot=slot: slot.name)
    except (OSError, UnicodeDecodeError):
        return None
    return None


def _number(question: Any) -> int | None:
    try:
        answer = int(question())
    except (pynvml.NVMLError, AttributeError, ValueError, TypeError):
        return None
    return answer if 0 <= answer <= _MOST_PLACE else None
