"""Who waits for a seat, and who is next.

Those that ran before come first, by age: they hold nothing, but their work is half done. Then the
longest predicted (or the first come), because the longest decide when a batch of rollouts ends.
Two limits keep that fair: who was passed over too often, or has waited too long, goes before all
that are fresh, and nobody passes it again.
"""

import heapq
from itertools import count
from typing import NamedTuple

from rlhf.kv.sequence import Sequence

_COMPACT_ABOVE = 64


class Order(NamedTuple):
    """How those who wait are put in order.

    `longest_first` by predicted length, else first come. A sequence that does not fit is passed by
    at most `pass_limit` others; one that has waited for more than `wait_limit` steps is next.
    """

    longest_first: bool = True
    pass_limit: int = 16
    wait_limit: int = 10_000


class WaitingLine:
    """A queue with removal. Pushing and popping cost log n; who has left is dropped on the way."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._present: dict[int, Sequence] = {}
        self._ranked: list[tuple[bool, int, int, int, Sequence]] = []
        self._by_age: list[tuple[int, int]] = []
        self._aged: set[int] = set()
        self._siblings: dict[object, dict[int, Sequence]] = {}
        self._pushes = count()

    def __len__(self) -> int:
        return len(self._present)

    def __contains__(self, uid: int) -> bool:
        return uid in self._present

    def sequences(self) -> list[Sequence]:
        """All who wait, by uid."""
        return [self._present[uid] for uid in sorted(self._present)]

    def push(self, sequence: Sequence) -> None:
        """Lets it wait."""
        fresh = not sequence.started
        longest = -sequence.predicted if fresh and self._order.longest_first else 0
        entry = (fresh, longest, sequence.uid, next(self._pushes), sequence)
        self._present[sequence.uid] = sequence
        heapq.heappush(self._ranked, entry)
        if sequence.uid not in self._aged:
            self._aged.add(sequence.uid)
            heapq.heappush(self._by_age, (sequence.arrived_at, sequence.uid))
        if fresh and sequence.kin:
            self._siblings.setdefault(sequence.kin, {})[sequence.uid] = sequence

    def remove(self, sequence: Sequence) -> None:
        """It waits no longer."""
        del self._present[sequence.uid]
        siblings = self._siblings.get(sequence.kin, {})
        if siblings.pop(sequence.uid, None) and not siblings:
            del self._siblings[sequence.kin]
        if len(self._ranked) > _COMPACT_ABOVE + 2 * len(self._present):
            self._ranked = [entry for entry in self._ranked if entry[2] in self._present]
            heapq.heapify(self._ranked)

    def pop(self, step: int) -> Sequence | None:
        """Takes out who is next; None when nobody waits."""
        while self._ranked and self._ranked[0][2] not in self._present:
            heapq.heappop(self._ranked)
        if not self._ranked:
            return None
        chosen = self._ranked[0][4]
        if not chosen.started:
            chosen = self._overdue(step) or chosen
        if chosen is self._ranked[0][4]:
            heapq.heappop(self._ranked)
        self.remove(chosen)
        return chosen

    def siblings(self, sequence: Sequence) -> list[Sequence]:
        """Who waits with the same prompt in the same group and has not started; by uid."""
        if sequence.started or not sequence.kin:
            return []
        waiting = self._siblings.get(sequence.kin, {})
        return [waiting[uid] for uid in sorted(waiting)]

    def must_be_next(self, sequence: Sequence, step: int) -> bool:
        """Whether nobody may pass it any more."""
        return (
            sequence.started
            or sequence.passed_over >= self._order.pass_limit
            or step - sequence.arrived_at > self._order.wait_limit
        )

    def _overdue(self, step: int) -> Sequence | None:
        """The one that has waited longest, when that is too long."""
        while self._by_age and self._by_age[0][1] not in self._present:
            self._aged.discard(heapq.heappop(self._by_age)[1])
        if not self._by_age or step - self._by_age[0][0] <= self._order.wait_limit:
            return None
        return self._present[self._by_age[0][1]]
