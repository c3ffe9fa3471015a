"""The lag scan: are the rewards that arrived those of their own samples, or of earlier ones?

Lag +1 = one sample late: slot i received the reward of slot i - 1.
"""

from collections.abc import Mapping
from typing import NamedTuple

from rlhf.doctor.correlation import demeaned, lagged_correlations
from rlhf.doctor.findings import BINDING, Section, fault, warning

TOPIC = "alignment"
_MOST_SAMPLES = 16_384
_FEWEST_SAMPLES = 32
_CLEAR = 0.5
_CLEARLY_BETTER = 0.2
_PERFECT = 0.999
_FEWEST_IN_STRETCH = 256
_DEVIATIONS = 8.0


class LagScan(NamedTuple):
    """The best lag, its correlation, that at 0, the best of the others, and since which slot."""

    lag: int
    correlation: float
    at_zero: float
    next_best: float
    samples: int
    since: int

    @property
    def shifted(self) -> bool:
        """Whether another lag than 0 explains the rewards, and clearly better."""
        return (
            self.lag != 0
            and self.correlation > _CLEAR
            and self.correlation > self.at_zero + _CLEARLY_BETTER
        )


def scan(
    received: Mapping[int, float], expected: Mapping[int, float], batch_size: int
) -> LagScan | None:
    """Scans all lags to two batches either side; None when there is too little to say anything.

    The newest 16,384 slots are used for the correlation; where the shift began is sought in all.
    """
    if len(expected) < _FEWEST_SAMPLES or len(received) < _FEWEST_SAMPLES:
        return None
    last = max(max(received), max(expected))
    first = max(min(min(received), min(expected)), last - _MOST_SAMPLES + 1)
    first -= first % batch_size
    slots = range(first, last + 1)
    came = [received.get(seq) for seq in slots]
    found = lagged_correlations(
        demeaned(came, batch_size),
        demeaned([expected.get(seq) for seq in slots], batch_size, came),
        2 * batch_size,
    )
    if not found:
        return None
    # Of equal ones the nearest to 0: a series that repeats proves no shift.
    best = max(found, key=lambda lag: (round(found[lag], 6), -abs(lag)))
    others = [value for lag, value in found.items() if lag != best]
    return LagScan(
        best,
        found[best],
        found.get(0, 0.0),
        max(others, default=0.0),
        len(received.keys() & expected.keys()),
        _since(received, expected, best),
    )


def examine(
    received: Mapping[int, float], expected: Mapping[int, float], batch_size: int
) -> LagScan | None:
    """Scans the whole stream and, where that is not clear, stretch by stretch, the newest first.

    A stream that slipped half-way fits neither lag as a whole.
    """
    whole = scan(received, expected, batch_size)
    if whole is None or whole.shifted or whole.at_zero > _PERFECT:
        return whole
    length = max(_FEWEST_IN_STRETCH, 4 * batch_size)
    last, first = max(received), min(received)
    for end in range(last + 1, first, -length):
        stretch = range(end - length, end)
        found = scan(
            {seq: received[seq] for seq in stretch if seq in received},
            {seq: expected[seq] for seq in stretch if seq in expected},
            batch_size,
        )
        if found is not None and found.shifted:
            return found._replace(since=_since(received, expected, found.lag))
    return whole


def _since(received: Mapping[int, float], expected: Mapping[int, float], lag: int) -> int:
    """The slot from which on the lag explains the rewards better than 0 does."""
    gain = best_gain = 0.0
    since = min(received)
    # From the end backwards: the longest tail in which the shifted pairs fit better.
    for seq in sorted(received, reverse=True):
        own, shifted = expected.get(seq), expected.get(seq - lag)
        if own is None or shifted is None:
            continue
        gain += (received[seq] - own) ** 2 - (received[seq] - shifted) ** 2
        if gain > best_gain:
            best_gain, since = gain, seq
    return since


def report(scanned: LagScan | None) -> Section:
    """What a scan against recomputed rewards says."""
    if scanned is None:
        return Section(TOPIC, {"samples": 0}, (), ("lag scan: too few recomputed rewards",))
    lag, correlation = scanned.lag, scanned.correlation
    figures = {
        "lag": lag,
        "correlation": round(correlation, 4),
        "correlationAtZero": round(scanned.at_zero, 4),
        "nextBest": round(scanned.next_best, 4),
        "samples": scanned.samples,
    }
    line = (
        f"lag scan of {scanned.samples} samples: best {lag:+d} (r={correlation:.3f}), "
        f"r={scanned.at_zero:.3f} at 0, next best r={scanned.next_best:.3f}"
    )
    if scanned.shifted:
        figures |= {"shift": lag, "since": scanned.since}
        finding = fault(TOPIC, _shifted(scanned), BINDING)
        return Section(TOPIC, figures, (finding,), (line,))
    if scanned.at_zero < _CLEAR:
        told = (
            f"rewards are not those of their samples (r={scanned.at_zero:.3f} with the recomputed "
            "ones), and no lag within two batches explains it"
        )
        return Section(TOPIC, figures, (fault(TOPIC, told, BINDING),), (line,))
    return Section(TOPIC, figures, (), (line,))


def _shifted(scanned: LagScan) -> str:
    count, side = abs(scanned.lag), "late" if scanned.lag > 0 else "early"
    samples = "1 sample" if count == 1 else f"{count} samples"
    example = max(scanned.since, scanned.lag)
    return (
        f"rewards are {samples} {side} since seq {scanned.since} (r={scanned.correlation:.3f}): the "
        f"reward that s{example} got was computed on s{example - scanned.lag}"
    )


def report_feature(name: str, scanned: LagScan | None) -> Section:
    """What a scan against a cheap feature says: only a clear peak away from 0 is an alarm."""
    topic = f"{TOPIC} by {name}"
    if scanned is None:
        return Section(topic, {"samples": 0})
    strength = abs(scanned.correlation) * scanned.samples**0.5
    figures = {"lag": scanned.lag, "correlation": round(scanned.correlation, 4),
               "correlationAtZero": round(scanned.at_zero, 4), "samples": scanned.samples}  # fmt: skip
    suspicious = (
        scanned.lag != 0
        and strength > _DEVIATIONS
        and scanned.correlation > 2 * abs(scanned.at_zero)
        and scanned.correlation > 1.5 * scanned.next_best
    )
    if not suspicious:
        return Section(topic, figures)
    told = (
        f"rewards go with the {name} of the sample {scanned.lag} slots before (r="
        f"{scanned.correlation:.3f}), not with that of their own (r={scanned.at_zero:.3f})"
    )
    return Section(topic, figures, (warning(topic, told, BINDING),))
