"""How many sequence-steps a second the scheduler makes, alone: no model, no tensor.

A sequence-step is one running sequence that gets its next token: room for it found, its block
remembered by digest when full, its policy version noted, its end decided. Versions, references,
forks and chunked prompts are on. The baseline in the same run is the least that any engine in Python
does per token: append it to a list and compare with two limits.

    python tests/bench/bench_engine_scheduler.py
"""

import random
import time

from rlhf.kv.blocks import BlockPool
from rlhf.kv.plan import Limits
from rlhf.kv.scheduler import Scheduler
from rlhf.kv.sequence import Sequence

GROUP = 4


def loaded(sequences: int, steps: int) -> Scheduler:
    """A scheduler with so many sequences decoding, of prompts read in chunks and shared by four."""
    chance = random.Random("bench/0")
    pool = BlockPool(sequences * (40 + steps // 16 + 2), 16)
    limits = Limits(seats=sequences, budget=sequences + 4096, chunk=128)
    scheduler = Scheduler(pool, limits)
    for uid in range(sequences):
        if uid % GROUP == 0:
            prompt = [chance.randrange(3, 4096) for _ in range(chance.randrange(16, 600))]
        scheduler.submit(Sequence(uid, prompt, steps + 400, stops=(0,), group=str(uid // GROUP)))
    while scheduler.waiting or any(one.left > 1 for one in scheduler.running_sequences()):
        plan = scheduler.plan()
        scheduler.commit(plan, [7] * len(plan.drawing()))
    return scheduler


def measured(sequences: int, steps: int = 100) -> tuple[float, float]:
    """Sequence-steps a CPU second of the scheduler, and of the baseline."""
    scheduler = loaded(sequences, steps)
    drawn = [3 + row for row in range(sequences)]
    begun = time.process_time()
    for _ in range(steps):
        scheduler.commit(scheduler.plan(), drawn)
    ours = time.process_time() - begun
    scheduler.audit()
    lists = [[0] * 100 for _ in range(sequences)]
    begun = time.process_time()
    for _ in range(steps):
        for tokens, token in zip(lists, drawn, strict=True):
            tokens.append(token)
            if token == 0 or len(tokens) >= 10_000:
                break
    least = time.process_time() - begun
    return sequences * steps / ours, sequences * steps / least


def main() -> None:
    print("running   sequence-steps/CPU s   bare list appends/CPU s   ratio")
    for sequences in (10, 100, 1000, 4000):
        runs = [measured(sequences) for _ in range(3)]
        ours = sorted(one for one, _ in runs)[1]
        least = sorted(other for _, other in runs)[1]
        print(f"{sequences:7}   {ours:20,.0f}   {least:23,.0f}   {ours / least:5.2f}")


if __name__ == "__main__":
    main()
