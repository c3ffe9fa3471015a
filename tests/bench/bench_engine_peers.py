"""Tokens a second of the paged engine against Hugging Face's: static batches and continuous batching.

One model for all, a random Llama of the library (4 layers, width 384, 8 heads over 4 of keys), on one
thread, greedy, no end token: every request runs to its own length, and useful tokens alone count.

- static: the library's `generate` on batches of 16, padded on the left, in order of arrival, or
  sorted by the true length of the response (which nobody knows beforehand). Without log-probabilities.
- continuous batching: the library's manager, pages of 16, its prefix sharing on, the same pool of
  tokens as ours, with log-probabilities. Making the engine is part of the time, for both.

Runs are interleaved there and back; the medians of CPU seconds (all threads) decide, wall time stands
beside them. On shared cores wall time says little.

    python tests/bench/bench_engine_peers.py [longtail|constant|sharegpt|tight ...] [--rounds N]
"""

import argparse
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import transformers
from support.kv_workloads import Job, jobs

from rlhf.engine import PagedEngine
from rlhf.engine_settings import Settings
from rlhf.engine_stats import EngineReport
from rlhf.generation import drain
from rlhf.kv.plan import Limits
from rlhf.model.huggingface import HuggingFaceModel
from rlhf.sampling import Parameters

CAP, BLOCK, BUDGET = 256, 16, 1024
VOCABULARY, CONTEXT = 4096, 1024


class Workload(NamedTuple):
    """`slots` rows of a static batch; the pool holds as many of the longest."""

    kind: str
    requests: int
    slots: int
    rounds: int


WORKLOADS = {
    "longtail": Workload("longtail", 64, 16, 2),
    "constant": Workload("constant", 64, 16, 2),
    "sharegpt": Workload("sharegpt", 32, 16, 1),
    "tight": Workload("longtail", 32, 4, 1),
}


class Outcome(NamedTuple):
    """What an engine gave."""

    tokens: list[list[int]]
    iterations: int
    report: EngineReport | None = None


class Run(NamedTuple):
    """One run of one engine, in seconds."""

    cpu: float
    wall: float
    outcome: Outcome


def model() -> HuggingFaceModel:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=384,
        intermediate_size=1056,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT,
        eos_token_id=None,
        bos_token_id=1,
        pad_token_id=0,
    )
    causal: Any = transformers.LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in causal.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.05, generator=generator)
    return HuggingFaceModel(causal)


