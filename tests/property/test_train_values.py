"""Laws of what checkpoints are made of: values come back, orders are permutations, plans keep enough."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.train_disk import CrashingDisk

from clusterops.train.blocks import finished, memory_of
from clusterops.train.cursor import DataCursor, permuted
from clusterops.train.manifest import FileRecord, Identity, Manifest
from clusterops.train.retention import superfluous
from clusterops.train.serialization import decode, encode, references
from clusterops.train.shards import read_rank, write_rank

quick = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=20)
    | st.complex_numbers(allow_nan=False)
)
keys = st.text() | st.integers() | st.none() | st.tuples(st.integers(), st.text())
states = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(st.text(), inner, max_size=4).map(OrderedDict)
        | st.frozensets(st.integers() | st.text(), max_size=4)
    ),
    max_leaves=20,
)


@quick
@given(states)
def test_every_plain_state_comes_back_with_its_types(state: Any) -> None:
    disk = CrashingDisk()
    disk.make_directory(Path("/s"))
    files = write_rank(disk, Path("/s"), 0, encode(state))
    back = read_rank(disk, Path("/s"), 0, {record.name: record for record in files})
    assert back == state
    assert type(back) is type(state)


@quick
@given(states)
def test_encoding_is_the_same_every_time_and_a_copy(state: Any) -> None:
    one, other = encode(state), encode(state)
    assert one.tree == other.tree
    wanted = references(one.tree)
    blocks = {block.name: finished(wanted[block.name], memory_of(block)) for block in one.blocks}
    assert decode(one.tree, blocks) == state


@quick
@given(st.integers(1, 5000), st.integers(), st.integers(0, 100), st.data())
def test_no_two_positions_of_an_epoch_hold_the_same_item(
    size: int, seed: int, epoch: int, data: st.DataObject
) -> None:
    positions = data.draw(st.lists(st.integers(0, size - 1), unique=True, max_size=30))
    items = [permuted(position, size, seed, epoch) for position in positions]
    assert len(set(items)) == len(items)
    assert all(0 <= item < size for item in items)


@quick
@given(st.integers(1, 40), st.integers(1, 9), st.lists(st.integers(0, 5), max_size=40))
@example(1, 1, [1, 1, 1, 4, 0, 1, 3, 1, 3])  # a hole filled after a restart, up to what lay ahead
def test_any_mix_of_fetching_ahead_finishing_and_restarting_consumes_each_item_once(
    size: int, batch_size: int, moves: list[int]
) -> None:
    cursor = DataCursor(size, batch_size=batch_size, seed=1)
    ahead = []
    consumed: list[int] = []
    for move in moves:
        if move == 0:  # killed: what was fetched is gone
            other = DataCursor(size, batch_size=batch_size, seed=1)
            other.load_state_dict(cursor.state_dict())
            cursor, ahead = other, []
        elif move <= 2 or not ahead:
            ahead.append(cursor.issue())
        else:
            batch = ahead.pop(move % len(ahead))
            cursor.consume(batch)
            consumed.extend(range(batch.start, batch.stop))
    assert len(set(consumed)) == len(consumed)
    while cursor.consumed < max(consumed, default=0) + 1:  # drain, holes first
        batch = cursor.issue() if not ahead else ahead.pop()
        cursor.consume(batch)
        consumed.extend(range(batch.start, batch.stop))
    ordered = sorted(consumed)
    assert ordered == list(range(len(ordered)))


orders = st.tuples(st.integers(1, 4), st.integers(1, 30))


@quick
@given(st.sets(orders, max_size=12), st.data(), st.integers(0, 5), st.booleans())
def test_pruning_keeps_the_newest_verified_the_source_and_permanents(
    there: set[tuple[int, int]], data: st.DataObject, keep: int, has_source: bool
) -> None:
    newest_first = sorted(there, reverse=True)
    permanent = data.draw(st.sets(st.sampled_from(newest_first))) if there else set()
    verified = data.draw(st.sets(st.sampled_from(newest_first))) if there else set()
    source = data.draw(st.sampled_from(newest_first)) if there and has_source else None
    manifests = [
        Manifest(step, epoch, Identity(), 1, (), permanent=(epoch, step) in permanent)
        for epoch, step in newest_first
    ]
    leaving = {one.order for one in superfluous(manifests, verified, source, keep)}
    staying = there - leaving
    assert source is None or source in staying
    assert permanent <= staying
    best = [one for one in newest_first if one in verified][: max(keep, 2)]
    assert set(best) <= staying
    assert not leaving or len(best) == max(keep, 2), "something goes before enough is verified"
    assert all(one < min(best) for one in leaving)


@quick
@given(
    st.integers(0, 10**9),
    st.integers(1, 10**6),
    st.text(max_size=10),
    st.lists(st.integers(0, 10**12), max_size=3),
)
def test_manifests_come_back_equal(step: int, epoch: int, text: str, sizes: list[int]) -> None:
    files = tuple(
        FileRecord(f"rank_00000_{number:03d}.safetensors", size, "a" * 64)
        for number, size in enumerate(sizes)
    )
    manifest = Manifest(
        step,
        epoch,
        Identity(text, text, text, 3),
        2,
        files,
        {"seconds": 1.5, "x": text},
        text,
        True,
    )
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest
