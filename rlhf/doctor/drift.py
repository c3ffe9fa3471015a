"""The weak sign: the policy moves away from the reference and the reward does not move.

Curves prove nothing (with a tenth of the rewards swapped they look perfect), so this is never more
than a warning.
"""

from collections.abc import Mapping, Sequence

from rlhf.doctor.findings import Section, warning

KL, SCORES = "objective/kl", "objective/scores"
_FEWEST_STEPS = 20


def report(metrics: Sequence[Mapping[str, float]]) -> Section:
    """Compares the first and the last quarter of the steps."""
    rows = [row for row in metrics if KL in row and SCORES in row]
    if len(rows) < _FEWEST_STEPS:
        return Section("drift", {"steps": len(rows)})
    quarter = len(rows) // 4
    (kl_before, kl_after), (before, after) = (
        (_mean(rows[:quarter], name), _mean(rows[-quarter:], name)) for name in (KL, SCORES)
    )
    spread = _deviation(rows[:quarter], SCORES)
    figures = {
        "steps": len(rows),
        "klBefore": round(kl_before, 6),
        "klAfter": round(kl_after, 6),
        "scoreBefore": round(before, 6),
        "scoreAfter": round(after, 6),
    }
    line = f"drift: score {before:.3f} -> {after:.3f}, KL {kl_before:.3f} -> {kl_after:.3f}"
    moved = kl_after > max(0.05, 2 * abs(kl_before))
    if moved and after - before < max(1e-9, spread):
        told = (
            f"the policy moves (KL {kl_before:.3f} -> {kl_after:.3f}) and the score does not "
            f"({before:.3f} -> {after:.3f}): nothing is learned"
        )
        return Section("drift", figures, (warning("drift", told),), (line,))
    return Section("drift", figures, (), (line,))


def _mean(rows: Sequence[Mapping[str, float]], name: str) -> float:
    return sum(row[name] for row in rows) / len(rows)


def _deviation(rows: Sequence[Mapping[str, float]], name: str) -> float:
    mean = _mean(rows, name)
    return float((sum((row[name] - mean) ** 2 for row in rows) / len(rows)) ** 0.5)
