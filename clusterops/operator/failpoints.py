"""Every write of the operator by name, and a way for tests to stop it before or after any of them.

`OPERATOR_FAILPOINT=before:release-quota:2` kills the process (SIGKILL, as by a power
cut) just before it sends the second such write; `after:` once the server has answered. Without the
variable a point costs one comparison.
"""

import os
import signal
from collections.abc import Callable

ENVIRONMENT = "OPERATOR_FAILPOINT"

WRITE_POINTS = (
    "add-job-finalizer",
    "remove-job-finalizer",
    "write-job-status",
    "delete-job",
    "create-workload",
    "update-workload",
    "evict-workload",
    "cancel-eviction",
    "set-pods-ready",
    "release-quota",
    "hold-workload",
    "wake-workload",
    "finish-workload",
    "remove-workload-finalizer",
    "delete-workload",
    "create-secret",
    "create-service",
    "create-pod",
    "end-pod",
    "delete-pod",
)

Failpoint = Callable[[str], None]
"""Called with `before:POINT` and `after:POINT` around each write."""


def unarmed(passage: str) -> None:
    """Does nothing."""
    del passage


class KillAt:
    """Kills this process at the n-th passage of one side of one point."""

    def __init__(self, passage: str, count: int) -> None:
        side, _, point = passage.partition(":")
        if side not in ("before", "after") or point not in WRITE_POINTS:
            raise ValueError(
                f"no write point {passage!r}: say before: or after: and one of "
                + ", ".join(WRITE_POINTS)
            )
        self._passage = passage
        self._remaining = count

    def __call__(self, passage: str) -> None:
        if passage != self._passage:
            return
        self._remaining -= 1
        if self._remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def from_environment() -> Failpoint:
    """The failpoint that the environment arms; raises ValueError for one that does not exist."""
    armed = os.environ.get(ENVIRONMENT, "")
    if not armed:
        return unarmed
    side, _, rest = armed.partition(":")
    point, _, count = rest.partition(":")
    return KillAt(f"{side}:{point}", int(count or 1))
