"""What blocks are known by."""

from hypothesis import given
from hypothesis import strategies as st

from rlhf.kv import prefix

tokens = st.lists(st.integers(0, 2**32 - 1), max_size=12)


@given(tokens, st.integers(0, 4))
def test_a_chain_is_the_same_whether_made_at_once_or_bit_by_bit(words, cut) -> None:
    start = prefix.root(1)
    whole = prefix.chain(start, words, 3, [])
    part = prefix.chain(start, words[:cut], 3, [])
    assert prefix.chain(start, words, 3, part) == whole
    assert len(whole) == len(words) // 3


@given(tokens, tokens)
def test_blocks_of_other_tokens_or_another_past_have_other_digests(some, others) -> None:
    start = prefix.root(1)
    if some != others:
        assert prefix.extended(start, some) != prefix.extended(start, others)
    assert prefix.extended(start, some) != prefix.extended(prefix.root(2), some)


def test_pairs_carry_their_kind() -> None:
    """Version 3 without a tenant, and tenant "3" or 3 under another version, are all different."""
    roots = [
        prefix.root(3),
        prefix.root(0, [("tenant", "3")]),
        prefix.root(0, [("tenant", 3)]),
        prefix.root(0, [("adapter", "3")]),
        prefix.root(3, [("policy", 3)]),
    ]
    assert len(set(roots)) == len(roots)


def test_the_order_of_pairs_does_not_matter() -> None:
    pairs = [("tenant", "a"), ("adapter", "b")]
    assert prefix.root(0, pairs) == prefix.root(0, reversed(pairs))
