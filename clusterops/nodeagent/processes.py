# ruff: noqa: PTH123, PTH208 - pathlib costs each container a MB
"""What /proc says about processes, and signals that can only reach the process that was meant.

A pid alone names nobody for long: the kernel gives it to another process later. A pid together with
the time its process started does. Standard library only, and little of it.
"""

from __future__ import annotations

import contextlib
import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Process:
    """One line of the process table. `start_ticks` counts clock ticks since boot."""

    __slots__ = ("parent", "pid", "session", "start_ticks", "state")

    def __init__(self, pid: int, parent: int, session: int, start_ticks: int, state: str) -> None:
        self.pid = pid
        self.parent = parent
        self.session = session
        self.start_ticks = start_ticks
        self.state = state

    @property
    def dead(self) -> bool:
        """True for a zombie: it runs no more and waits only to be reaped."""
        return self.state in ("Z", "X", "x")


def read(pid: int) -> Process | None:
    """The process with this pid, None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The command's name stands in parentheses and may itself hold blanks and parentheses.
    fields = line[line.rindex(b")") + 2 :].split()
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), fields[0].decode())


def table() -> list[Process]:
    """All processes that can be seen, by pid. Not a snapshot: processes come and go meanwhile."""
    found = (read(int(name)) for name in sorted(os.listdir("/proc")) if name.isdigit())
    return [process for process in found if process is not None]


def is_alive(pid: int, start_ticks: int) -> bool:
    """True while exactly this process runs; a zombie does not, nor does a later one of that pid."""
    process = read(pid)
    return process is not None and process.start_ticks == start_ticks and not process.dead


def open_pidfd(pid: int, start_ticks: int) -> int | None:
    """A descriptor of exactly this process, readable once it ends; None when it is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except (ProcessLookupError, PermissionError):
        return None
    # Only now does the comparison hold: while the descriptor is open the kernel keeps the two apart.
    if is_alive(pid, start_ticks):
        return descriptor
    os.close(descriptor)
    return None


def send(pid: int, start_ticks: int, number: int) -> bool:
    """Signals exactly this process. False when it is gone or belongs to somebody else."""
    descriptor = open_pidfd(pid, start_ticks)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    return True


def descendants(roots: Iterable[int], processes: list[Process]) -> list[Process]:
    """Children, their children and so on of the roots, themselves not included."""
    children: dict[int, list[Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    seen = set(roots)
    waiting = sorted(seen)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child.pid not in seen:
                seen.add(child.pid)
                found.append(child)
                waiting.append(child.pid)
    return found


def in_session(session: int, processes: list[Process]) -> list[Process]:
    """The members of a session."""
    return [process for process in processes if process.session == session]


def declares(pid: int, variable: str) -> bool:
    """True when the process was started with this `NAME=value` in its environment.

    An environment is inherited however often a program forks or changes its session, so a value
    that only one pod has finds that pod's strays.
    """
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return variable.encode() in file.read().split(b"\0")
    return False
