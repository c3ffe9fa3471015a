"""Audits and canaries: rewards that were computed twice, and rewards that were known beforehand."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from rlhf.canaries import CanaryFinding
from rlhf.doctor.findings import BINDING, Finding, Section, fault
from rlhf.sample_rows import SampleRow

_RELATIVE, _ABSOLUTE = 1e-5, 1e-7


def audit(rows: Mapping[int, SampleRow]) -> Section:
    """Compares the rewards that entered the loss with the recomputed ones."""
    audited = [row for row in rows.values() if row.recomputed is not None and not row.canary]
    wrong = [row for row in audited if not _equal(row.reward, row.recomputed)]
    chance = _chance_to_match([row.reward for row in audited])
    figures = {
        "audited": len(audited),
        "failed": len(wrong),
        "failedSlots": [row.seq for row in wrong[:10]],
        "chanceToMissSwaps": chance ** len(audited) if audited else 1.0,
    }
    line = f"audits: {len(audited)} rewards recomputed, {len(wrong)} differ"
    findings: tuple[Finding, ...] = ()
    if wrong:
        first = min(wrong, key=lambda row: row.seq)
        told = (
            f"{len(wrong)} of {len(audited)} audited rewards are not those of their samples, first "
            f"s{first.seq} of step {first.step}: {first.reward:g} in the loss, {first.recomputed:g} "
            "recomputed"
        )
        findings = (fault("audits", told, BINDING + 2),)
    return Section("audits", figures, findings, (line,))


def _equal(reward: float, recomputed: float | None) -> bool:
    return recomputed is not None and math.isclose(
        reward, recomputed, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE
    )


def _chance_to_match(rewards: Sequence[float]) -> float:
    """How likely another sample's reward equals one's own: what an audit cannot see."""
    if not rewards:
        return 1.0
    shares = [count / len(rewards) for count in Counter(rewards).values()]
    return sum(share * share for share in shares)


def canaries(found: Sequence[CanaryFinding]) -> Section:
    """Where the canaries' rewards were found."""
    moved = [each for each in found if each.offset != 0]
    offsets = Counter(each.offset for each in moved)
    figures = {
        "canaries": len(found),
        "moved": len(moved),
        "offsets": {str(offset): count for offset, count in sorted(offsets.items(), key=str)},
    }
    line = f"canaries: {len(found)} seen, {len(moved)} not in their slot"
    if not moved:
        return Section("canaries", figures, (), (line,))
    offset, count = offsets.most_common(1)[0]
    first = min(moved, key=lambda each: each.seq)
    told = f"{len(moved)} of {len(found)} canaries have another reward, first s{first.seq}: " + (
        f"{count} of them were found {offset:+d} slots away"
        if offset is not None
        else f"{first.received:g} instead of {first.expected:g}"
    )
    return Section("canaries", figures, (fault("canaries", told, BINDING + 1),), (line,))
