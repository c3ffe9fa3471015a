"""The checks that prove a repaired node healthy: `python -m health.verification --gpus N --result FILE`.

Every GPU is there and the driver wants nothing for it, no memory waits for a reset, no link is down;
then each multiplies matrices and holds patterns in its memory, twice with the same result. The result
is one JSON object; the exit status is 0 when all passed. What cannot be checked has not passed.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pynvml

from health.events import Quantity
from health.nvml_calls import Questioner

# A value other than these keeps a node out; None = this GPU or driver does not tell.
_WELL = {
    Quantity.RECOVERY_ACTION: (0, None),
    Quantity.REMAP_PENDING: (0, None),
    Quantity.REMAP_FAILURE: (0, None),
    Quantity.RETIREMENT_PENDING: (0, None),
    Quantity.REPAIR_PENDING: (0, None),
    Quantity.MEMORY_UNREPAIRABLE: (0, None),
    Quantity.SRAM_THRESHOLD_EXCEEDED: (0, None),
    Quantity.LINKS_DOWN: (0, None),
    Quantity.FABRIC_STATE: (0, 3, None),
}
MATRIX = 4096
MEMORY_SHARE = 0.8
MAX_RESULT_BYTES = 4000  # what a termination message holds
_PATTERNS = (0x55, 0xAA)
MISSING = "missing"
MISCOMPUTES = "miscomputes"
SIMULATED_MATRIX = 48
SIMULATED_BYTES = 1 << 20


def nvml_faults(expected: int) -> list[str]:
    """What NVML says against the node, in words."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [f"NVML does not work: {error}"]
    try:
        found = pynvml.nvmlDeviceGetCount()
        faults = [] if found >= expected else [f"{found} GPUs are there of {expected}"]
        questioner = Questioner(lambda: True)
        for index in range(found):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            except pynvml.NVMLError as error:
                faults.append(f"GPU {index}: {error}")
                continue
            answer = questioner.ask((0, 0, index), handle)
            faults += [f"GPU {index}: {fault}" for fault in value_faults(answer.values)]
            if answer.error:
                faults.append(f"GPU {index}: NVML error {answer.error}")
        return faults
    except pynvml.NVMLError as error:
        return [f"NVML does not answer: {error}"]
    finally:
        pynvml.nvmlShutdown()


def value_faults(values: Mapping[str, int | None]) -> list[str]:
    """Which values are not as those of a healthy GPU."""
    return [
        f"{quantity.value} is {values.get(quantity.value)}"
        for quantity, well in _WELL.items()
        if values.get(quantity.value) not in well
    ]


def compute_faults(expected: int, seconds: float, measured: dict[str, float]) -> list[str]:
    """Multiplies matrices and tests memory on every GPU; puts the speed into `measured`."""
    try:
        import torch
    except ModuleNotFoundError:
        return ["the image has no torch, so nothing was computed"]
    if not torch.cuda.is_available() or torch.cuda.device_count() < expected:
        return [f"CUDA sees {torch.cuda.device_count()} GPUs of {expected}"]
    faults = []
    for index in range(expected):
        try:
            faults += _multiply(torch, index, seconds / expected, measured)
            faults += _hold(torch, index)
        except RuntimeError as error:
            faults.append(f"GPU {index}: {str(error).splitlines()[0]}")
    return faults


def _multiply(torch: Any, index: int, seconds: float, measured: dict[str, float]) -> list[str]:
    device = torch.device("cuda", index)
    generator = torch.Generator(device).manual_seed(index)
    left, right = (
        torch.randn(MATRIX, MATRIX, device=device, dtype=torch.bfloat16, generator=generator)
        for _ in range(2)
    )
    first = left @ right
    torch.cuda.synchronize(device)
    begin, rounds = time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        for _ in range(16):
            product = left @ right
        rounds += 16
        if not torch.equal(product, first):
            return [f"GPU {index}: the same product came out differently"]
    passed = time.monotonic() - begin
    measured[f"teraflops{index}"] = round(2 * MATRIX**3 * rounds / passed / 1e12, 1)
    return []


def _hold(torch: Any, index: int) -> list[str]:
    device = torch.device("cuda", index)
    free, _ = torch.cuda.mem_get_info(device)
    held = torch.empty(int(free * MEMORY_SHARE), dtype=torch.uint8, device=device)
    for pattern in _PATTERNS:
        held.fill_(pattern)
        torch.cuda.synchronize(device)
        if int(held.min()) != pattern or int(held.max()) != pattern:
            return [f"GPU {index}: memory did not hold a pattern"]
    return []


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
            4 * SIMULATED_MATRIX**3 / max(time.monotonic() - began, 1e-6) / 1e6, 1
        )
        for pattern in _PATTERNS:
            held = bytearray([pattern]) * SIMULATED_BYTES
            if held.count(pattern) != SIMULATED_BYTES:
                faults.append(f"GPU {index}: memory did not hold a pattern")
    return faults


def _product(seed: int, off: int) -> list[list[int]]:
    size = range(SIMULATED_MATRIX)
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


def verify(
    expected: int, *, seconds: float, simulated: Mapping[str, Mapping[str, int]] | None = None
) -> dict[str, Any]:
    """All checks; stops at the first kind that fails, since the next would only hang. `simulated`
    says how GPUs are that exist only by name.
    """
    measured: dict[str, float] = {}
    checks: list[tuple[str, Callable[[], list[str]]]] = [
        ("nvml", lambda: nvml_faults(expected)),
        ("compute", lambda: compute_faults(expected, seconds, measured)),
    ]
    if simulated is not None:
        checks = [
            ("names", lambda: simulated_faults(expected, os.environ, simulated)),
            ("compute", lambda: simulated_compute_faults(expected, simulated, measured)),
        ]
    if expected == 0:
        checks = []
    for name, check in checks:
        faults = check()
        if faults:
            return {"passed": False, "check": name, "faults": faults[:20], **measured}
    return {"passed": True, "checks": [name for name, _ in checks], **measured}


def main(arguments: list[str] | None = None) -> int:
    """Runs the checks and writes the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus", type=int, required=True, help="how many there should be")
    parser.add_argument("--result", type=Path, required=True, help="file for the result")
    parser.add_argument("--seconds", type=float, default=60.0, help="of multiplying, in all")
    parser.add_argument(
        "--simulated", type=Path, nargs="?", const=Path(os.devnull), metavar="FILE",
        help="the GPUs exist only by name; FILE says which are not well",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    simulated = None
    if given.simulated is not None:
        simulated = simulated_gpus(given.simulated if given.simulated.is_file() else None)
    result = verify(given.gpus, seconds=given.seconds, simulated=simulated)
    text = json.dumps(result)
    if len(text) > MAX_RESULT_BYTES:
        text = json.dumps({"passed": result["passed"], "check": result.get("check")})
    given.result.write_text(text)
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
