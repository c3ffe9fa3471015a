"""What each GPU is asked for in a round, with the greatest answer that a driver gives.

A name of `Quantity` is a value that is judged; any other is a counter, shown and put into tickets.
Runs in the child process only.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from health.events import Quantity
from health.nvml_answers import (
    CANNOT_TELL,
    MOST_COUNT,
    Answer,
    Implausible,
    count_only,
    field,
    fields,
    first_form,
    or_none,
)

_RECOVERY_FIELD, _RESET_FIELD, _DRAIN_FIELD = 230, 226, 227
_RESET, _DRAIN_AND_RESET = 1, 4
_CORRECTED, _UNCORRECTED = 0, 1
_VOLATILE, _AGGREGATE = 0, 1
_DRAM, _SRAM = 2, 7
_IDLE = 0x1
_FABRIC_JOINED = 3
_WORD = (1 << 32) - 1
_ROWS = 1 << 20
_LANES, _GENERATIONS = 64, 16


@dataclass(frozen=True)
class Question:
    """One thing to ask for: the names of its answers with their greatest values, and how to ask."""

    answers: tuple[tuple[str, int], ...]
    ask: Callable[[Any], Sequence[Answer]]


def _one(name: str, most: int, ask: Callable[[Any], Answer]) -> Question:
    return Question(((name, most),), lambda handle: (ask(handle),))


def _counters(names: Sequence[str], ask: Callable[[Any], Sequence[Answer]]) -> Question:
    return Question(tuple((name, MOST_COUNT) for name in names), ask)


def _recovery(handle: Any) -> int:
    """The driver's wish; of drivers before it had a number, the two flags that they had."""
    try:
        return field(handle, _RECOVERY_FIELD)
    except pynvml.NVMLError as error:
        if error.value not in CANNOT_TELL:
            raise
    reset, drain = fields(handle, (_RESET_FIELD, _DRAIN_FIELD))
    if reset is None and drain is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    if reset not in (None, 0, 1) or drain not in (None, 0, 1):
        raise Implausible
    return _RESET if reset else _DRAIN_AND_RESET if drain else 0


def _remapped(handle: Any) -> Sequence[Answer]:
    return first_form(handle, _remapped_with_inactive, pynvml.nvmlDeviceGetRemappedRows)


def _remapped_with_inactive(handle: Any) -> Sequence[Answer]:
    rows = pynvml.c_nvmlRemappedRowsInfo_v2_t()
    pynvml.nvmlDeviceGetRemappedRows_v2(handle, ctypes.byref(rows))
    return (
        rows.corrActiveRemaps + rows.corrInactiveRemaps,
        rows.uncActiveRemaps + rows.uncInactiveRemaps,
        rows.bPending,
        rows.bfailureOccurred,
    )


def _spare_rows(handle: Any) -> Sequence[Answer]:
    banks = pynvml.nvmlDeviceGetRowRemapperHistogram(handle)
    return banks.max, banks.high, banks.partial, banks.low, banks.none


def _retired(handle: Any) -> Sequence[Answer]:
    return first_form(handle, _retired_with_times, _retired_by_address)


def _retired_with_times(handle: Any) -> Sequence[Answer]:
    symbol = "nvmlDeviceGetRetiredPages_v2"
    return _sums([count_only(symbol, handle, cause, lists=2) for cause in (0, 1)])


def _retired_by_address(handle: Any) -> Sequence[Answer]:
    symbol = "nvmlDeviceGetRetiredPages"
    return _sums([count_only(symbol, handle, cause, lists=1) for cause in (0, 1)])


def _sums(by_cause: list[int]) -> Sequence[Answer]:
    return sum(by_cause), by_cause[1]


def _sram(handle: Any) -> Sequence[Answer]:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
    return (
        status.bThresholdExceeded,
        status.aggregateUncParity + status.aggregateUncSecDed,
        status.aggregateUncBucketL2,
        status.aggregateUncBucketSm,
        status.aggregateUncBucketPcie,
        status.aggregateUncBucketMcu,
        status.aggregateUncBucketOther,
    )


def _repair(handle: Any) -> int:
    flags = [int(flag) for flag in pynvml.nvmlDeviceGetRepairStatus(handle)]
    if any(flag not in (0, 1) for flag in flags):
        raise Implausible
    return max(flags)


def _slow_clocks(handle: Any) -> int:
    try:
        return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
    return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))  # before R535


def _fabric(handle: Any) -> Sequence[Answer]:
    """State, status, mask and summary, as far as the newest form that the driver knows goes."""
    state, status, mask, summary = first_form(
        handle, _fabric_of_cliques, _fabric_with_summary, _fabric_with_mask, _fabric_plain
    )
    joined = state == _FABRIC_JOINED
    return state, status if joined else None, mask if joined else None, summary if joined else None


def _fabric_of_cliques(handle: Any) -> Sequence[Answer]:
    info = pynvml.c_nvmlGpuFabricInfo_v4_t()
    pynvml.nvmlDeviceGetGpuFabricInfo_v4(handle, ctypes.byref(info))
    return info.state, info.status, info.healthMask, info.healthSummary


def _fabric_with_summary(handle: Any) -> Sequence[Answer]:
    info = pynvml.c_nvmlGpuFabricInfo_v3_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return info.state, info.status, info.healthMask, info.healthSummary


