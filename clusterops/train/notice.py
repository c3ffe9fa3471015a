"""Who asks the job to save or to leave, and whether that was done.

Requests come from two sides: the operator's answers to heartbeats, and SIGTERM. Training looks at
step boundaries and inside long sections. The operator may take a request back as long as it is not
served; a signal stays.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from clusterops.api.heartbeat import SaveRequest

SIGNAL_ID = "SIGTERM"


@dataclass(frozen=True, slots=True)
class Notice:
    """A wish to be served: save, and with `then_exit` leave. `deadline` is on the monotonic clock."""

    id: str
    reason: str
    then_exit: bool
    deadline: float | None = None


class NoticeBoard:
    """Written by the heartbeat thread and the signal handler, read by training.

    Every field is replaced in one assignment: the signal handler interrupts any other method, so
    there must be no lock that it could wait for.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked: Notice | None = None
        self._terminated: Notice | None = None
        self._served: frozenset[str] = frozenset()
        self._stale = ""

    @property
    def stale(self) -> str:
        """Why this attempt must stop without saving; "" while it need not."""
        return self._stale

    def pending(self) -> Notice | None:
        """What is asked and not yet served. To leave counts more than to save."""
        if self._terminated is not None:
            return self._terminated
        asked = self._asked
        return None if asked is None or asked.id in self._served else asked

    def answered(self, request: SaveRequest | None) -> None:
        """Takes over what the operator asks at present; None takes an earlier request back."""
        if request is None:
            self._asked = None
            return
        deadline = self._clock() + request.remaining_seconds
        self._asked = Notice(request.id, request.reason, request.then_exit, deadline)

    def terminated(self) -> None:
        """Notes a SIGTERM. Safe in a signal handler."""
        self._terminated = Notice(SIGNAL_ID, "the process got SIGTERM", True)

    def superseded(self, why: str) -> None:
        """Notes that a newer attempt has taken over."""
        self._stale = why

    def served(self, ids: Iterable[str]) -> None:
        """Marks requests as done, also such as have not arrived here yet."""
        self._served = self._served | frozenset(ids)


class TerminationSignal:
    """Turns SIGTERM into a notice, from `install` to `restore`.

    Signals reach Python's main thread only; in any other thread nothing is installed. A handler
    that somebody installed before is called as well.
    """

    def __init__(self, board: NoticeBoard) -> None:
        self._board = board
        self._before: Any = None
        self._installed = False

    def install(self) -> bool:
        """Says whether SIGTERM is watched now."""
        if threading.current_thread() is not threading.main_thread():
            return False
        self._before = signal.signal(signal.SIGTERM, self._received)
        self._installed = True
        return True

    def restore(self) -> None:
        """Puts back what was there, unless somebody has installed another handler since."""
        if self._installed and signal.getsignal(signal.SIGTERM) == self._received:
            # None stands for a handler that was not installed from Python.
            before = signal.SIG_DFL if self._before is None else self._before
            signal.signal(signal.SIGTERM, before)
        self._installed = False

    def _received(self, number: int, frame: FrameType | None) -> None:
        self._board.terminated()
        if callable(self._before):
            self._before(number, frame)
