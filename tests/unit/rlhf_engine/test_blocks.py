"""The pool of blocks: who holds what, what is found again, and what a fault is told by."""

import pytest

from rlhf.kv import prefix
from rlhf.kv.blocks import NULL_BLOCK, BlockPool, Content, Corrupted, OutOfBlocks

TOKENS = [11, 12, 13, 14]


def filled(pool: BlockPool, tokens: list[int], version: int = 0) -> list[int]:
    """A table whose full blocks are findable."""
    size = pool.block_size
    start = prefix.root(version)
    digests = prefix.chain(start, tokens, size, [])
    table = [pool.take() for _ in range(-(-len(tokens) // size))]
    for number, digest in enumerate(digests):
        parent = digests[number - 1] if number else start
        words = tuple(tokens[number * size : (number + 1) * size])
        pool.remember(table[number], Content(digest, parent, words))
    return table


def found(pool: BlockPool, tokens: list[int], version: int = 0, limit: int = 100) -> list[int]:
    start = prefix.root(version)
    digests = prefix.chain(start, tokens, pool.block_size, [])
    return pool.find(digests, start, tokens, limit)


def test_the_null_block_is_never_handed_out() -> None:
    pool = BlockPool(5, 2)
    assert NULL_BLOCK not in [pool.take() for _ in range(5)]


def test_more_than_there_is_is_refused_and_nothing_changes() -> None:
    pool = BlockPool(1, 2)
    pool.take()
    with pytest.raises(OutOfBlocks, match="all 1 blocks"):
        pool.take()
    pool.check()


def test_a_reused_block_is_not_found_by_its_old_content() -> None:
    """Filled with X, evicted by Y: X must be computed anew."""
    pool = BlockPool(1, 4)
    pool.release(filled(pool, TOKENS))
    assert found(pool, TOKENS) != []
    pool.release(filled(pool, [21, 22, 23, 24]))
    assert found(pool, TOKENS) == []
    pool.audit([])


def test_blank_blocks_go_first_then_the_longest_unused_and_of_a_table_its_tail() -> None:
    pool = BlockPool(4, 2)
    older = filled(pool, [1, 2, 3, 4])
    newer = filled(pool, [5, 6])
    pool.release(older)
    pool.release(newer)
    blank = pool.take()
    assert blank not in [*older, *newer]
    assert [pool.take() for _ in range(3)] == [older[1], older[0], newer[0]]


def test_what_is_found_ends_where_the_chain_breaks() -> None:
    pool = BlockPool(8, 2)
    filled(pool, [1, 2, 3, 4, 5, 6])
    assert len(found(pool, [1, 2, 3, 4, 9, 9])) == 2
    assert found(pool, [9, 9, 3, 4, 5, 6]) == []


def test_no_more_is_found_than_is_asked_for() -> None:
    pool = BlockPool(8, 2)
    filled(pool, [1, 2, 3, 4])
    assert len(found(pool, [1, 2, 3, 4], limit=3)) == 1


def test_other_weights_find_nothing() -> None:
    pool = BlockPool(8, 2)
    filled(pool, [1, 2, 3, 4], version=3)
    assert found(pool, [1, 2, 3, 4], version=4) == []
    assert len(found(pool, [1, 2, 3, 4], version=3)) == 2


def test_equal_digests_of_other_tokens_or_another_past_are_no_hit() -> None:
    """As if the hash collided: tokens and parents are compared."""
    pool = BlockPool(4, 2)
    pool.remember(pool.take(), Content(b"digest", b"parent", (1, 2)))
    assert pool.find([b"digest"], b"parent", [1, 2], 2) != []
    assert pool.find([b"digest"], b"parent", [1, 3], 2) == []
    assert pool.find([b"digest"], b"other", [1, 2], 2) == []


def test_the_first_of_two_equal_blocks_is_the_one_found() -> None:
    pool = BlockPool(4, 2)
    first = filled(pool, [1, 2])
    second = filled(pool, [1, 2])
    assert found(pool, [1, 2]) == first
    pool.release(second)
    pool.audit([first])
    assert found(pool, [1, 2]) == first


@pytest.mark.parametrize("length", [7, 8, 9])
def test_a_fork_shares_full_blocks_and_copies_the_rest(length: int) -> None:
    pool = BlockPool(10, 4)
    table = [pool.take() for _ in range(-(-length // 4))]
    child, copy = pool.fork(table, length)
    assert child[: length // 4] == table[: length // 4]
    assert all(pool.holders(block) == 2 for block in table[: length // 4])
    if length % 4:
        assert copy is not None
        assert (copy.source, copy.target) == (table[-1], child[-1])
        assert pool.holders(copy.target) == 1
    else:
        assert copy is None
        assert child == table
    pool.audit([table, child])


def test_a_fork_without_room_changes_nothing() -> None:
    pool = BlockPool(2, 4)
    table = [pool.take(), pool.take()]
    with pytest.raises(OutOfBlocks):
        pool.fork(table, 6)
    pool.audit([table])


def test_a_free_block_that_is_not_findable_cannot_be_shared() -> None:
    pool = BlockPool(2, 4)
    with pytest.raises(Corrupted, match="neither held nor findable"):
        pool.share(1)


def test_counts_say_what_sharing_saves() -> None:
    pool = BlockPool(8, 2)
    table = filled(pool, [1, 2, 3, 4])
    child, _ = pool.fork(table, 4)
    assert (pool.references, pool.held) == (4, 2)
    pool.release(child)
    pool.release(table)
    assert (pool.references, pool.held, pool.findable, pool.free) == (0, 0, 2, 8)


@pytest.mark.parametrize("size", [(0, 4), (4, 0)])
def test_a_pool_of_nothing_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least one block"):
        BlockPool(*size)


def broken_counts(pool: BlockPool) -> None:
    pool._held += 1


def lost_entry(pool: BlockPool) -> None:
    pool._references[1] += 1
    pool._references[2] -= 1


def twice_free(pool: BlockPool) -> None:
    pool._blank[0] = pool._blank[1]


def wrong_digest(pool: BlockPool) -> None:
    pool._by_digest[b"other"] = 1


def blank_with_content(pool: BlockPool) -> None:
    pool._content[pool._blank[0]] = Content(b"x", b"y", (1,))
    pool._by_digest[b"x"] = pool._blank[0]


@pytest.mark.parametrize(
    "fault", [broken_counts, lost_entry, twice_free, wrong_digest, blank_with_content]
)
def test_every_contradiction_is_found_by_the_audit(fault) -> None:
    pool = BlockPool(8, 2)
    table = filled(pool, [1, 2, 3, 4])
    fault(pool)
    with pytest.raises(Corrupted):
        pool.audit([table])


def test_the_quick_check_finds_a_block_that_is_neither_free_nor_held() -> None:
    pool = BlockPool(8, 2)
    pool._blank.pop()
    with pytest.raises(Corrupted, match="7 free and 0 held blocks of 8"):
        pool.check()


def test_a_table_that_is_not_accounted_for_is_found() -> None:
    pool = BlockPool(8, 2)
    table = filled(pool, [1, 2])
    with pytest.raises(Corrupted, match="references"):
        pool.audit([table, table])