def _fabric_with_mask(handle: Any) -> Sequence[Answer]:
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return info.state, info.status, info.healthMask, None


def _fabric_plain(handle: Any) -> Sequence[Answer]:
    info = pynvml.c_nvmlGpuFabricInfo_t()
    pynvml.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(info))
    return info.state, info.status, None, None


def _bus(handle: Any) -> Sequence[Answer]:
    """Lanes and generations below what GPU and board could have; an idle GPU lowers the latter."""
    lanes = or_none(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle)
    generation = or_none(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle)
    idle = (or_none(_slow_clocks, handle) or 0) & _IDLE
    return (
        _below(lanes, or_none(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle), _LANES),
        0
        if idle and generation is not None
        else _below(
            generation, or_none(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle), _GENERATIONS
        ),
    )


def _below(now: Answer, possible: Answer, most: int) -> Answer:
    if now is None or possible is None:
        return None
    if not (0 < now <= most and 0 < possible <= most):
        raise Implausible
    return max(0, possible - now)


_BUS_COUNTERS = {
    "pcie_correctable_errors": 173,
    "pcie_naks_received": 174,
    "pcie_receiver_errors": 175,
    "pcie_bad_tlps": 176,
    "pcie_naks_sent": 177,
    "pcie_bad_dllps": 178,
    "pcie_nonfatal_errors": 179,
    "pcie_fatal_errors": 180,
    "pcie_unsupported_requests": 181,
    "pcie_lcrc_errors": 182,
    "pcie_lane_errors": 183,
    "c2c_links": 170,
    "c2c_error_interrupts": 231,
    "c2c_replays": 232,
    "c2c_replays_back_to_back": 233,
}


def _flag(quantity: Quantity, call: Callable[[Any], Answer]) -> Question:
    return _one(quantity, 1, call)


def _total(kind: int, counter: int) -> Callable[[Any], Answer]:
    return lambda handle: int(pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter))


def _located(place: int) -> Callable[[Any], Answer]:
    return lambda handle: int(
        pynvml.nvmlDeviceGetMemoryErrorCounter(handle, _UNCORRECTED, _AGGREGATE, place)
    )


def _ecc() -> list[Question]:
    kinds = (("corrected", _CORRECTED), ("uncorrected", _UNCORRECTED))
    spans = (("volatile", _VOLATILE), ("aggregate", _AGGREGATE))
    totals = [
        _one(f"ecc_{kind}_{span}", MOST_COUNT, _total(bits, counter))
        for kind, bits in kinds
        for span, counter in spans
    ]
    return [
        *totals,
        _one("dram_uncorrected", MOST_COUNT, _located(_DRAM)),
        _one("sram_uncorrected", MOST_COUNT, _located(_SRAM)),
    ]


# The calls are looked up when they are made: a binding may be older than one of them.
QUESTIONS: tuple[Question, ...] = (
    _one(Quantity.RECOVERY_ACTION, 63, _recovery),
    Question(
        (
            ("rows_remapped_corrected", _ROWS),
            (Quantity.REMAPPED_UNCORRECTABLE, _ROWS),
            (Quantity.REMAP_PENDING, 1),
            (Quantity.REMAP_FAILURE, 1),
        ),
        _remapped,
    ),
    _counters(
        (
            "banks_all_spare",
            "banks_most_spare",
            "banks_some_spare",
            "banks_few_spare",
            "banks_no_spare",
        ),
        _spare_rows,
    ),
    Question(((Quantity.RETIRED_PAGES, _ROWS), ("pages_retired_double_bit", _ROWS)), _retired),
    _flag(
        Quantity.RETIREMENT_PENDING,
        lambda handle: pynvml.nvmlDeviceGetRetiredPagesPendingStatus(handle),
    ),
    Question(
        (
            (Quantity.SRAM_THRESHOLD_EXCEEDED, 1),
            *(
                (f"sram_{place}", MOST_COUNT)
                for place in ("lost", "lost_l2", "lost_sm", "lost_pcie", "lost_mcu", "lost_other")
            ),
        ),
        _sram,
    ),
    _flag(Quantity.REPAIR_PENDING, _repair),
    _flag(
        Quantity.MEMORY_UNREPAIRABLE,
        lambda handle: pynvml.nvmlDeviceGetUnrepairableMemoryFlag_v1(handle),
    ),
    _one(Quantity.CLOCKS_EVENT_REASONS, _WORD, _slow_clocks),
    Question(
        (
            (Quantity.FABRIC_STATE, _FABRIC_JOINED),
            (Quantity.FABRIC_STATUS, 999),
            (Quantity.FABRIC_HEALTH_MASK, _WORD),
            (Quantity.FABRIC_HEALTH, 3),
        ),
        _fabric,
    ),
    Question(
        ((Quantity.PCIE_LANES_LOST, _LANES), (Quantity.PCIE_GENERATIONS_LOST, _GENERATIONS)), _bus
    ),
    _one("pcie_replays", MOST_COUNT, lambda handle: pynvml.nvmlDeviceGetPcieReplayCounter(handle)),
    *_ecc(),
    _counters(tuple(_BUS_COUNTERS), lambda handle: fields(handle, tuple(_BUS_COUNTERS.values()))),
    _one(
        "thermal_margin", MOST_COUNT, lambda handle: pynvml.nvmlDeviceGetMarginTemperature(handle)
    ),
)
