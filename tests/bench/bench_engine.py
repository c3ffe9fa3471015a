"""Tokens a second of the paged engine against static batching, on the same model and KV memory.

The baseline is static batching of our own over the same decoder: batches of 16 in order of arrival, or
sorted by the true length of the response (which nobody knows beforehand), greedy, with
log-probabilities. It is leaner than generation in a library: its cache is read only as far as it is
filled, and it has no dispatch of a framework around it. Useful tokens alone are counted. CPU time is what counts on shared cores; wall time beside it.

    python tests/bench/bench_engine.py [longtail|constant|sharegpt ...]
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from support.kv_static import static_run
from support.kv_workloads import Job, jobs

from rlhf.engine import PagedEngine
from rlhf.engine_settings import Settings
from rlhf.engine_stats import EngineReport
from rlhf.generation import drain
from rlhf.kv.plan import Limits
from rlhf.model.decoder import Decoder
from rlhf.model.shape import Shape
from rlhf.sampling import Parameters

CAP, SLOTS, BLOCK = 256, 16, 16
REQUESTS = {"longtail": 64, "constant": 64, "sharegpt": 32}
PALINDROMES = {"longtail": 2, "constant": 1, "sharegpt": 1}


class Run(NamedTuple):
    """One run of one engine."""

    cpu: float
    wall: float
    tokens: list[list[int]]
    iterations: int
    report: EngineReport | None


def model() -> Decoder:
    made = Decoder(Shape(4096, 384, 4, 8, 1024, hidden=1056), seed=0).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.05, generator=generator)
    return made


def timed(run: Callable[[], tuple[list[list[int]], int, EngineReport | None]]) -> Run:
    cpu, wall = time.process_time(), time.perf_counter()
    tokens, iterations, report = run()
    return Run(time.process_time() - cpu, time.perf_counter() - wall, tokens, iterations, report)


def static(made: Decoder, work: list[Job], *, by_length: bool) -> Run:
    order = list(range(len(work)))
    if by_length:
        order.sort(key=lambda number: work[number].new)

    def run() -> tuple[list[list[int]], int, None]:
        found = static_run(made, [work[number] for number in order], SLOTS)
        by_number = dict(zip(order, found.tokens, strict=True))
        return [by_number[number] for number in range(len(work))], found.iterations, None

    return timed(run)


def paged(made: Decoder, work: list[Job], pool: int, seats: int) -> Run:
    def run() -> tuple[list[list[int]], int, EngineReport]:
        settings = Settings(blocks=pool // BLOCK, block_size=BLOCK, limits=Limits(seats=seats))
        engine = PagedEngine(made, settings=settings)
        for number, job in enumerate(work):
            wanted = Parameters(job.new, number, temperature=0.0)
            engine.submit(str(number), 0, job.prompt, wanted)
        results = drain(engine)
        report = engine.report()
        return [result.tokens for result in results], report.work.iterations, report

    return timed(run)


def compare(made: Decoder, kind: str) -> None:
    """All engines on one workload, interleaved there and back."""
    work = jobs(kind, REQUESTS[kind], CAP)
    most = 2 * CAP if kind == "sharegpt" else CAP
    longest = max(len(job.prompt) for job in work) + (CAP // 4 if kind == "constant" else CAP)
    pool = SLOTS * -(-longest // BLOCK) * BLOCK
    if kind == "constant":
        pool = 4736
    engines: dict[str, Callable[[], Run]] = {
        "static, first come": lambda: static(made, work, by_length=False),
        "static, sorted (oracle)": lambda: static(made, work, by_length=True),
        f"paged, {SLOTS} seats": lambda: paged(made, work, pool, SLOTS),
        "paged, all seats": lambda: paged(made, work, pool, len(work)),
    }
    runs: dict[str, list[Run]] = {name: [] for name in engines}
    for _ in range(PALINDROMES[kind]):
        for name in (*engines, *reversed(engines)):
            runs[name].append(engines[name]())
    useful = sum(job.new for job in work)
    prompts = sum(len(job.prompt) for job in work) / len(work)
    print(
        f"\n{kind}: {len(work)} requests, mean prompt {prompts:.1f}, {useful} useful tokens, longest "
        f"{max(job.new for job in work)} (limit {most}), pool {pool} tokens, static batch {SLOTS}"
    )
    print("engine                     CPU s   wall s  CPU ratio  wall ratio  iterations  in flight")
    first = runs["static, first come"]
    for name, found in runs.items():
        cpu, wall = (median([getattr(run, what) for run in found]) for what in ("cpu", "wall"))
        ratios = [median([getattr(run, what) for run in first]) for what in ("cpu", "wall")]
        print(
            f"{name:24} {cpu:7.2f} {wall:8.2f} {ratios[0] / cpu:10.2f} {ratios[1] / wall:11.2f} "
            f"{found[0].iterations:11} {useful / found[0].iterations:10.1f}"
        )
        differing = sum(
            one != other for one, other in zip(found[0].tokens, first[0].tokens, strict=True)
        )
        if differing:
            print(f"  {differing} of {len(work)} responses differ from the first engine's")
    last = runs["paged, all seats"][0].report
    assert last is not None
    waste = 1 - last.work.mean_live / last.work.mean_reserved
    print(
        f"  KV waste {waste:.1%}, preemptions {last.work.preemptions}, recomputed "
        f"{last.work.recomputed / last.work.computed:.1%} of all computed tokens"
    )
    stages = ", ".join(
        f"{name} p50 {one.p50 * 1e3:.2f} p99 {one.p99 * 1e3:.2f} max {one.maximum * 1e3:.2f}"
        for name, one in last.stages.items()
    )
    print(f"  ms a step: {stages}")


def main() -> None:
    torch.set_num_threads(1)
    made = model()
    static(made, jobs("constant", 8, 32), by_length=False)
    for kind in sys.argv[1:] or list(REQUESTS):
        compare(made, kind)


if __name__ == "__main__":
    main()
