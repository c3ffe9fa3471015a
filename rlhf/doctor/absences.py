"""Rewards that did not come and answers that were not taken, by reason; how stale the batches were."""

from collections import Counter
from collections.abc import Iterable

from rlhf.doctor.findings import Finding, Section, warning
from rlhf.journal_frames import Numbered
from rlhf.journal_records import (
    AnyRecord,
    Base,
    Delivered,
    Ignored,
    IgnoredAnswer,
    Missed,
    Redrawn,
    Started,
)
from rlhf.missing import Reason

_REASONS = tuple(Reason)
_IGNORED = tuple(Ignored)


class Absences:
    """Feed it every record of a journal."""

    def __init__(self) -> None:
        self.missing: Counter[str] = Counter()
        self.then: Counter[str] = Counter()
        self.ignored: Counter[str] = Counter()
        self.redraws = 0
        self.examples: dict[str, str] = {}

    def add(self, record: AnyRecord) -> None:
        """One more record."""
        match record:
            case Missed():
                self.missing[record.reason] += 1
                self.then[record.then] += 1
                where = f"s{record.seq} attempt {record.attempt}"
                self.examples.setdefault(record.reason, f"{where}: {record.detail}".rstrip(": "))
            case IgnoredAnswer():
                self.ignored[record.why] += 1
            case Redrawn():
                self.redraws += 1
            case Base():
                self._dropped(record)
            case _:
                pass

    def _dropped(self, base: Base) -> None:
        for name, count in base.dropped.items():
            if name in _REASONS:
                self.missing[name] += count
            elif name in _IGNORED:
                self.ignored[name] += count
            elif name == "Redrawn":
                self.redraws += count

    def report(self) -> Section:
        """Counts by reason; what points at a grader that is wrong, and not only slow."""
        figures = {
            "missing": dict(sorted(self.missing.items())),
            "then": dict(sorted(self.then.items())),
            "ignored": dict(sorted(self.ignored.items())),
            "redraws": self.redraws,
            "examples": self.examples,
        }
        lines = [f"missing rewards: {_listed(self.missing)}", f"not taken: {_listed(self.ignored)}"]
        lines += [f"  {reason}, e.g. {told}" for reason, told in sorted(self.examples.items())]
        findings: list[Finding] = []
        for why, told in (
            (Ignored.MISMATCH, "answers were computed on other tokens than the sample's"),
            (Ignored.CONFLICT, "answers gave another value to a sample that had one"),
            (Ignored.FOREIGN, "answers were of another run"),
        ):
            if count := self.ignored[why]:
                findings.append(warning("missing", f"{count} {told}; they were not taken"))
        return Section("missing", figures, tuple(findings), tuple(lines))


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


class Staleness:
    """How many updates the policy of a batch was behind the trainer. Feed it every record."""

    def __init__(self) -> None:
        self.by_age: Counter[int] = Counter()
        self.lag = 0

    def add(self, record: AnyRecord) -> None:
        """One more record."""
        if isinstance(record, Started):
            self.lag = record.shape.lag
        elif isinstance(record, Delivered):
            self.by_age[record.batch - record.policy_version] += record.count

    def report(self) -> Section:
        """The ages, by number of samples."""
        count = sum(self.by_age.values())
        mean = sum(age * number for age, number in self.by_age.items()) / count if count else 0.0
        oldest = max(self.by_age, default=0)
        figures = {
            "lag": self.lag,
            "mean": round(mean, 4),
            "max": oldest,
            "samplesByAge": {str(age): number for age, number in sorted(self.by_age.items())},
        }
        line = f"staleness: mean {mean:.2f}, at most {oldest} updates (allowed {self.lag})"
        return Section("staleness", figures, (), (line,))


def fold(records: Iterable[Numbered]) -> tuple[Absences, Staleness]:
    """Over a whole journal."""
    absences, staleness = Absences(), Staleness()
    for _, record in records:
        absences.add(record)
        staleness.add(record)
    return absences, staleness
