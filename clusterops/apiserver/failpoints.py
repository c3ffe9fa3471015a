"""The points of a write at which a test may kill the server, in one list.

A crash test sets `APISERVER_FAILPOINT=POINT:N`: the process is killed (SIGKILL, as by a
power cut) when it passes that point for the N-th time. Without the variable a point costs one
comparison.
"""

import os
import signal

ENVIRONMENT = "APISERVER_FAILPOINT"

OPEN_CREATED = "open.created"  # the file exists and is empty
OPEN_SCHEMA = "open.schema"  # its tables exist
STAGED = "write.staged"  # a write has its resourceVersion and is seen by other writers
COMMIT_BEGUN = "commit.begun"  # the transaction is open
COMMIT_ROWS = "commit.rows"  # its rows are written, the counter is not
COMMIT_BEFORE = "commit.before"  # all is written, nothing is durable
COMMIT_AFTER = "commit.after"  # durable; nobody knows yet
PUBLISHED = "write.published"  # readers and watchers see it; the client has no answer

WRITE_POINTS = (
    OPEN_CREATED,
    OPEN_SCHEMA,
    STAGED,
    COMMIT_BEGUN,
    COMMIT_ROWS,
    COMMIT_BEFORE,
    COMMIT_AFTER,
    PUBLISHED,
)


class Failpoint:
    """Counts passes of one armed point. Unarmed (`point` empty), `passed` does nothing."""

    def __init__(self, point: str = "", count: int = 0) -> None:
        if point and point not in WRITE_POINTS:
            raise ValueError(f"no write point {point!r}; there are {', '.join(WRITE_POINTS)}")
        self.point = point
        self.remaining = count

    def passed(self, point: str) -> None:
        """Kill this process if `point` is armed and its count is up."""
        if point != self.point:
            return
        self.remaining -= 1
        if self.remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def from_environment() -> Failpoint:
    """The failpoint that `APISERVER_FAILPOINT` arms; unarmed when it is not set."""
    point, _, count = os.environ.get(ENVIRONMENT, "").partition(":")
    return Failpoint(point, int(count or 1)) if point else Failpoint()
