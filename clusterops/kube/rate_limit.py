"""Token buckets: how fast, and how many at once."""

import asyncio
import time
from collections.abc import Callable


class TokenBucket:
    """Lets `rate` things a second pass on average and `burst` at once.

    A reservation may drive the balance below zero; the debt is the time to wait. So waiters are
    served in the order in which they came and nobody starves.
    """

    def __init__(
        self, rate: float = 300.0, burst: float = 500.0, *, now: Callable[[], float] | None = None
    ) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError(f"a bucket needs rate > 0 and burst >= 1, not {rate} and {burst}")
        self._rate = rate
        self._burst = burst
        self._now = now
        self._tokens = burst
        self._updated: float | None = None

    def reserve(self) -> float:
        """Takes one token, in advance if need be; returns the seconds to wait before using it."""
        self._refill()
        self._tokens -= 1.0
        return 0.0 if self._tokens >= 0 else -self._tokens / self._rate

    def try_take(self) -> bool:
        """Takes one token if there is one now."""
        self._refill()
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    async def acquire(self) -> None:
        """Waits for a token. The wait is bounded by the number of waiters over the rate."""
        delay = self.reserve()
        if delay <= 0:
            return
        try:
            await asyncio.sleep(delay)
        except asyncio.CancelledError:
            self._tokens += 1.0  # never used: the next one need not wait for it
            raise

    def _refill(self) -> None:
        now = self._time()
        if self._updated is not None and now > self._updated:
            self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._rate)
        self._updated = now

    def _time(self) -> float:
        if self._now is not None:
            return self._now()
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return time.monotonic()
