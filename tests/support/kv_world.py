"""A memory that knows what was written into each place, and a driver of steps that checks it.

The place of a token's keys and values is worth exactly what went into it: all tokens up to it, and
the weights. So the memory stores these, and every token that attends looks at what it really sees.
"""

import random
from collections.abc import Callable
from collections.abc import Sequence as Sized
from dataclasses import dataclass, field
from typing import NamedTuple

from rlhf.kv.blocks import BlockPool
from rlhf.kv.plan import Ended, Limits, Plan
from rlhf.kv.scheduler import Scheduler
from rlhf.kv.sequence import Sequence
from rlhf.kv.waiting import Order


class Written(NamedTuple):
    """What keys and values of one token are made of."""

    tokens: tuple[int, ...]
    version: int


class WrongMemory(AssertionError):
    """A sequence attended to keys and values that are not its own."""


@dataclass
class World:
    """A scheduler over a memory that is checked, with tokens drawn by a rule of the test."""

    blocks: int = 40
    block_size: int = 4
    limits: Limits = field(default_factory=lambda: Limits(seats=8, budget=32, chunk=8))
    order: Order = field(default_factory=Order)
    draw: Callable[[Sequence], int] | None = None
    audited: bool = True

    def __post_init__(self) -> None:
        self.pool = BlockPool(self.blocks, self.block_size)
        self.scheduler = Scheduler(self.pool, self.limits, self.order)
        self.memory: dict[int, Written] = {}
        self.ended: list[Ended] = []
        self.carrying = False
        self.next_uid = 0
        self.oldest_preempted = 0

    def submit(self, prompt: Sized[int], new: int, **more: object) -> Sequence:
        """Hands a request in."""
        sequence = Sequence(self.next_uid, list(prompt), new, **more)  # type: ignore[arg-type]
        self.next_uid += 1
        self.scheduler.submit(sequence)
        return sequence

    def step(self) -> list[Ended]:
        """One step: plan, write and attend, draw, commit."""
        before = self.scheduler.running_sequences()
        plan = self.scheduler.plan()
        if before and before[0].uid in self.scheduler.waiting:
            self.oldest_preempted += 1
        self.compute(plan)
        drawn = [self.drawn(sequence) for sequence in plan.drawing()]
        ended = self.scheduler.commit(plan, drawn)
        for source, target in plan.copies:
            for place in range(self.block_size):
                entry = self.memory.get(source * self.block_size + place)
                self.memory.pop(target * self.block_size + place, None)
                if entry is not None:
                    self.memory[target * self.block_size + place] = entry
        self.ended += ended
        if self.audited:
            self.scheduler.audit()
        return ended

    def drawn(self, sequence: Sequence) -> int:
        """The next token: the test's, or one that depends on the tokens before it alone."""
        if self.draw is not None:
            return self.draw(sequence)
        return random.Random(f"{sequence.uid}/{sequence.tokens}").randrange(2, 50)

    def compute(self, plan: Plan) -> None:
        """Writes what the plan says, then lets every new token look at all before it."""
        for block in plan.fresh:
            for place in range(self.block_size):
                self.memory.pop(block * self.block_size + place, None)
        work = [(one, one.computed, 1) for one in plan.decoding]
        work += [(chunk.sequence, chunk.start, chunk.length) for chunk in plan.chunks]
        touched: list[int] = []
        for sequence, start, length in work:
            for position in range(start, start + length):
                place = self.place(sequence, position)
                touched.append(place)
                self.memory[place] = Written(
                    tuple(sequence.tokens[: position + 1]), self.scheduler.version
                )
        assert len(set(touched)) == len(touched), "two sequences write to one place in one step"
        for sequence, start, length in work:
            for position in range(start + length):
                self.attend(sequence, position)

    def attend(self, sequence: Sequence, position: int) -> None:
        """Fails when the place does not hold what the sequence takes it for."""
        seen = self.memory.get(self.place(sequence, position))
        if seen is None or seen.tokens != tuple(sequence.tokens[: position + 1]):
            raise WrongMemory(f"sequence {sequence.uid} at {position} sees {seen}")
        oldest = sequence.kv_version if self.carrying else self.scheduler.version
        if not oldest <= seen.version <= self.scheduler.version:
            raise WrongMemory(f"sequence {sequence.uid} at {position} sees stale {seen.version}")

    def place(self, sequence: Sequence, position: int) -> int:
        """The slot of a token's keys and values."""
        return sequence.blocks[position // self.block_size] * self.block_size + (
            position % self.block_size
        )

    def drain(self, most: int = 20_000) -> list[Ended]:
        """Steps until nobody is left; all that has ended."""
        for _ in range(most):
            if not (self.scheduler.running or self.scheduler.waiting):
                break
            self.step()
        else:
            raise AssertionError(f"not done after {most} steps")
        return self.ended

    def empty(self) -> bool:
        """Whether every block is back."""
        self.scheduler.audit()
        return self.pool.free == self.pool.blocks and self.pool.references == 0
