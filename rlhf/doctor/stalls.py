"""Where time goes: how long samples wait in each stage, who is slowest, what the trainer waits for.

Averages hide the one sample that everybody waits for; so each stage shows p50, p99 and the maximum,
with the slots behind it.
"""

import heapq
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rlhf.doctor.findings import STALL, Finding, Section, fault, warning
from rlhf.identity import Shape
from rlhf.journal_frames import Numbered
from rlhf.journal_records import (
    Answered,
    Delivered,
    Missed,
    Resumed,
    Stalled,
    Started,
    Submitted,
    Trained,
)
from rlhf.missing import Reason
from rlhf.reward_queue_latency import LatencyHistogram

TOPIC = "stalls"
STAGES = ("rollout", "claim", "grading", "order", "training")
_SLOWEST = 5
_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,)? in (?P<function>\S+)')


class _Times(NamedTuple):
    dispatched: float
    submitted: float
    claimed: float
    answered: float


class Stage:
    """How long samples stay in a stage."""

    def __init__(self) -> None:
        self.latencies = LatencyHistogram()
        self.maximum = 0.0
        self.slowest: list[tuple[float, int]] = []
        self.idle_seconds = 0.0
        """Time the trainer waited while the last sample of its batch was here."""

    def add(self, seq: int, seconds: float) -> None:
        """One sample's stay."""
        seconds = max(0.0, seconds)
        self.latencies.add(seconds)
        self.maximum = max(self.maximum, seconds)
        if len(self.slowest) < _SLOWEST:
            heapq.heappush(self.slowest, (seconds, seq))
        else:
            heapq.heappushpop(self.slowest, (seconds, seq))

    def figures(self) -> dict[str, Any]:
        """Seconds at the percentiles, and the slots that stayed longest."""
        percentile = self.latencies.percentile
        return {
            "samples": self.latencies.count,
            "p50": round(min(percentile(0.5), self.maximum), 6),
            "p99": round(min(percentile(0.99), self.maximum), 6),
            "max": round(self.maximum, 6),
            "slowest": [seq for _, seq in sorted(self.slowest, reverse=True)],
            "trainerWaitedSeconds": round(self.idle_seconds, 6),
        }


