"""Streams for tests: token ids and rewards as pure functions of a slot, and a run of a queue."""

import random

from rlhf.identity import Digests, Envelope, Score, Shape, digests, reserve_key
from rlhf.reward_queue import RewardQueue
from rlhf.reward_queue_types import Batch, Slot


def shape(**changes) -> Shape:
    return Shape(
        **{"run_id": "run", "seed": 7, "batch_size": 4, "group_size": 2, "lag": 1, **changes}
    )


def tokens(slot: Slot, seed: int = 7) -> tuple[list[int], list[int]]:
    """Prompt and response of a slot: the prompt of its group, a response of its own."""
    key = slot.group_id if slot.draw == 0 else reserve_key(seed, slot.first_seq, slot.draw)
    chance = random.Random(f"{key}/{slot.draw}")
    prompt = [chance.randrange(50_000) for _ in range(4)]
    own = random.Random(f"{seed}/{slot.seq}/{slot.draw}/{slot.policy_version}")
    return prompt, [own.randrange(50_000) for _ in range(6)]


def digests_of(slot: Slot, seed: int = 7) -> Digests:
    return digests(*tokens(slot, seed))


def reward_for(envelope: Envelope) -> Score:
    """The reward of a sample: a number made of the hash of its tokens, which none other has."""
    value = int(envelope.response_digest[:8], 16) / 2**32
    return Score(value, {"part": value})


def mispaired(batch: Batch) -> list[int]:
    """Slots of a batch whose reward is another sample's."""
    return [each.envelope.seq for each in batch.samples if each.score != reward_for(each.envelope)]


def fill(queue: RewardQueue, now: float = 0.0) -> list[Slot]:
    """Dispatches and submits as many slots as the queue gives."""
    filled = []
    while (slot := queue.dispatch(now, "rollout")) is not None:
        queue.submit(slot, *digests_of(slot), now, b"payload")
        filled.append(slot)
    return filled


def grade(queue: RewardQueue, now: float = 0.0) -> list[Envelope]:
    """Claims and answers all that waits."""
    done = []
    while (claim := queue.claim(now, "grader")) is not None:
        queue.answer(claim.envelope, reward_for(claim.envelope), now)
        done.append(claim.envelope)
    return done


def run(queue: RewardQueue, batches: int, now: float = 0.0) -> list[Batch]:
    """Runs a queue for so many batches, everything at once."""
    taken: list[Batch] = []
    while len(taken) < batches:
        fill(queue, now)
        grade(queue, now)
        batch = queue.take(now)
        assert isinstance(batch, Batch), batch
        queue.mark_trained(batch.number, now)
        taken.append(batch)
    return taken
