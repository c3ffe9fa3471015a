"""Multiplies matrices and holds patterns in memory on one device, twice with the same result.

The same code runs on a GPU and on the processor, where the tests run it.
"""

import time
from typing import Any

MATRIX = 4096
MEMORY_SHARE = 0.8
COPIED_BYTES = 1 << 30
COPIES = 16
ROUND = 16
PATTERNS = (0x55, 0xAA)


def check(
    torch: Any, device: Any, *, seconds: float, matrix: int = MATRIX, memory: int | None = None
) -> tuple[list[str], dict[str, float]]:
    """What is wrong with a device, in words, and how fast it was. `memory` in bytes; None = most of
    what is free.
    """
    held = int(_free(torch, device) * MEMORY_SHARE) if memory is None else memory
    figures: dict[str, float] = {}
    faults = _multiply(torch, device, seconds, matrix, figures)
    if not faults:
        faults = _copy(torch, device, min(COPIED_BYTES, held // 4), figures)
        faults += _hold(torch, device, held)
    return faults, figures


def _multiply(
    torch: Any, device: Any, seconds: float, matrix: int, figures: dict[str, float]
) -> list[str]:
    generator = torch.Generator(device).manual_seed(1)
    left, right = (
        torch.randn(matrix, matrix, device=device, dtype=torch.bfloat16, generator=generator)
        for _ in range(2)
    )
    first = left @ right
    _wait(torch, device)
    begin, rounds = time.monotonic(), 0
    while rounds == 0 or time.monotonic() - begin < seconds:
        for _ in range(ROUND):
            product = left @ right
        rounds += ROUND
        if not torch.equal(product, first):
            return ["the same product came out differently"]
    passed = max(time.monotonic() - begin, 1e-9)
    figures["gemm_teraflops"] = round(2 * matrix**3 * rounds / passed / 1e12, 4)
    return []


def _copy(torch: Any, device: Any, size: int, figures: dict[str, float]) -> list[str]:
    source = torch.full((size,), PATTERNS[0], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)  # the first time is spent on mapping
    _wait(torch, device)
    begin = time.monotonic()
    for _ in range(COPIES):
        target.copy_(source)
    _wait(torch, device)
    passed = max(time.monotonic() - begin, 1e-9)
    figures["memory_gigabytes_a_second"] = round(2 * size * COPIES / passed / 1e9, 2)
    return [] if torch.equal(source, target) else ["memory was not copied as it was"]


def _hold(torch: Any, device: Any, size: int) -> list[str]:
    held = torch.empty(size, dtype=torch.uint8, device=device)
    for pattern in PATTERNS:
        held.fill_(pattern)
        _wait(torch, device)
        if int(held.min()) != pattern or int(held.max()) != pattern:
            return ["memory did not hold a pattern"]
    return []


def _free(torch: Any, device: Any) -> int:
    free, _ = torch.cuda.mem_get_info(device)
    return int(free)


def _wait(torch: Any, device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
