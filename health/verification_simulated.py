"""The checks of GPUs that exist only by name: the same questions, answered by a file and this processor."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

from health.verification_values import value_faults

MISSING = "missing"
MISCOMPUTES = "miscomputes"
MATRIX = 48
BYTES = 1 << 20
PATTERNS = (0x55, 0xAA)


def simulated_faults(
    expected: int, environment: Mapping[str, str], broken: Mapping[str, Mapping[str, int]]
) -> list[str]:
    """The same questions about GPUs that exist only by name. `broken` says of some, by index, which
    quantities are not well, or that they are MISSING or compute wrong (MISCOMPUTES).
    """
    names = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    there = len(names) - sum(bool(values.get(MISSING)) for values in broken.values())
    faults = [] if there >= expected else [f"{there} GPUs are there of {expected}"]
    for index, values in sorted(broken.items()):
        faults += [f"GPU {index}: {fault}" for fault in value_faults(values)]
    return faults


def simulated_compute_faults(
    expected: int, broken: Mapping[str, Mapping[str, int]], measured: dict[str, float]
) -> list[str]:
    """A product and a pattern on the processor, in the place of each GPU; twice with one result."""
    faults = []
    for index in range(expected):
        began = time.monotonic()
        off = int(bool(broken.get(str(index), {}).get(MISCOMPUTES)))
        if _product(index, 0) != _product(index, off):
            faults.append(f"GPU {index}: the same product came out differently")
        measured[f"megaflops{index}"] = round(
            4 * MATRIX**3 / max(time.monotonic() - began, 1e-6) / 1e6, 1
        )
        for pattern in PATTERNS:
            held = bytearray([pattern]) * BYTES
            if held.count(pattern) != BYTES:
                faults.append(f"GPU {index}: memory did not hold a pattern")
    return faults


def _product(seed: int, off: int) -> list[list[int]]:
    size = range(MATRIX)
    left = [[(row * 31 + column * 17 + seed) % 97 for column in size] for row in size]
    right = [[(row * 13 + column * 29 + seed) % 89 for row in size] for column in size]
    return [
        [sum(a * b for a, b in zip(row, column, strict=True)) + off for column in right]
        for row in left
    ]


def simulated_gpus(file: Path | None) -> dict[str, dict[str, int]]:
    """What the file says of GPUs that are not well; a file that is not there says nothing.

    Raises ValueError for a file that says something else.
    """
    try:
        told = json.loads(file.read_text()) if file is not None else {}
    except FileNotFoundError:
        return {}
    if not isinstance(told, dict) or not all(isinstance(one, dict) for one in told.values()):
        raise ValueError(f"{file} does not say how GPUs are")
    return told
