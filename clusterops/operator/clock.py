"""Wall time for the API that does not jump: read once, then carried on by a monotonic clock."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class SteadyClock:
    """`now()` agrees with the wall clock at the start and never goes backwards or leaps after it.

    Deadlines in status are wall time, since they outlive processes; a clock that is set while the
    operator runs must neither end windows early nor stretch them.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._wall_at_start = datetime.now(UTC)
        self._monotonic_at_start = monotonic()

    def now(self) -> datetime:
        """The time of day in UTC."""
        passed = self._monotonic() - self._monotonic_at_start
        return self._wall_at_start + timedelta(seconds=passed)

    def monotonic(self) -> float:
        """Seconds on the clock behind."""
        return self._monotonic()
