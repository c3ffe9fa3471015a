"""Who waits for what: the samples under way by stage and holder."""

from rlhf.identity import SampleId
from rlhf.reward_queue_state import Entry, Stream
from rlhf.reward_queue_types import Stage, Wait

_RANKS = {Stage.CLAIM: 1, Stage.DISPATCH: 2, Stage.POLICY: 2, Stage.ORDER: 2}
"""Consequences of other waits are named behind those in which somebody holds a sample."""


def waits_of(stream: Stream, delivered_at: float, *, batch: int | None = None) -> list[Wait]:
    """What a batch, or with none given everything, waits for: what somebody holds first, by age."""
    found: dict[tuple[Stage, str], list[tuple[float, SampleId]]] = {}
    for seq in _slots(stream, batch):
        stage, holder, since = _place(stream, stream.entries.get(seq), seq, delivered_at)
        entry = stream.entries.get(seq)
        draw = entry.draw if entry else stream.draws.get(stream.shape.group_of(seq), 0)
        found.setdefault((stage, holder), []).append((since, SampleId(seq, draw)))
    waits = [
        Wait(stage, tuple(sample for _, sample in each), min(since for since, _ in each), holder)
        for (stage, holder), each in found.items()
    ]
    return sorted(waits, key=lambda wait: (_RANKS.get(wait.stage, 0), wait.since, wait.samples))


def _slots(stream: Stream, batch: int | None) -> range:
    if batch is not None:
        first = stream.first_of(batch)
        return range(first, first + stream.expected(batch))
    # To the end of the newest batch: the rest of a batch under way is waited for as well.
    last = stream.shape.batch_of(max(0, stream.next_seq - 1))
    return range(stream.first_of(stream.trained), stream.first_of(last) + stream.expected(last))


def _place(
    stream: Stream, entry: Entry | None, seq: int, delivered_at: float
) -> tuple[Stage, str, float]:
    """Where a slot is, who holds it, since when."""
    shape = stream.shape
    batch = shape.batch_of(seq)
    if batch < stream.delivered:
        return Stage.TRAINING, "the trainer", delivered_at
    if entry is None or not (entry.response_digest or entry.rolling):
        since = entry.dispatched_at if entry else delivered_at
        if shape.version_of(batch) > stream.trained:
            return Stage.POLICY, f"policy version {shape.version_of(batch)}", since
        return Stage.DISPATCH, "", since
    if entry.rolling:
        return Stage.ROLLOUT, entry.worker, entry.dispatched_at
    if entry.score is not None:
        return Stage.ORDER, "", entry.answered_at
    if not entry.live:
        return Stage.CLAIM, "", entry.submitted_at
    since, worker, _ = min(entry.live.values())
    return Stage.GRADING, worker, since
