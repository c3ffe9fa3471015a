"""Attention over blocks against attention over plain tensors; the tensors behind the blocks."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.kv_models import engine, parameters, small_model
from torch.nn import functional

from rlhf.generation import drain
from rlhf.kv.attention import GatherAttention, VarlenAttention, choose, reads_tables
from rlhf.kv.batch import batch_of, cut
from rlhf.kv.blocks import BlockPool, Copy
from rlhf.kv.cache import Cache, block_bytes
from rlhf.kv.plan import Limits
from rlhf.kv.scheduler import Scheduler
from rlhf.kv.sequence import Sequence

BLOCK, HEADS, SHARED, WIDTH = 4, 4, 2, 8


def planned():
    """A plan with decoding rows of various lengths, a first chunk, and a later chunk."""
    scheduler = Scheduler(BlockPool(60, BLOCK), Limits(seats=8, budget=64, chunk=6))
    for uid, length in enumerate((3, 4, 5, 17, 9, 2)):
        scheduler.submit(Sequence(uid, [uid + 2] * length, 20))
    for _ in range(4):
        plan = scheduler.plan()
        scheduler.commit(plan, [1] * len(plan.drawing()))
    scheduler.submit(Sequence(8, [8] * 13, 5))
    plan = scheduler.plan()
    scheduler.commit(plan, [1] * len(plan.drawing()))
    scheduler.submit(Sequence(9, [9] * 5, 5))
    return scheduler.plan()


def kernel(query, keys, values, starts, none, most, longest, **more):
    """What torch documents for attention over sequences of various lengths with a block table."""
    assert none is None
    assert more["window_size"] == (-1, 0)
    assert more["num_splits"] == 1
    assert more["block_table"].dtype == starts.dtype == torch.int32
    output = torch.empty_like(query)
    for row, table in enumerate(more["block_table"]):
        first, last = int(starts[row]), int(starts[row + 1])
        length = int(more["seqused_k"][row])
        assert last - first <= most
        assert length <= longest
        key, value = (each[table.long()].flatten(0, 1)[:length] for each in (keys, values))
        groups = query.shape[1] // key.shape[1]
        assert more["enable_gqa"] == (groups > 1)
        visible = torch.arange(length) <= torch.arange(length - (last - first), length)[:, None]
        output[first:last] = functional.scaled_dot_product_attention(
            query[first:last].transpose(0, 1),
            key.repeat_interleave(groups, 1).transpose(0, 1),
            value.repeat_interleave(groups, 1).transpose(0, 1),
            attn_mask=visible,
            scale=more["scale"],
        ).transpose(0, 1)
    return output


def filled(heads_first: bool, shared: int) -> Cache:
    cache = Cache(1, 60, BLOCK, shared, WIDTH, heads_first=heads_first)
    generator = torch.Generator().manual_seed(0)
    places = torch.arange(BLOCK, 61 * BLOCK)
    size = (len(places), shared, WIDTH)
    cache.write(
        0, places, torch.randn(size, generator=generator), torch.randn(size, generator=generator)
    )
    return cache


@pytest.mark.parametrize("shared", [SHARED, HEADS])
def test_gathering_and_a_kernel_that_reads_tables_come_to_what_each_sequence_comes_to(
    shared,
) -> None:
    plan = planned()
    assert plan.decoding
    assert {chunk.start > 0 for chunk in plan.chunks} == {True, False}
    batch = batch_of(plan, BLOCK)
    query = torch.randn(len(batch.tokens), HEADS, WIDTH)
    by_block = filled(False, shared)
    attentions = [GatherAttention(filled(True, shared)), VarlenAttention(by_block, kernel)]
    results = []
    for attention in attentions:
        attention.begin(batch)
        results.append(attention(0, query, 0.3))
    assert torch.allclose(*results, atol=1e-6)
    rows = {one.uid: one for one in plan.decoding}
    sequence = rows[3]
    row = int(batch.drawing[plan.decoding.index(sequence)])
    length = sequence.computed + 1
    key, value = (
        each[torch.tensor(sequence.blocks)]
        .flatten(0, 1)[:length]
        .repeat_interleave(HEADS // shared, 1)
        for each in (by_block.keys(0), by_block.values(0))
    )
    weights = ((query[row] * key).sum(-1) * 0.3).softmax(0)
    assert torch.allclose(results[0][row], (weights[..., None] * value).sum(0), atol=1e-6)


def test_a_batch_says_what_the_plan_says() -> None:
    plan = planned()
    batch = batch_of(plan, BLOCK)
    for position, sequence in enumerate(plan.drawing()[: len(plan.decoding)]):
        row = int(batch.drawing[position])
        assert int(batch.tokens[row]) == sequence.tokens[sequence.computed]
        assert int(batch.positions[row]) == sequence.computed
        block = sequence.blocks[sequence.computed // BLOCK]
        assert int(batch.places[row]) == block * BLOCK + sequence.computed % BLOCK
    for chunk, span in zip(plan.chunks, batch.spans, strict=True):
        tokens = batch.tokens[span.first : span.first + span.length].tolist()
        assert tokens == chunk.sequence.tokens[chunk.start : chunk.start + chunk.length]
        if chunk.drawing:
            assert span.first + span.length - 1 in batch.drawing.tolist()
    assert len(set(batch.places.tolist())) == len(batch.tokens)


@pytest.mark.parametrize(
    ("widths", "runs"),
    [
        ([], []),
        ([3], [(0, 1)]),
        ([2, 2, 2, 2], [(0, 4)]),
        ([1, 1, 1, 8, 8], [(0, 3), (3, 5)]),
        ([1, 2, 4, 8, 16, 32, 64, 128], None),
    ],
)
def test_rows_of_like_width_lie_together(widths, runs) -> None:
    found = cut(widths)
    assert [one for first, last in found for one in range(first, last)] == list(range(len(widths)))
    assert len(found) <= 6
    if runs is not None:
        assert found == runs


@pytest.mark.parametrize("heads_first", [True, False])
def test_blocks_are_cleared_and_copied_in_all_layers_and_nowhere_else(heads_first) -> None:
    cache = Cache(2, 4, BLOCK, SHARED, WIDTH, heads_first=heads_first)
    for layer in range(2):
        places = torch.arange(BLOCK, 5 * BLOCK)
        content = (
            torch.arange(len(places), dtype=torch.float32)[:, None, None].expand(-1, SHARED, WIDTH)
            + 100 * layer
        )
        cache.write(layer, places, content, -content)

    def block(layer: int, number: int, kind: int):
        store = cache.store[layer, kind]
        return store[:, number].transpose(0, 1) if heads_first else store[number]

    cache.clear([3])
    cache.copy([Copy(1, 2)])
    cache.clear([])
    cache.copy([])
    for layer in range(2):
        for kind, sign in ((0, 1), (1, -1)):
            assert block(layer, 3, kind).abs().sum() == 0
            assert torch.equal(block(layer, 2, kind), block(layer, 1, kind))
            assert block(layer, 1, kind)[0, 0, 0] == sign * 100 * layer
            assert block(layer, 4, kind)[3, 1, 7] == sign * (15 + 100 * layer)
            assert block(layer, 0, kind).abs().sum() == 0


def test_the_kernel_is_chosen_where_there_is_one() -> None:
    assert reads_tables(torch.bfloat16, torch.device("cuda"))
    assert not reads_tables(torch.float32, torch.device("cuda"))
    assert not reads_tables(torch.bfloat16, torch.device("cpu"))
    assert isinstance(choose(filled(True, SHARED)), GatherAttention)
    assert isinstance(choose(filled(False, SHARED)), VarlenAttention)


def test_a_block_takes_what_its_tensors_take() -> None:
    cache = Cache(3, 7, BLOCK, SHARED, WIDTH, dtype=torch.float16)
    each = block_bytes(3, BLOCK, SHARED, WIDTH, torch.float16)
    assert cache.store.nbytes == 8 * each


def test_an_engine_over_the_kernel_comes_to_the_same() -> None:
    """The whole engine with the layout and the calls that a GPU gets."""
    model = small_model()
    plain, other = engine(model, block_size=4, chunk=5), engine(model, block_size=4, chunk=5)
    computation = other._computation
    made = computation.architecture
    cache = Cache(
        len(made.layers), computation.blocks, 4, made.heads, made.head_width, heads_first=False
    )
    computation._cache = computation._forward._cache = cache
    computation._forward._attention = VarlenAttention(cache, kernel)
    for paged in (plain, other):
        for index in range(3):
            paged.submit("p", index, [5, 6, 7, 8, 9, 10], parameters(8, index, 1.0))
        paged.submit("q", 0, [9] * 11, parameters(8))
    results = [[one.tokens for one in drain(paged)] for paged in (plain, other)]
    assert results[0] == results[1]
