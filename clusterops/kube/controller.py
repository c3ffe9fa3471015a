"""Workers that take keys from a queue and bring the world nearer to what is wanted, for ever."""

from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple

from clusterops.kube.workqueue import K, QueueState, WorkQueue


class ControllerState(NamedTuple):
    """A snapshot for health pages and metrics. Counts are since the start."""

    name: str
    running: bool
    workers: int
    queue: QueueState
    reconciles: int
    errors: dict[str, int]
    last_error: str
    busy_seconds: float


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
        """`reconcile` returns the seconds after which it wants to see the key again, or None."""
        raise NotImplementedError

    async def run(self) -> None:
        """Works until cancelled, or until the queue is shut down and empty."""
        raise NotImplementedError

    def state(self) -> ControllerState:
        """How it is doing now."""
        raise NotImplementedError
