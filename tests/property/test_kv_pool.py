"""The pool of blocks under random use: always free or held, found only by what it holds."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from rlhf.kv import prefix
from rlhf.kv.blocks import BlockPool, Content, Corrupted, OutOfBlocks

SIZE = 4
TOKENS = st.lists(st.integers(2, 3), min_size=1, max_size=14)


class PoolMachine(RuleBasedStateMachine):
    """Tables come, share, fork and go. The model: what was last written into each block."""

    tables = Bundle("tables")

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(9, SIZE)
        self.written: dict[int, tuple[int, ...]] = {}
        self.held: list[list[int]] = []
        self.version = 0

    @rule(target=tables, tokens=TOKENS)
    def start(self, tokens: list[int]):
        """A sequence starts on what is found, as the engine does, and writes the rest."""
        start = prefix.root(self.version)
        digests = prefix.chain(start, tokens, SIZE, [])
        found = self.pool.find(digests, start, tokens, len(tokens) - 1)
        for number, block in enumerate(found):
            expected = (self.version, *tokens[: (number + 1) * SIZE])
            assert self.written[block] == expected, "found a block of other content"
        for block in found:
            self.pool.share(block)
        table = list(found)
        needed = -(-len(tokens) // SIZE) - len(found)
        if needed > self.pool.free:
            self.pool.release(table)
            return multiple()
        table += [self.pool.take() for _ in range(needed)]
        for number in range(len(found), len(table)):
            assert self.pool.holders(table[number]) == 1, "about to write into a shared block"
            covered = tokens[: (number + 1) * SIZE]
            self.written[table[number]] = (self.version, *covered)
            if len(covered) == (number + 1) * SIZE:
                parent = digests[number - 1] if number else start
                content = Content(digests[number], parent, tuple(covered[-SIZE:]))
                self.pool.remember(table[number], content)
        self.held.append(table)
        return table

    @rule(target=tables, table=tables, length=st.integers(1, 14))
    def fork(self, table: list[int], length: int):
        if table not in self.held:
            return multiple()
        length = min(length, len(table) * SIZE)
        before = list(table), self.pool.free
        try:
            child, copy = self.pool.fork(table, length)
        except OutOfBlocks:
            assert self.pool.free == 0
            return multiple()
        assert child[: length // SIZE] == before[0][: length // SIZE]
        assert (copy is not None) == bool(length % SIZE)
        assert self.pool.free == before[1] - (copy is not None)
        if copy:
            self.written[copy.target] = self.written[copy.source]
        self.held.append(child)
        return child

    @rule(table=consumes(tables))
    def end(self, table: list[int]) -> None:
        for number, one in enumerate(self.held):
            if one is table:
                self.pool.release(self.held.pop(number))
                return

    @rule()
    def new_weights(self) -> None:
        self.version += 1

    @invariant()
    def nothing_is_lost(self) -> None:
        self.pool.audit(self.held)

    def teardown(self) -> None:
        for table in self.held:
            self.pool.release(table)
        self.pool.audit([])
        assert self.pool.free == self.pool.blocks


PoolMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
TestPool = PoolMachine.TestCase


def test_a_block_released_twice_is_noticed() -> None:
    pool = BlockPool(2, SIZE)
    table = [pool.take()]
    pool.release(table)
    with pytest.raises(Corrupted, match="nobody holds"):
        pool.release(table)
