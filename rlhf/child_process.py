"""Processes of a run below the first: started with one end of a socket pair, gone with their parent."""

import contextlib
import ctypes
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1
_END_SECONDS = 10.0


class Child(NamedTuple):
    """A started process and our end of the link to it."""

    process: subprocess.Popen[bytes]
    link: socket.socket

    def end(self, seconds: float = _END_SECONDS) -> None:
        """Closes the link, at which the process ends by itself; kills it when it does not."""
        with contextlib.suppress(OSError):
            self.link.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kills the process now."""
        self.process.kill()
        self.process.wait(_END_SECONDS)
        with contextlib.suppress(OSError):
            self.link.close()


def start(module: str, arguments: Sequence[str] = ()) -> Child:
    """Runs `python -m module FD ...`, where FD is the number of its end of the link."""
    ours, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(theirs.fileno()), *arguments],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno() if _has_number(sys.stderr) else None,
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return Child(process, ours)


def begin_child(number: str) -> socket.socket:
    """What a child does first: takes its end of the link, and leaves stopping to its parent.

    Notices to leave are for the first process of the run, which saves and then ends the others; so
    signals that ask to leave are ignored here, and the parent's death ends this process at once (or,
    when it died before this line, the closed link does).
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for asked in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(asked, signal.SIG_IGN)
    return socket.socket(fileno=int(number))


def _has_number(stream: object) -> bool:
    """Whether it is a real file: under test runners and notebooks it may not be."""
    try:
        stream.fileno()  # type: ignore[attr-defined]  # that is the question
    except (AttributeError, OSError, ValueError):
        return False
    return True
