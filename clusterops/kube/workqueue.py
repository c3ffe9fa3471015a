"""Keys waiting for work: each at most once, never in two workers, retried with growing delay."""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from clusterops.kube.rate_limit import TokenBucket

K = TypeVar("K", bound=Hashable)


class ShutDown(Exception):
    """The queue was shut down and everything in it has been handed out."""


class QueueState(NamedTuple):
    """A snapshot for health pages and metrics. Times in seconds."""

    ready: int
    delayed: int
    processing: int
    oldest_ready_seconds: float
    longest_processing_seconds: float
    retries: int


class WorkQueue(Generic[K]):
    """A de-duplicating queue of keys for one event loop (not for other threads).

    A key added while it waits is not added again; one added while a worker has it is handed out
    again after `done`. So no change is ever lost and no key is ever in two workers.
    """

    def __init__(
        self,
        *,
        base_delay_seconds: float = 0.1,
        max_delay_seconds: float = 300.0,
        jitter: float = 0.2,
        retry_bucket: TokenBucket | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`jitter` is the fraction by which a retry's delay is lengthened at most.

        `retry_bucket` limits the retries of all keys together (default 20 a second, 200 at once).
        """
        self._base_delay_seconds = base_delay_seconds
        self._max_delay_seconds = max_delay_seconds
        self._jitter = jitter
        self._retry_bucket = retry_bucket or TokenBucket(20.0, 200.0)
        self._rng = rng or random.Random()
        self._ready: deque[K] = deque()
        self._ready_since: dict[K, float] = {}  # keys in _ready
        self._processing: dict[K, float] = {}  # key -> since when
        self._again: dict[K, None] = {}  # added while a worker has it
        self._due: dict[K, float] = {}  # delayed keys -> loop time
        self._heap: list[tuple[float, int, K]] = []  # may hold outdated entries of _due
        self._heap_sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._failures: dict[K, int] = {}
        self._retries = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    def add(self, key: K) -> None:
        """Makes the key ready now, unless it already is. Ignored after `shut_down`."""
        if self._closed:
            return
        if key in self._processing:
            self._again[key] = None
        elif key not in self._ready_since:
            self._ready.append(key)
            self._ready_since[key] = _now()
            self._idle.clear()
            self._wake_one()

    def add_after(self, key: K, delay_seconds: float) -> None:
        """Makes the key ready after a delay. Of several delays of one key the earliest counts."""
        if self._closed:
            return
        if delay_seconds <= 0:
            self.add(key)
            return
        due = _now() + delay_seconds
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        self._heap_sequence += 1
        heapq.heappush(self._heap, (due, self._heap_sequence, key))
        self._arm_timer()

    def retry(self, key: K, *, at_least_seconds: float = 0.0) -> float:
        """Adds the key again after its next back-off delay and returns that delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._retries += 1
        # The exponent is bounded: 2.0 ** 1100 would overflow.
        delay = min(self._max_delay_seconds, self._base_delay_seconds * 2.0 ** min(failures, 60))
        delay *= 1.0 + self._jitter * self._rng.random()
        delay = max(delay, self._retry_bucket.reserve(), at_least_seconds)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Resets the key's back-off, after a success or when the object is gone."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How many retries in a row the key has had."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """Waits for a key and hands it to the caller, who must call `done`. Raises ShutDown."""
        while not self._ready:
            if self._closed:
                raise ShutDown
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_one()  # the wake-up was ours and is passed on
                raise
        key = self._ready.popleft()
        del self._ready_since[key]
        self._processing[key] = _now()
        return key

    def done(self, key: K) -> None:
        """The caller of `get` is finished with the key, successfully or not."""
        del self._processing[key]
        if key in self._again:
            del self._again[key]
            self._ready.append(key)
            self._ready_since[key] = _now()
            self._wake_one()
        elif not self._ready and not self._processing:
            self._idle.set()

    def shut_down(self, *, drain: bool = True) -> None:
        """Takes no more keys. Ready keys are still handed out unless `drain` is false; delayed go."""
        self._closed = True
        self._due.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not drain:
            self._ready.clear()
            self._ready_since.clear()
            self._again.clear()
        if not self._ready and not self._processing:
            self._idle.set()
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    async def join(self, timeout_seconds: float) -> bool:
        """Waits until nothing is ready or being processed; False when the time was not enough."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def state(self) -> QueueState:
        """Lengths and ages now."""
        now = _now()
        return QueueState(
            ready=len(self._ready),
            delayed=len(self._due),
            processing=len(self._processing),
            oldest_ready_seconds=max(
                (now - since for since in self._ready_since.values()), default=0.0
            ),
            longest_processing_seconds=max(
                (now - since for since in self._processing.values()), default=0.0
            ),
            retries=self._retries,
        )

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _arm_timer(self) -> None:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # replaced by an earlier one
        if not self._heap:
            return
        due = self._heap[0][0]
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = asyncio.get_running_loop().call_at(due, self._promote)

    def _promote(self) -> None:
        self._timer = None
        now = _now()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        self._arm_timer()


def _now() -> float:
    return asyncio.get_running_loop().time()
