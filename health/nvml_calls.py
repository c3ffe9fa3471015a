"""The questions to NVML, each of which may be unsupported, missing in this driver, or answered with
garbage. Runs in the child process only.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml

from health.events import Quantity
from health.nvml_messages import Values

# Errors that say "cannot tell" and nothing about the GPU.
CANNOT_TELL = frozenset(
    {
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_INSUFFICIENT_SIZE,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
        22,  # no ECC on virtual GPUs
        25,  # a structure of another version
        26,  # deprecated
        27,  # not ready
        29,  # not in this state
    }
)
# Of several errors for one GPU the one that says most.
_GRAVEST = (
    pynvml.NVML_ERROR_GPU_IS_LOST,
    16,  # reset required
    18,  # driver replaced underneath
)

_RECOVERY_FIELD = 230
_MAX_LINKS = 64
_SINGLE, _DOUBLE = 0, 1
Answer = int | None


class Implausible(Exception):
    """An answer that no driver gives."""


def _recovery(handle: Any) -> Answer:
    field = pynvml.nvmlDeviceGetFieldValues(handle, [_RECOVERY_FIELD])[0]
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(field.nvmlReturn)
    return int(field.value.uiVal)


def _remapped(place: int) -> Callable[[Any], Answer]:
    return lambda handle: int(pynvml.nvmlDeviceGetRemappedRows(handle)[place])


def _retired(handle: Any) -> Answer:
    return sum(len(pynvml.nvmlDeviceGetRetiredPages_v2(handle, cause)) for cause in (0, 1))


def _sram(handle: Any) -> Answer:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
    return int(status.bThresholdExceeded)


def _repair(handle: Any) -> Answer:
    flags = [int(flag) for flag in pynvml.nvmlDeviceGetRepairStatus(handle)]
    if any(flag not in (0, 1) for flag in flags):
        raise Implausible
    return max(flags)


def _fabric(field: str) -> Callable[[Any], Answer]:
    def ask(handle: Any) -> Answer:
        info = pynvml.c_nvmlGpuFabricInfo_v2_t()
        pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        return int(getattr(info, field))

    return ask


# Quantity, the question, and the greatest answer that a driver gives.
_QUESTIONS: tuple[tuple[Quantity, Callable[[Any], Answer], int], ...] = (
    (Quantity.RECOVERY_ACTION, _recovery, 63),
    (Quantity.REMAPPED_UNCORRECTABLE, _remapped(1), 1 << 20),
    (Quantity.REMAP_PENDING, _remapped(2), 1),
    (Quantity.REMAP_FAILURE, _remapped(3), 1),
    (Quantity.RETIRED_PAGES, _retired, 1 << 20),
    (
        Quantity.RETIREMENT_PENDING,
        lambda handle: int(pynvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)),
        1,
    ),
    (Quantity.SRAM_THRESHOLD_EXCEEDED, _sram, 1),
    (Quantity.REPAIR_PENDING, _repair, 1),
    (
        Quantity.MEMORY_UNREPAIRABLE,
        lambda handle: int(pynvml.nvmlDeviceGetUnrepairableMemoryFlag_v1(handle)),
        1,
    ),
    (
        Quantity.CLOCKS_EVENT_REASONS,
        lambda handle: int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),
        (1 << 32) - 1,
    ),
    (Quantity.FABRIC_STATE, _fabric("state"), 3),
    (Quantity.FABRIC_HEALTH_MASK, _fabric("healthMask"), (1 << 32) - 1),
)


def _ecc(kind: int, counter: int) -> Callable[[Any], Answer]:
    return lambda handle: int(pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter))


def _link_errors(field: int) -> Callable[[Any], Answer]:
    def ask(handle: Any) -> Answer:
        value = pynvml.nvmlDeviceGetFieldValues(handle, [field])[0]
        if value.nvmlReturn != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(value.nvmlReturn)
        return int(value.value.ullVal)

    return ask


_COUNTERS: tuple[tuple[str, Callable[[Any], Answer]], ...] = (
    ("ecc_corrected_volatile", _ecc(_SINGLE, 0)),
    ("ecc_corrected_aggregate", _ecc(_SINGLE, 1)),
    ("ecc_uncorrected_volatile", _ecc(_DOUBLE, 0)),
    ("ecc_uncorrected_aggregate", _ecc(_DOUBLE, 1)),
    ("pcie_replays", lambda handle: int(pynvml.nvmlDeviceGetPcieReplayCounter(handle))),
    ("rows_remapped_corrected", _remapped(0)),
    ("nvlink_replays", _link_errors(161)),
    ("nvlink_recoveries", _link_errors(162)),
    ("nvlink_crc_errors", _link_errors(163)),
    ("nvlink_recovery_failures", _link_errors(214)),
    ("nvlink_symbol_errors", _link_errors(221)),
    ("pcie_fatal_errors", _link_errors(180)),
    ("thermal_margin", lambda handle: int(pynvml.nvmlDeviceGetMarginTemperature(handle))),
)


class Questioner:
    """Asks one GPU after the other and remembers how many links each had."""

    def __init__(self, wanted: Callable[[], bool]) -> None:
        """`wanted` says before each call whether to go on."""
        self._wanted = wanted
        self._error = 0
        self._implausible = 0
        self._most_links = 0

    def ask(self, device: tuple[int, int, int], handle: Any) -> Values:
        """All values of one GPU. Never raises on what NVML answers."""
        self._error = self._implausible = 0
        values: dict[str, int | None] = {
            quantity.value: self._answer(question, handle, most)
            for quantity, question, most in _QUESTIONS
        }
        active = self._answer(self._active_links, handle, _MAX_LINKS)
        # Cards without a bridge have links that are all down, and that is as it should be.
        self._most_links = max(self._most_links, active or 0)
        values[Quantity.LINKS_DOWN] = None if active is None else self._most_links - active
        counters = {
            name: answer
            for name, question in _COUNTERS
            if (answer := self._answer(question, handle, (1 << 63) - 1)) is not None
        }
        return Values(device, self._error, values, counters, self._implausible)

    def _answer(self, question: Callable[[Any], Answer], handle: Any, most: int) -> Answer:
        if not self._wanted():
            return None
        try:
            value = question(handle)
        except pynvml.NVMLError as error:
            self._failed(int(error.value))
            return None
        except AttributeError:
            return None  # the binding is older than the question
        except (Implausible, ValueError, OverflowError):
            self._implausible += 1
            return None
        if value is not None and not -(1 << 31) <= value <= most:
            self._implausible += 1
            return None
        return value

    def _failed(self, error: int) -> None:
        if error in CANNOT_TELL or self._error in _GRAVEST:
            return
        if not self._error or error in _GRAVEST:
            self._error = error

    def _active_links(self, handle: Any) -> Answer:
        active = 0
        for link in range(_MAX_LINKS):
            try:
                active += bool(pynvml.nvmlDeviceGetNvLinkState(handle, link))
            except pynvml.NVMLError as error:
                if error.value not in CANNOT_TELL:
                    raise
                # The end of this GPU's links, or a GPU without any.
                return active if link else None
        return active
