"""Each item once an epoch, in an order that only seed and epoch decide, whatever the interruptions."""

from typing import Any

import pytest

from clusterops.train.cursor import Batch, DataCursor, extend_digest, permuted
from clusterops.train.errors import ResumeMismatch


def consume(cursor: DataCursor, batches: int) -> list[int]:
    ids: list[int] = []
    for _ in range(batches):
        batch = cursor.issue()
        ids.extend(batch.ids)
        cursor.consume(batch)
    return ids


def moved(cursor: DataCursor, **options: Any) -> DataCursor:
    """The cursor of the next attempt."""
    size, batch_size = cursor.size, options.get("batch_size", cursor.batch_size)
    other = DataCursor(size, batch_size=batch_size, seed=cursor.seed)
    other.load_state_dict(cursor.state_dict())
    return other


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 65, 1000])
def test_an_epoch_holds_each_item_once(size: int) -> None:
    for epoch in range(3):
        order = [permuted(i, size, seed=5, epoch=epoch) for i in range(size)]
        assert sorted(order) == list(range(size))


def test_epochs_and_seeds_differ_in_order() -> None:
    orders = {
        tuple(permuted(i, 50, seed, epoch) for i in range(50))
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(orders) == 9


def test_the_order_is_the_same_on_every_machine_and_version() -> None:
    assert [permuted(i, 10, 1, 0) for i in range(10)] == GOLDEN_ORDER


def test_ranks_share_a_batch_without_overlap() -> None:
    batch = DataCursor(100, batch_size=10).issue()
    shares = [batch.for_rank(rank, 3) for rank in range(3)]
    assert sorted(one for share in shares for one in share) == sorted(batch.ids)


def test_what_was_only_issued_is_issued_again_after_a_restart() -> None:
    cursor = DataCursor(20, batch_size=2)
    first = cursor.issue()
    ahead = [cursor.issue() for _ in range(4)]  # a loader that fetches in the background
    cursor.consume(first)
    resumed = moved(cursor)
    assert resumed.issue() == ahead[0]


def test_batches_consumed_out_of_order_leave_holes_that_come_first() -> None:
    cursor = DataCursor(20, batch_size=2)
    batches = [cursor.issue() for _ in range(4)]
    cursor.consume(batches[3])
    cursor.consume(batches[1])
    assert cursor.consumed == 0
    resumed = moved(cursor)
    assert [resumed.issue() for _ in range(3)] == [
        batches[0],
        batches[2],
        Batch(8, 10, resumed._ids(8, 10)),
    ]


def test_the_digest_does_not_depend_on_when_batches_were_consumed() -> None:
    straight, crossed = DataCursor(20, batch_size=2), DataCursor(20, batch_size=2)
    consume(straight, 4)
    batches = [crossed.issue() for _ in range(4)]
    for number in (2, 0, 3, 1):
        crossed.consume(batches[number])
    assert crossed.order_digest == straight.order_digest != ""


def test_a_batch_is_consumed_once() -> None:
    cursor = DataCursor(20, batch_size=2)
    batch = cursor.issue()
    cursor.consume(batch)
    with pytest.raises(ValueError, match="consumed before"):
        cursor.consume(batch)
    with pytest.raises(ValueError, match="not issued"):
        cursor.consume(Batch(10, 12, (1, 2)))


def test_other_data_or_another_seed_is_refused() -> None:
    state = DataCursor(20, batch_size=2, seed=1).state_dict()
    with pytest.raises(ResumeMismatch, match="size 20, this one 21"):
        DataCursor(21, batch_size=2, seed=1).load_state_dict(state)
    with pytest.raises(ResumeMismatch, match="seed 1, this one 2"):
        DataCursor(20, batch_size=2, seed=2).load_state_dict(state)


def test_another_batch_size_goes_on_at_the_same_item() -> None:
    cursor = DataCursor(20, batch_size=4)
    ids = consume(cursor, 3)
    resumed = moved(cursor, batch_size=3)
    ids += consume(resumed, 4)
    whole = DataCursor(20, batch_size=24)
    assert ids == consume(whole, 1)
    assert resumed.order_digest == whole.order_digest


def test_digests_tell_ids_apart_that_read_alike() -> None:
    assert extend_digest("", [1, 23]) != extend_digest("", [12, 3])
    assert extend_digest("", [1]) != extend_digest("", ["1"])


@pytest.mark.parametrize(("size", "batch_size"), [(0, 1), (1, 0)])
def test_empty_data_and_empty_batches_are_refused(size: int, batch_size: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        DataCursor(size, batch_size=batch_size)


GOLDEN_ORDER = [6, 8, 3, 1, 5, 4, 9, 7, 2, 0]
