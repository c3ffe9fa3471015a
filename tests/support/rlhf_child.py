"""A process that runs a whole stream and can be killed at any instant: tests start it again.

    python -m support.rlhf_child FOLDER BATCHES

It prints a line per update, and `done DIGEST WEIGHTS` at the end; WEIGHTS is a number that depends on
every sample it was trained on and on their order, and is saved with each checkpoint.
"""

import asyncio
import json
import random
import sys
from pathlib import Path

import msgspec
from support.rlhf_stream import reward_for, shape, tokens

from rlhf.queue_shell import QueueShell
from rlhf.responses import Response
from rlhf.reward_queue_types import Batch, Checkpoint, EndOfStream

STREAM = shape(batch_size=8, group_size=2, lag=2)
PRIME = (1 << 61) - 1


async def rollout(queue: QueueShell) -> None:
    while not isinstance(slot := await queue.dispatch("rollout"), EndOfStream):
        await asyncio.sleep(0)
        queue.submit(slot, Response(*tokens(slot)))


async def grading(queue: QueueShell, chance: random.Random) -> None:
    while (claim := await queue.claim("grader")) is not None:
        for _ in range(chance.randrange(5)):
            await asyncio.sleep(0)
        queue.answer(claim.envelope, reward_for(claim.envelope))


def trained_on(weights: int, batch: Batch) -> int:
    """The next weights: order matters, and so does every reward."""
    for each in batch.samples:
        reward = int(each.score.reward * 2**32)
        weights = (weights * 31 + reward + each.envelope.seq) % PRIME
    return weights


async def run(folder: Path, batches: int) -> None:
    saved, weights = loaded(folder)
    async with await QueueShell.open(folder, STREAM, checkpoint=saved) as queue:
        queue.end(batches * STREAM.batch_size)
        async with asyncio.TaskGroup() as group:
            group.create_task(rollout(queue))
            for _ in range(3):
                group.create_task(grading(queue, random.Random()))
            while isinstance(batch := await queue.take(60), Batch):
                weights = trained_on(weights, batch)
                queue.mark_trained(batch.number)
                print("trained", batch.number, flush=True)
                if batch.number % 3 == 2:
                    save(folder, await queue.checkpoint(), weights)
                    if batch.number > 5:
                        await queue.compact(batch.number - 2)
        print("done", queue.queue.order_digest, weights, flush=True)


def save(folder: Path, checkpoint: Checkpoint, weights: int) -> None:
    text = json.dumps({"queue": msgspec.to_builtins(checkpoint), "weights": weights})
    (folder / "checkpoint.new").write_text(text)
    (folder / "checkpoint.new").replace(folder / "checkpoint.json")


def loaded(folder: Path) -> tuple[Checkpoint | None, int]:
    try:
        found = json.loads((folder / "checkpoint.json").read_text())
    except FileNotFoundError:
        return None, 0
    return msgspec.convert(found["queue"], Checkpoint), found["weights"]


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), int(sys.argv[2])))
