"""What may leave the journal: everything about batches that no checkpoint can come back to.

In their place stands one `Base` with the order digest up to there and the counts of what was
unusual among them. Numbers of records stay, so checkpoints keep pointing at the right place.
"""

from collections.abc import Iterable, Iterator

from rlhf.identity import Shape
from rlhf.journal_frames import Numbered
from rlhf.journal_records import (
    Answered,
    AnyRecord,
    Base,
    Delivered,
    Durable,
    IgnoredAnswer,
    Missed,
    Redrawn,
    Resumed,
    Started,
    Submitted,
    Trained,
)

BASE_NUMBER = 1
"""`Base` takes the place of the record after `Started`, which belonged to the first batch."""


class CannotCompact(ValueError):
    """The journal does not show that the batches to be removed were trained."""


def batch_of(record: AnyRecord, shape: Shape) -> int | None:
    """The batch that a record is about; None when it is about the run."""
    match record:
        case Submitted() | Answered() | Missed() | IgnoredAnswer():
            return shape.batch_of(record.seq)
        case Redrawn():
            return shape.batch_of(record.group_id * shape.group_size)
        case Delivered() | Trained():
            return record.batch
        case _:
            return None


def base_for(records: Iterable[Numbered], trained: int) -> Base:
    """The `Base` that stands for all batches below `trained`.

    Raises:
        CannotCompact: those batches were not all trained, or are gone beyond that already.
    """
    shape: Shape | None = None
    digest, was_trained, life = "", False, 0
    dropped: dict[str, int] = {}
    for _, record in records:
        if isinstance(record, Started):
            shape = record.shape
        elif isinstance(record, Base):
            life = max(life, record.life)
            dropped = dict(record.dropped)
            if record.trained > trained:
                raise CannotCompact(f"batches below {record.trained} are removed already")
            if record.trained == trained:
                digest, was_trained = record.order_digest, True
        elif isinstance(record, Resumed):
            life = max(life, record.life)
        elif isinstance(record, Delivered) and record.batch == trained - 1:
            digest = record.order_digest
        elif isinstance(record, Trained) and record.batch == trained - 1:
            was_trained = True
        if shape is not None and (name := _unusual(record)):
            batch = batch_of(record, shape)
            if batch is not None and batch < trained:
                dropped[name] = dropped.get(name, 0) + 1
    if not digest or not was_trained:
        raise CannotCompact(f"batch {trained - 1} was not trained, so it cannot be removed")
    return Base(trained, digest, life, dropped)


def _unusual(record: AnyRecord) -> str:
    match record:
        case Missed():
            return record.reason
        case IgnoredAnswer():
            return record.why
        case Redrawn():
            return "Redrawn"
        case _:
            return ""


def compacted(records: Iterable[Numbered], base: Base) -> Iterator[Numbered]:
    """The records that stay, `base` behind the first. `Durable` marks go: the whole is synced."""
    shape: Shape | None = None
    for number, record in records:
        if isinstance(record, Started):
            shape = record.shape
            yield Numbered(number, record)
            yield Numbered(BASE_NUMBER, base)
            continue
        if isinstance(record, Base | Durable) or number <= BASE_NUMBER or shape is None:
            continue
        batch = batch_of(record, shape)
        if batch is None or batch >= base.trained:
            yield Numbered(number, record)