def static(made: HuggingFaceModel, work: list[Job], slots: int, *, by_length: bool) -> Outcome:
    """`generate`, batch after batch."""
    order = list(range(len(work)))
    if by_length:
        order.sort(key=lambda number: work[number].new)
    tokens: list[list[int]] = [[] for _ in work]
    iterations = 0
    for first in range(0, len(order), slots):
        part = order[first : first + slots]
        widest = max(len(work[number].prompt) for number in part)
        longest = max(work[number].new for number in part)
        rows = [[0] * (widest - len(work[n].prompt)) + work[n].prompt for n in part]
        seen = [[0] * (widest - len(work[n].prompt)) + [1] * len(work[n].prompt) for n in part]
        causal: Any = made.causal
        with torch.inference_mode():
            written = causal.generate(
                torch.tensor(rows),
                attention_mask=torch.tensor(seen),
                max_new_tokens=longest,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
        for number, row in zip(part, written[:, widest:].tolist(), strict=True):
            tokens[number] = row[: work[number].new]
        iterations += longest
    return Outcome(tokens, iterations)


def continuous(made: HuggingFaceModel, work: list[Job], pool: int, seats: int) -> Outcome:
    """The library's manager, from its making to its last result."""
    causal: Any = made.causal
    manager = causal.init_continuous_batching(
        generation_config=transformers.GenerationConfig(do_sample=False, eos_token_id=-1),
        continuous_batching_config=transformers.ContinuousBatchingConfig(
            page_size=BLOCK,
            num_blocks=pool // BLOCK,
            max_batch_tokens=BUDGET,
            max_requests_per_batch=seats,
            return_logprobs=True,
        ),
    )
    manager.start()
    tokens: list[list[int]] = [[] for _ in work]
    try:
        for number, job in enumerate(work):
            manager.add_request(job.prompt, str(number), max_new_tokens=job.new, eos_token_id=[-1])
        for _ in work:
            output = manager.get_result(timeout=600)
            if output is None or output.error:
                raise RuntimeError(f"continuous batching: {output and output.error}")
            tokens[int(output.request_id)] = output.generated_tokens
        return Outcome(tokens, manager.current_batch)
    finally:
        manager.stop(block=True, timeout=60)


def paged(made: HuggingFaceModel, work: list[Job], pool: int, seats: int) -> Outcome:
    """Ours."""
    limits = Limits(seats=seats, budget=max(BUDGET, seats))
    settings = Settings(blocks=pool // BLOCK, block_size=BLOCK, limits=limits)
    engine = PagedEngine(made, settings=settings)
    for number, job in enumerate(work):
        engine.submit(str(number), 0, job.prompt, Parameters(job.new, number, temperature=0.0))
    results = drain(engine)
    report = engine.report()
    return Outcome([result.tokens for result in results], report.work.iterations, report)


def timed(run: Callable[[], Outcome]) -> Run:
    cpu, wall = time.process_time(), time.perf_counter()
    outcome = run()
    return Run(time.process_time() - cpu, time.perf_counter() - wall, outcome)


def compare(made: HuggingFaceModel, name: str, rounds: int | None) -> None:
    """All engines on one workload, interleaved there and back."""
    wanted = WORKLOADS[name]
    work = jobs(wanted.kind, wanted.requests, CAP, VOCABULARY)
    longest = max(len(job.prompt) for job in work) + CAP
    pool = wanted.slots * longest // BLOCK * BLOCK
    slots, every = wanted.slots, len(work)
    engines: dict[str, Callable[[], Outcome]] = {
        "static, first come": lambda: static(made, work, slots, by_length=False),
        "static, sorted (oracle)": lambda: static(made, work, slots, by_length=True),
        f"continuous, {slots} seats": lambda: continuous(made, work, pool, slots),
        "continuous, all seats": lambda: continuous(made, work, pool, every),
        f"ours, {slots} seats": lambda: paged(made, work, pool, slots),
        "ours, all seats": lambda: paged(made, work, pool, every),
    }
    runs: dict[str, list[Run]] = {each: [] for each in engines}
    for _ in range(rounds or wanted.rounds):
        for each in (*engines, *reversed(engines)):
            runs[each].append(timed(engines[each]))
    _print(name, wanted, work, pool, runs)


def _print(
    name: str, wanted: Workload, work: list[Job], pool: int, runs: dict[str, list[Run]]
) -> None:
    useful = sum(job.new for job in work)
    print(
        f"\n{name}: {len(work)} requests, mean prompt "
        f"{sum(len(job.prompt) for job in work) / len(work):.1f}, {useful} useful tokens, longest "
        f"{max(job.new for job in work)}, pool {pool} tokens, static batch {wanted.slots}"
    )
    print(f"{'engine':25}  CPU s   wall s  CPU ratio  wall ratio  iterations  in flight")

    def middle(each: str, what: str) -> float:
        return median([getattr(run, what) for run in runs[each]])

    for each, found in runs.items():
        cpu, wall = middle(each, "cpu"), middle(each, "wall")
        first = runs["static, first come"][0].outcome.tokens
        outcome = found[0].outcome
        print(
            f"{each:24} {cpu:7.2f} {wall:8.2f} {middle('static, first come', 'cpu') / cpu:10.2f} "
            f"{middle('static, first come', 'wall') / wall:11.2f} {outcome.iterations:11} "
            f"{useful / outcome.iterations:10.1f}"
        )
        other = sum(one != two for one, two in zip(outcome.tokens, first, strict=True))
        if other:
            print(f"  {other} of {len(work)} responses differ from the first engine's")
    for seats in (f"{wanted.slots} seats", "all seats"):
        ratios = [
            middle(f"continuous, {seats}", what) / middle(f"ours, {seats}", what)
            for what in ("cpu", "wall")
        ]
        print(
            f"  ours over continuous batching, {seats}: CPU {ratios[0]:.2f}, wall {ratios[1]:.2f}"
        )
    report = runs["ours, all seats"][0].outcome.report
    assert report is not None
    print(
        f"  ours: KV waste {1 - report.work.mean_live / report.work.mean_reserved:.1%}, "
        f"{report.work.preemptions} preemptions, recomputed "
        f"{report.work.recomputed / report.work.computed:.1%} of all computed tokens"
    )
    stages = ", ".join(
        f"{stage} p50 {one.p50 * 1e3:.2f} p99 {one.p99 * 1e3:.2f} max {one.maximum * 1e3:.2f}"
        for stage, one in report.stages.items()
    )
    print(f"  ours, ms a step: {stages}")


def main() -> None:
    parser = argparse.ArgumentParser(description="The paged engine against Hugging Face's.")
    parser.add_argument("workloads", nargs="*", default=[*WORKLOADS], metavar="|".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, help="there-and-backs of each workload")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    # It complains of a missing psutil, which it needs only to size a cache by itself.
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
    transformers.logging.set_verbosity_error()
    made = model()
    few = jobs("constant", 4, 32, VOCABULARY)
    for warm in (
        static(made, few, 4, by_length=False),
        continuous(made, few, 1024, 4),
        paged(made, few, 1024, 4),
    ):
        assert all(warm.tokens)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, 1 thread, float32")
    for name in asked.workloads:
        compare(made, name, asked.rounds)


if __name__ == "__main__":
    main()
