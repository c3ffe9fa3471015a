"""Workers that take keys from a queue and bring the world nearer to what is wanted, for ever.

Level-triggered: a key says what to look at, never what happened. What becomes of a key:

| `reconcile(key)` | then |
|---|---|
| returns None | forgotten until something adds it |
| returns seconds | seen again after them |
| raises Conflict | read anew soon: back-off of its own key |
| raises Retryable | back-off, not sooner than the server's Retry-After |
| raises another KubeError | would fail the same way again: only every `permanent_retry_seconds` |
| raises anything else | a bug: logged with traceback, back-off |
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, NamedTuple

from clusterops.kube.errors import Conflict, KubeError, Retryable, printable
from clusterops.kube.reflector import Reflector
from clusterops.kube.workqueue import K, QueueState, ShutDown, WorkQueue

log = logging.getLogger(__name__)


class ControllerState(NamedTuple):
    """A snapshot for health pages and metrics. Counts are since the start, by type of error."""

    name: str
    running: bool
    workers: int
    queue: QueueState
    reconciles: int
    errors: dict[str, int]
    last_error: str
    busy_seconds: float
    slowest_seconds: float

    def healthy(self, stuck_after_seconds: float = 600.0) -> bool:
        """Whether it works and no key has waited or been worked on for that long."""
        return (
            self.running
            and self.queue.oldest_ready_seconds < stuck_after_seconds
            and self.queue.longest_processing_seconds < stuck_after_seconds
        )


class Controller(Generic[K]):
    """Runs `reconcile(key)` in `workers` tasks; a key is never in two of them."""

    def __init__(
        self,
        name: str,
        queue: WorkQueue[K],
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        workers: int = 4,
        timeout_seconds: float = 120.0,
        permanent_retry_seconds: float = 300.0,
    ) -> None:
        """`reconcile` returns the seconds after which it wants to see the key again, or None.

        One that takes longer than `timeout_seconds` is cancelled and counts as TimeoutError.
        """
        if workers < 1:
            raise ValueError(f"controller {name!r} needs a worker, not {workers}")
        self.name = name
        self.queue = queue
        self._reconcile = reconcile
        self._workers = workers
        self._timeout_seconds = timeout_seconds
        self._permanent_retry_seconds = permanent_retry_seconds
        self._running = False
        self._reconciles = 0
        self._errors: dict[str, int] = {}
        self._last_error = ""
        self._busy_seconds = 0.0
        self._slowest_seconds = 0.0

    async def run(self) -> None:
        """Works until cancelled, or until the queue is shut down and empty."""
        self._running = True
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._workers):
                    group.create_task(self._work(), name=f"{self.name}-{number}")
        finally:
            self._running = False

    def state(self) -> ControllerState:
        """How it is doing now."""
        return ControllerState(
            name=self.name,
            running=self._running,
            workers=self._workers,
            queue=self.queue.state(),
            reconciles=self._reconciles,
            errors=dict(self._errors),
            last_error=self._last_error,
            busy_seconds=self._busy_seconds,
            slowest_seconds=self._slowest_seconds,
        )

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except ShutDown:
                return
            try:
                await self._process(key)
            finally:
                self.queue.done(key)

    async def _process(self, key: K) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                again_after = await self._reconcile(key)
        # A supervising loop: one key's bug must not stop the others, and it is never silent.
        except Exception as error:
            self._failed(key, error)
        else:
            self.queue.forget(key)
            if again_after is not None:
                self.queue.add_after(key, again_after)
        took = loop.time() - started
        self._reconciles += 1
        self._busy_seconds += took
        self._slowest_seconds = max(self._slowest_seconds, took)

    def _failed(self, key: K, error: Exception) -> None:
        kind = type(error).__name__
        self._errors[kind] = self._errors.get(kind, 0) + 1
        where = f"{self.name} {printable(str(key))}"
        if isinstance(error, Conflict):
            self.queue.retry(key)
            log.debug("%s: %s", where, error)
            return
        self._last_error = f"{where}: {kind}: {printable(str(error))}"
        if isinstance(error, Retryable):
            delay = self.queue.retry(key, at_least_seconds=error.retry_after_seconds or 0.0)
            log.info("%s: %s; again in %.1f s", where, error, delay)
        elif isinstance(error, KubeError):
            delay = self.queue.retry(key, at_least_seconds=self._permanent_retry_seconds)
            log.warning("%s: %s: %s; again in %.0f s", where, kind, error, delay)
        elif isinstance(error, TimeoutError):
            delay = self.queue.retry(key)
            log.warning(
                "%s: not done within %g s; again in %.1f s", where, self._timeout_seconds, delay
            )
        else:
            delay = self.queue.retry(key)
            log.error("%s: again in %.1f s", where, delay, exc_info=error)


async def run_until(
    stop: asyncio.Event,
    *,
    reflectors: Sequence[Reflector[Any]] = (),
    controllers: Sequence[Controller[Any]] = (),
    sync_timeout_seconds: float = 120.0,
    drain_seconds: float = 10.0,
) -> None:
    """Runs reflectors, and controllers once all of them are synced, until `stop` is set.

    At the end the controllers finish the keys they have, within `drain_seconds`. If any of the
    tasks ends or fails by itself, all end and the error is raised: there is no half-alive state.
    Cancelling stops everything without draining. Raises TimeoutError when a first list takes
    longer than `sync_timeout_seconds`.
    """
    watching = [
        asyncio.create_task(reflector.run(), name=f"reflect-{reflector.resource.plural}")
        for reflector in reflectors
    ]
    working: list[asyncio.Task[None]] = []
    try:
        await _while_alive(watching, _synced_or_stopped(reflectors, sync_timeout_seconds, stop))
        if stop.is_set():
            return
        working = [
            asyncio.create_task(controller.run(), name=controller.name)
            for controller in controllers
        ]
        await _while_alive([*watching, *working], _until_set(stop))
        for controller in controllers:
            controller.queue.shut_down()
        if working:
            _, late = await asyncio.wait(working, timeout=drain_seconds)
            for task in late:
                log.warning(
                    "%s was not done within %g s and is stopped", task.get_name(), drain_seconds
                )
    finally:
        for task in (*watching, *working):
            task.cancel()
        await asyncio.gather(*watching, *working, return_exceptions=True)


async def _while_alive(
    alive: Sequence[asyncio.Task[None]], wanted: Coroutine[Any, Any, None]
) -> None:
    """Waits for `wanted`; if one of `alive` ends before, raises what ended it."""
    task = asyncio.create_task(wanted)
    try:
        await asyncio.wait([task, *alive], return_when=asyncio.FIRST_COMPLETED)
        for other in alive:
            if other.done():
                await other  # raises its error, the cause as it was
                raise RuntimeError(f"{other.get_name()} ended by itself")
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _synced_or_stopped(
    reflectors: Sequence[Reflector[Any]], timeout_seconds: float, stop: asyncio.Event
) -> None:
    stopped = asyncio.create_task(stop.wait())
    try:
        for reflector in reflectors:
            synced = asyncio.create_task(reflector.wait_synced(timeout_seconds))
            try:
                await asyncio.wait([synced, stopped], return_when=asyncio.FIRST_COMPLETED)
                if stopped.done():
                    return
                await synced
            finally:
                synced.cancel()
                await asyncio.gather(synced, return_exceptions=True)
    finally:
        stopped.cancel()
        await asyncio.gather(stopped, return_exceptions=True)


async def _until_set(stop: asyncio.Event) -> None:
    await stop.wait()
