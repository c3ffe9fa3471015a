"""When to save without being asked: every so many steps, every so many seconds, or by cost.

By cost is the default: the interval that loses least in expectation is sqrt(2 * cost * time between
failures) (Young 1974, Daly 2006), with the cost being the seconds that training stood still for the
last save. The first save comes early, because it measures the cost and shows while somebody is still
looking that saving works.
"""

import math
from dataclasses import dataclass

FIRST_AFTER_SECONDS = 10.0
SHORTEST_SECONDS = 10.0
LONGEST_SECONDS = 1800.0
SECONDS_BETWEEN_FAILURES = 6 * 3600.0


@dataclass(slots=True)
class SaveInterval:
    """Decides from the steps and seconds since the last save. At most one of the two is set."""

    every_steps: int | None = None
    every_seconds: float | None = None
    cost_seconds: float | None = None

    def is_due(self, steps: int, seconds: float) -> bool:
        """Whether to save, so many steps and seconds after the last save or the start."""
        if steps <= 0:
            return False
        if self.every_steps is not None:
            return steps >= self.every_steps
        return seconds >= self.seconds()

    def seconds(self) -> float:
        """The interval in force."""
        if self.every_seconds is not None:
            return self.every_seconds
        if self.cost_seconds is None:
            return FIRST_AFTER_SECONDS
        best = math.sqrt(2 * self.cost_seconds * SECONDS_BETWEEN_FAILURES)
        return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, best))
