"""What the reward queue tells its owner: records to be written down, and counts of the unusual."""

from rlhf.journal_records import Ignored, IgnoredAnswer, Record
from rlhf.reward_queue_types import Outcome


class Log:
    """Records since the owner last took them, and how often each thing but the usual happened."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.counts: dict[str, int] = {}

    def counted(self, what: str) -> None:
        """One more of these."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def ignored(
        self, seq: int, draw: int, attempt: int, why: Ignored, now: float, what: str = "answer"
    ) -> Outcome:
        """Something came and is not applied: written down and counted, never silently dropped."""
        self.counted(why)
        self.records.append(IgnoredAnswer(seq, draw, attempt, why, now, what))
        return Outcome(why.value)
