"""Latencies in a bounded histogram: percentiles in constant memory, within five percent."""

import math

_GROWTH = math.log(1.05)
_FLOOR_SECONDS = 1e-5
_BUCKETS = 480  # 1e-5 s * 1.05**480 is about 40 hours


class LatencyHistogram:
    """Counts of latencies in buckets that grow by five percent."""

    def __init__(self) -> None:
        self.count = 0
        self._buckets = [0] * _BUCKETS

    def add(self, seconds: float) -> None:
        """Counts one latency."""
        place = 0
        if seconds > _FLOOR_SECONDS:
            place = min(_BUCKETS - 1, int(math.log(seconds / _FLOOR_SECONDS) / _GROWTH) + 1)
        self._buckets[place] += 1
        self.count += 1

    def percentile(self, fraction: float) -> float:
        """The upper edge of the bucket in which the percentile lies, in seconds; 0 when empty."""
        wanted = fraction * self.count
        seen = 0
        for place, number in enumerate(self._buckets):
            seen += number
            if seen >= wanted and seen:
                return _FLOOR_SECONDS * math.exp(place * _GROWTH)
        return 0.0
