"""The one place where this room's commands wait for another process."""

import time
from collections.abc import Callable

POLL_SECONDS = 0.05


def wait_until(true: Callable[[], bool], seconds: float) -> bool:
    """Asks until it is true, about twenty times a second; False when it was not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
