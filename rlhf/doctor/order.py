"""The proof of order: from the journal alone, that each slot was delivered once, in order, graded.

Deliberately not the code of the queue: it folds the records anew, by its own rules, and looks for a
contradiction.
"""

from collections.abc import Iterable
from typing import NamedTuple

from rlhf.doctor.findings import FAILURE, ORDER, Finding, Section, fault, warning
from rlhf.identity import OrderDigest, Shape
from rlhf.journal_frames import Numbered
from rlhf.journal_records import (
    Answered,
    Base,
    Delivered,
    Ended,
    Failed,
    Redrawn,
    Resumed,
    Started,
    Submitted,
    Trained,
)

TOPIC = "order"
_MOST_FAULTS = 20


class _Sample(NamedTuple):
    draw: int
    prompt_digest: str
    response_digest: str
    answered: bool


class OrderProof:
    """Feed it every record of a journal, in order; `faults` are the contradictions."""

    def __init__(self) -> None:
        self.shape: Shape | None = None
        self.faults: list[str] = []
        self.delivered = 0
        self.trained = 0
        self.redelivered = 0
        self.lives = 0
        self.redraws = 0
        self.total: int | None = None
        self.failure = ""
        self._samples: dict[int, _Sample] = {}
        self._draws: dict[int, int] = {}
        self._digests: dict[int, str] = {-1: OrderDigest.START}
        """The order digest after each batch."""
        self._base = 0
        self._short: int | None = None

    @property
    def order_digest(self) -> str:
        """The digest over all that was delivered."""
        return self._digests.get(self.delivered - 1, OrderDigest.START)

    @property
    def samples(self) -> int:
        """How many samples the delivered batches hold; the last of a stream may be short."""
        if self.shape is None:
            return 0
        whole = self.delivered * self.shape.batch_size
        return whole if self.total is None else min(whole, self.total)

    def add(self, numbered: Numbered) -> None:
        """One more record."""
        number, record = numbered
        match record:
            case Started():
                self.shape, self.lives = record.shape, 1
            case Base():
                self._base = self.delivered = self.trained = record.trained
                self._digests[record.trained - 1] = record.order_digest
                self.lives = record.life + 1
            case Resumed():
                self._resumed(record)
            case Submitted():
                self._submitted(number, record)
            case Answered():
                self._answered(number, record)
            case Redrawn():
                self._redrawn(number, record)
            case Delivered():
                self._delivered(number, record)
            case Trained():
                self._trained(number, record)
            case Ended():
                self.total = record.total
            case Failed():
                self.failure = record.why
            case _:
                pass

    def _fault(self, number: int, told: str) -> None:
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(f"record {number}: {told}")

    def _resumed(self, record: Resumed) -> None:
        self.lives = record.life + 1
        self.failure = ""
        # The weights came back from a checkpoint: what they have not seen is delivered again.
        again = max(record.trained, self._base)
        self.redelivered += max(0, self.delivered - again)
        self.delivered = self.trained = again
        if self._short is not None and self._short >= again:
            del self._digests[self._short]
            self._short = None

    def _submitted(self, number: int, record: Submitted) -> None:
        before = self._samples.get(record.seq)
        if before is not None and before.draw == record.draw:
            self._fault(number, f"slot {record.seq} has a second response in draw {record.draw}")
        if record.draw != self._draw_of(record.seq):
            self._fault(
                number,
                f"slot {record.seq} is at draw {self._draw_of(record.seq)}, not {record.draw}",
            )
        self._samples[record.seq] = _Sample(
            record.draw, record.prompt_digest, record.response_digest, False
        )

    def _draw_of(self, seq: int) -> int:
        assert self.shape is not None
        return self._draws.get(seq // self.shape.group_size, 0)

    def _answered(self, number: int, record: Answered) -> None:
        sample = self._samples.get(record.seq)
        if sample is None or sample.draw != record.draw:
            self._fault(
                number, f"an answer for draw {record.draw} of slot {record.seq}, which has none"
            )
            return
        if sample.answered:
            self._fault(number, f"slot {record.seq} was answered twice")
        self._samples[record.seq] = sample._replace(answered=True)

    def _redrawn(self, number: int, record: Redrawn) -> None:
        assert self.shape is not None
        if record.draw != self._draws.get(record.group_id, 0) + 1:
            self._fault(number, f"group {record.group_id} skips to draw {record.draw}")
        self._draws[record.group_id] = record.draw
        self.redraws += 1
        size = self.shape.group_size
        for seq in range(record.group_id * size, (record.group_id + 1) * size):
            self._samples.pop(seq, None)

    def _delivered(self, number: int, record: Delivered) -> None:
        assert self.shape is not None
        batch, shape = record.batch, self.shape
        if batch != self.delivered:
            self._fault(
                number, f"batch {batch} was delivered when it was batch {self.delivered}'s turn"
            )
        if record.policy_version != max(0, batch - shape.lag):
            self._fault(number, f"batch {batch} was sampled by policy {record.policy_version}")
        if (
            record.count != shape.batch_size
            and self.total != batch * shape.batch_size + record.count
        ):
            self._fault(number, f"batch {batch} has {record.count} samples")
        known = self._digests.get(batch) if record.count == shape.batch_size else None
        digest = known if known is not None else self._digest(number, record)
        if digest != record.order_digest:
            self._fault(
                number,
                f"batch {batch} has order digest {record.order_digest}; its samples give {digest}",
            )
        self._digests[batch] = record.order_digest
        if record.count < shape.batch_size:
            self._short = batch
        self.delivered = batch + 1

    def _digest(self, number: int, record: Delivered) -> str:
        """The digest from the samples themselves, which are not needed again.

        But for those of a short batch at the end: after a restart it may come again longer.
        """
        assert self.shape is not None
        first = record.batch * self.shape.batch_size
        rows = []
        for seq in range(first, first + record.count):
            sample = self._samples.get(seq)
            if sample is None or not sample.answered:
                self._fault(number, f"slot {seq} was delivered without a reward")
                continue
            rows.append(
                (
                    seq,
                    sample.draw,
                    record.policy_version,
                    sample.prompt_digest,
                    sample.response_digest,
                )
            )
        if record.count == self.shape.batch_size:
            for seq in range(first, first + record.count):
                self._samples.pop(seq, None)
        before = self._digests.get(record.batch - 1, OrderDigest.START)
        return OrderDigest(before).extend(rows)

    def _trained(self, number: int, record: Trained) -> None:
        if record.batch != self.trained:
            self._fault(
                number, f"batch {record.batch} was trained when it was batch {self.trained}'s turn"
            )
        if record.batch >= self.delivered:
            self._fault(number, f"batch {record.batch} was trained before it was delivered")
        self.trained = record.batch + 1


def undelivered(proof: OrderProof, newest_sample: int | None) -> tuple[Finding, ...]:
    """A fault where the run has trained on slots of batches that its journal never delivered.

    Args:
        proof: over the whole journal, read after the samples: a delivery is in it before its batch
            is trained on, so it may know more than they do, and never less.
        newest_sample: the highest slot among the samples; none when there are none.
    """
    if proof.shape is None or newest_sample is None:
        return ()
    batch = newest_sample // proof.shape.batch_size
    if batch < proof.delivered:
        return ()
    told = (
        f"slot s{newest_sample} of batch {batch} was trained on, and the journal ends with "
        f"{proof.delivered} batches delivered: it lost records, or the samples are another run's"
    )
    return (fault(TOPIC, told, ORDER),)


def prove(records: Iterable[Numbered]) -> OrderProof:
    """The proof over a whole journal."""
    proof = OrderProof()
    for numbered in records:
        proof.add(numbered)
    return proof


def report(proof: OrderProof, newest_sample: int | None = None) -> Section:
    """What the journal proves, and whether it knows of the newest sample that was trained on."""
    figures = {
        "batches": proof.delivered,
        "trained": proof.trained,
        "samples": proof.samples,
        "orderDigest": proof.order_digest,
        "lives": proof.lives,
        "redelivered": proof.redelivered,
        "redraws": proof.redraws,
        "faults": proof.faults,
        "failure": proof.failure,
    }
    line = (
        f"order: {proof.samples} samples in {proof.delivered} batches delivered once each and in "
        f"order, digest {proof.order_digest}"
    )
    if proof.lives > 1:
        line += f"; {proof.lives - 1} restarts, {proof.redelivered} batches delivered again"
    findings = list(undelivered(proof, newest_sample))
    if proof.faults:
        line = f"order: {len(proof.faults)} contradictions in the journal"
        findings.append(fault(TOPIC, f"the journal contradicts itself: {proof.faults[0]}", ORDER))
    if proof.failure:
        findings.append(fault("run", f"the run failed: {proof.failure}", FAILURE))
    if proof.redraws:
        findings.append(warning(TOPIC, f"{proof.redraws} groups were drawn again in their slots"))
    return Section(TOPIC, figures, tuple(findings), (line,))
