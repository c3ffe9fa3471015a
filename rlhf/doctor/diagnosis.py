"""The doctor: every analysis over a run folder, and the one line that says how it is."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlhf import live_state
from rlhf.canaries import find_offsets
from rlhf.doctor import absences, audits, drift, evidence, lag, order, present, stalls
from rlhf.doctor.findings import ORDER, Finding, Gravity, Section, fault
from rlhf.identity import Shape
from rlhf.sample_rows import SampleRow


class Diagnosis(NamedTuple):
    """What is wrong with a run, in one line and in full."""

    verdict: str
    healthy: bool
    sections: tuple[Section, ...]
    findings: tuple[Finding, ...]

    @property
    def shift(self) -> int | None:
        """By how many samples the rewards are late; None when that was not found."""
        section = next(each for each in self.sections if each.topic == lag.TOPIC)
        found: int | None = section.figures.get("shift")
        return found

    def as_json(self) -> dict[str, Any]:
        """All of it for a program."""
        return {
            "verdict": self.verdict,
            "healthy": self.healthy,
            "shift": self.shift,
            "findings": [
                {
                    "gravity": each.gravity.name.lower(),
                    "topic": each.topic,
                    "sentence": each.sentence,
                }
                for each in self.findings
            ],
            **{section.topic: section.figures for section in self.sections},
        }

    def lines(self) -> list[str]:
        """All of it for a person: the verdict, other findings, details."""
        others = [
            f"{each.gravity.name.lower()}: {each.sentence}"
            for each in self.findings
            if each.sentence != self.verdict
        ]
        return [
            self.verdict,
            *others,
            *(f"  {line}" for each in self.sections for line in each.lines),
        ]


def diagnose(folder: Path) -> Diagnosis:
    """Examines a run folder, finished or not.

    Raises:
        NoRun: there is no run in it.
    """
    found = evidence.gather(folder)
    problems = list(found.problems)
    sections: list[Section] = []
    shape: Shape | None = None
    if found.has_journal:
        shape, journalled = _from_journal(folder, max(found.samples, default=None), problems)
        sections += journalled
    sections += _from_samples(found.samples, shape)
    sections.append(drift.report(found.metrics))
    sections += [
        Section("files", {"problem": told}, (fault("files", told, ORDER),)) for told in problems
    ]
    findings = sorted(
        (finding for section in sections for finding in section.findings),
        key=lambda finding: (-finding.gravity, finding.rank),
    )
    healthy = not findings or findings[0].gravity < Gravity.FAULT
    return Diagnosis(
        _verdict(findings, sections, healthy), healthy, tuple(sections), tuple(findings)
    )


def _from_journal(
    folder: Path, newest_sample: int | None, problems: list[str]
) -> tuple[Shape | None, list[Section]]:
    proof, waits = order.OrderProof(), stalls.Stalls()
    missing, ages = absences.Absences(), absences.Staleness()
    for numbered in evidence.records(folder, problems):
        proof.add(numbered)
        waits.add(numbered)
        missing.add(numbered.record)
        ages.add(numbered.record)
    going_on = present.report(live_state.read(folder), waits)
    sections = [order.report(proof, newest_sample), waits.report(), ages.report(), missing.report()]
    return proof.shape, [*([going_on] if going_on else []), *sections]


def _from_samples(rows: Mapping[int, SampleRow], shape: Shape | None) -> list[Section]:
    batch_size = shape.batch_size if shape else _usual_batch(rows)
    received = {seq: row.reward for seq, row in rows.items()}
    expected = {seq: row.recomputed for seq, row in rows.items() if row.recomputed is not None}
    sections = [lag.report(lag.examine(received, expected, batch_size)), audits.audit(rows)]
    known = {seq: value for seq, value in expected.items() if rows[seq].canary}
    if known:
        sections.append(audits.canaries(find_offsets(known, received, 2 * batch_size)))
    if not expected:
        sections += [
            lag.report_feature(name, lag.scan(received, _feature(rows, name), batch_size))
            for name in sorted({name for row in rows.values() for name in row.features})
        ]
    return sections


def _feature(rows: Mapping[int, SampleRow], name: str) -> dict[int, float]:
    return {seq: row.features[name] for seq, row in rows.items() if name in row.features}


def _usual_batch(rows: Mapping[int, SampleRow]) -> int:
    """Without a journal: how many samples most steps have."""
    sizes = Counter(Counter(row.step for row in rows.values()).values())
    return sizes.most_common(1)[0][0] if sizes else 1


def _verdict(findings: list[Finding], sections: list[Section], healthy: bool) -> str:
    if not healthy:
        worst = findings[0].sentence
        # Who shifted the stream is worth a word in the same line.
        stalled = next((each for each in findings[1:] if each.topic == stalls.TOPIC), None)
        return f"{worst}; {stalled.sentence}" if stalled else worst
    figures = {section.topic: section.figures for section in sections}
    audited = figures["audits"]["audited"]
    proof = figures.get(order.TOPIC)
    told = (
        f"in order: {proof['samples']} samples in {proof['batches']} batches, each delivered once"
        if proof
        else "no journal, so order is not proven"
    )
    return told + (f"; {audited} audited rewards are their own" if audited else "; no audits")
