"""An event loop whose clock jumps: an hour of sleeping takes no time, and every run is the same."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("every task waits for something that cannot happen any more")
        self.now += max(timeout, 0.0)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Where nothing is ready to run, the clock goes to the next timer at once."""

    def __init__(self) -> None:
        self.clock = _JumpingSelector()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


def run(work: Coroutine[Any, Any, T], *, limit_seconds: float = 1e6) -> T:
    """Runs a coroutine in virtual time, at most `limit_seconds` of it."""
    loop = VirtualTimeLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(asyncio.wait_for(work, limit_seconds))


def end(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels what still runs in the loop and closes it; for machines that drive a loop in steps."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


async def settle(seconds: float = 0.0) -> None:
    """Lets everything that is ready run, after `seconds` of virtual time."""
    await asyncio.sleep(seconds)
    for _ in range(20):
        await asyncio.sleep(0)


async def until(
    condition: Any, *, within_seconds: float = 60.0, step_seconds: float = 0.05
) -> None:
    """Waits for `condition()`, looking every step; fails after the deadline."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_seconds
    while not condition():
        assert loop.time() < deadline, f"not within {within_seconds} s: {condition}"
        await asyncio.sleep(step_seconds)