class Stalls:
    """Feed it every record of a journal, in order."""

    def __init__(self) -> None:
        self.stages = {name: Stage() for name in STAGES}
        self.stalled: list[Stalled] = []
        self.hung: list[tuple[str, int]] = []
        """Places in code at which timed-out graders were found, and how often."""
        self._shape: Shape | None = None
        self._times: dict[int, _Times] = {}
        self._free_at: float | None = None
        self._taken_at: dict[int, float] = {}
        self._places: dict[str, int] = {}
        self._moved_since = False

    def add(self, numbered: Numbered) -> None:
        """One more record."""
        record = numbered.record
        match record:
            case Started():
                self._shape = record.shape
            case Resumed():
                # Clocks begin anew: times of two lives cannot be compared.
                self._times, self._free_at, self._taken_at = {}, None, {}
            case Submitted():
                self._times[record.seq] = _Times(record.dispatched_at, record.at, 0.0, 0.0)
                self.stages["rollout"].add(record.seq, record.at - record.dispatched_at)
            case Answered():
                self._answered(record)
            case Delivered():
                self._delivered(record)
                self._moved_since = True
            case Trained():
                self._trained(record)
            case Missed() if record.reason is Reason.TIMED_OUT:
                if place := innermost(record.detail):
                    self._places[place] = self._places.get(place, 0) + 1
            case Stalled():
                self.stalled.append(record)
                self._moved_since = False
            case _:
                pass

    def _answered(self, record: Answered) -> None:
        times = self._times.get(record.seq)
        if times is None:
            return
        self.stages["claim"].add(record.seq, record.claimed_at - times.submitted)
        self.stages["grading"].add(record.seq, record.at - record.claimed_at)
        self._times[record.seq] = times._replace(claimed=record.claimed_at, answered=record.at)

    def _delivered(self, record: Delivered) -> None:
        if self._shape is None:
            return
        first = record.batch * self._shape.batch_size
        found = {
            seq: times
            for seq in range(first, first + record.count)
            if (times := self._times.pop(seq, None)) is not None
        }
        for seq, times in found.items():
            self.stages["order"].add(seq, record.at - times.answered)
        if found and self._free_at is not None:
            last = max(found.values(), key=lambda times: times.answered)
            self._blame(last, self._free_at, record.at)
        self._taken_at[record.batch] = record.at

    def _blame(self, last: _Times, begin: float, end: float) -> None:
        """Shares the trainer's wait among the stages that its last sample went through."""
        borders = {
            "rollout": (last.dispatched, last.submitted),
            "claim": (last.submitted, last.claimed),
            "grading": (last.claimed, last.answered),
            "order": (last.answered, end),
        }
        for name, (since, until) in borders.items():
            self.stages[name].idle_seconds += max(0.0, min(until, end) - max(since, begin))

    def _trained(self, record: Trained) -> None:
        taken = self._taken_at.pop(record.batch, None)
        if taken is not None and self._shape is not None:
            self.stages["training"].add(record.batch * self._shape.batch_size, record.at - taken)
        self._free_at = record.at

    def report(self) -> Section:
        """Waits by stage, and who is to blame."""
        idle = {name: stage.idle_seconds for name, stage in self.stages.items()}
        places = sorted(self._places.items(), key=lambda each: (-each[1], each[0]))
        stacks = [place for each in self.stalled if (place := innermost(each.stack))]
        figures: dict[str, Any] = {name: stage.figures() for name, stage in self.stages.items()}
        figures["stalled"] = [list(each.waits) for each in self.stalled[-5:]]
        figures["hungAt"] = dict(places[:5])
        lines = [_stage_line(name, self.stages[name]) for name in STAGES]
        waited = sum(idle.values())
        if waited > 0:
            worst = max(idle, key=lambda name: idle[name])
            share = idle[worst] / waited
            lines.append(f"the trainer waited {waited:.1f} s, {share:.0%} of it for {worst}")
        return Section(TOPIC, figures, self._findings(stacks, places), tuple(lines))

    def _findings(
        self, stacks: Sequence[str], places: Sequence[tuple[str, int]]
    ) -> tuple[Finding, ...]:
        findings = []
        if self.stalled:
            last = self.stalled[-1]
            told = f"nothing moved for {last.at - last.since:.1f} s: " + (
                last.waits[0] if last.waits else "nobody is waited for"
            )
            if stacks:
                told += f"; found at {stacks[-1]}"
            # One that it got over is worth knowing; one at the end is what is wrong.
            findings.append((warning if self._moved_since else fault)(TOPIC, told, STALL))
        findings += [
            warning(TOPIC, f"graders hung {count} times at {place}", STALL + 1)
            for place, count in places[:3]
        ]
        return tuple(findings)


def _stage_line(name: str, stage: Stage) -> str:
    figures = stage.figures()
    slowest = ", ".join(f"s{seq}" for seq in figures["slowest"])
    return (
        f"{name:9} p50 {figures['p50']:.3f} s, p99 {figures['p99']:.3f} s, max {figures['max']:.3f} s"
        + (f" (slowest: {slowest})" if slowest else "")
    )


def innermost(stack: str) -> str:
    """The innermost line of a stack, as `file:line in function`; empty when there is none.

    faulthandler prints the innermost call first, traceback last; the former says so.
    """
    found = list(_LINE.finditer(stack))
    if not found:
        return ""
    line = found[0] if "most recent call first" in stack else found[-1]
    name = line["file"].rsplit("/", 1)[-1]
    return f"{name}:{line['line']} in {line['function']}"


def fold(records: Iterable[Numbered]) -> Stalls:
    """Over a whole journal."""
    stalls = Stalls()
    for numbered in records:
        stalls.add(numbered)
    return stalls
