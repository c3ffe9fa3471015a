"""How much of the KV memory is used, and how many requests it serves: pages against reservations.

Token-exact and without a model: the real scheduler over its blocks, against contiguous memory that is
reserved for each request's prompt and longest possible, next power of two of, or true response, and
against static batches that are padded to their longest prompt and run to their longest response. Waste is 1 - live tokens / reserved places,
summed over iterations.

    python tests/bench/bench_engine_memory.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from typing import NamedTuple

from support.kv_workloads import Job, jobs

from rlhf.kv.blocks import BlockPool
from rlhf.kv.plan import Limits
from rlhf.kv.scheduler import Scheduler
from rlhf.kv.sequence import Sequence
from rlhf.kv.waiting import Order

CAP, SLOTS = 512, 16


class Use(NamedTuple):
    """Sums over a run. `crowd` is the mean number in flight while others wait."""

    waste: float
    iterations: int
    crowd: float
    peak: int


def paged(work: list[Job], tokens: int, block: int = 16, seats: int = 4096) -> Use:
    """The scheduler itself, with tokens that nobody computes."""
    pool = BlockPool(tokens // block, block)
    limits = Limits(seats=seats, budget=1 << 20, chunk=1 << 20)
    scheduler = Scheduler(pool, limits, Order(longest_first=False))
    for uid, job in enumerate(work):
        scheduler.submit(Sequence(uid, job.prompt, job.new))
    live = reserved = crowd = crowded = peak = 0
    while scheduler.busy:
        plan = scheduler.plan()
        live += scheduler.holdings.live_tokens + plan.tokens
        reserved += pool.held * block
        peak = max(peak, scheduler.running)
        if scheduler.waiting:
            crowd += scheduler.running
            crowded += 1
        scheduler.commit(plan, [1] * len(plan.drawing()))
    return Use(1 - live / reserved, scheduler.steps, crowd / max(1, crowded), peak)


def contiguous(work: list[Job], tokens: int, room: list[int]) -> Use:
    """Each request holds its prompt and `room` from its first token to its last, first come."""
    waiting = list(range(len(work)))
    running: dict[int, int] = {}
    free = tokens
    live = reserved = crowd = crowded = iterations = peak = 0
    while waiting or running:
        while waiting and len(work[waiting[0]].prompt) + room[waiting[0]] <= free:
            number = waiting.pop(0)
            free -= len(work[number].prompt) + room[number]
            running[number] = 0
        iterations += 1
        live += sum(len(work[one].prompt) + done for one, done in running.items())
        reserved += sum(len(work[one].prompt) + room[one] for one in running)
        peak = max(peak, len(running))
        if waiting:
            crowd += len(running)
            crowded += 1
        for number in list(running):
            running[number] += 1
            if running[number] == work[number].new:
                free += len(work[number].prompt) + room[number]
                del running[number]
    return Use(1 - live / reserved, iterations, crowd / max(1, crowded), peak)


def static(work: list[Job], batch: int = SLOTS) -> float:
    """The waste of batches in lock-step, padded to the longest prompt and response."""
    live = reserved = 0
    for first in range(0, len(work), batch):
        part = work[first : first + batch]
        widest = max(len(job.prompt) for job in part)
        for step in range(max(job.new for job in part)):
            live += sum(len(job.prompt) + step for job in part if step < job.new)
            reserved += (widest + step) * len(part)
    return 1 - live / reserved


def power_of_two(length: int) -> int:
    return 1 << (length - 1).bit_length()


def main() -> None:
    print(f"waste of KV memory, 64 requests, responses to {CAP}, {SLOTS} slots' worth of memory")
    print("workload     pool   max-length   pow2  oracle  static   paged-16   iterations")
    for kind in ("longtail", "alpaca", "sharegpt", "uniform", "constant"):
        most = 2 * CAP if kind == "sharegpt" else CAP
        work = jobs(kind, 64, CAP)
        pool = SLOTS * (max(len(job.prompt) for job in work) + most) // 16 * 16
        reserve = contiguous(work, pool, [most] * len(work))
        pow2 = contiguous(work, pool, [power_of_two(job.new) for job in work])
        oracle = contiguous(work, pool, [job.new for job in work])
        ours = paged(work, pool)
        print(
            f"{kind:10} {pool:6} {reserve.waste:11.1%} {pow2.waste:7.1%} {oracle.waste:7.1%} "
            f"{static(work):7.1%} {ours.waste:10.1%}   {reserve.iterations:5} -> {ours.iterations}"
        )
    print("\nwaste by block size")
    sizes = (1, 8, 16, 32, 64, 128, 256)
    print("workload  " + "".join(f"{size:>8}" for size in sizes))
    for kind in ("longtail", "alpaca", "sharegpt"):
        work = jobs(kind, 64, CAP)
        most = 2 * CAP if kind == "sharegpt" else CAP
        pool = SLOTS * (max(len(job.prompt) for job in work) + most) // 256 * 256
        print(f"{kind:10}" + "".join(f"{paged(work, pool, size).waste:8.1%}" for size in sizes))
    print("\nrequests in flight while others wait, 2000 requests, the same memory")
    print("workload   responses to     pool   max-length   paged-16   ratio")
    # The last rows are of requests that may be long and mostly are not: the longest tails.
    for kind, cap in (
        ("longtail", CAP),
        ("alpaca", CAP),
        ("sharegpt", CAP),
        ("uniform", CAP),
        ("constant", CAP),
        ("alpaca", 2048),
        ("longtail", 2048),
    ):
        most = 2 * cap if kind == "sharegpt" else cap
        work = jobs(kind, 2000, cap)
        pool = SLOTS * (max(len(job.prompt) for job in work) + most) // 16 * 16
        reserve = contiguous(work, pool, [most] * len(work))
        ours = paged(work, pool)
        print(
            f"{kind:10} {most:12} {pool:8} {reserve.crowd:12.1f} {ours.crowd:10.1f} "
            f"{ours.crowd / reserve.crowd:7.1f}"
        )


if __name__ == "__main__":
    main()
