"""Starts shims, notices their end, asks them to stop, and ends what a dead one left behind."""

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from clusterops.nodeagent import processes, records

SHIM = Path(__file__).with_name("shim.py")

START_SECONDS = 30.0
LEFTOVERS_SECONDS = 10.0
ABANDON_SECONDS = 2.0
POLL_SECONDS = 0.02

AtWritePoint = Callable[[str], None]


class CannotStart(Exception):
    """The shim could not prepare the run; nothing was started. The text is its own."""


class LeftoversRemain(Exception):
    """Processes of an ended run are still there although they were killed."""


class Shims:
    """The shims of one agent, whether started by it or by an earlier run of it.

    Each is known by the folder of its run. `on_exit` is called in the event loop, with what `watch`
    or `start` was given, when a shim has gone.
    """

    def __init__(self, on_exit: Callable[[tuple[str, str]], None], at: AtWritePoint) -> None:
        self._on_exit = on_exit
        self._at = at
        self._watched: dict[Path, int] = {}  # run folder -> pidfd
        self._children: set[int] = set()  # to be reaped when they have ended

    async def start(self, folder: Path, key: tuple[str, str]) -> None:
        """Starts the run described by launch.json and waits until its process is recorded.

        Harmless when the run has been started already.

        Raises:
            CannotStart: the shim gave up before the start.
            OSError: the shim itself could not be started.
        """
        ready_read, ready_write = os.pipe()
        try:
            pid = self._spawn(folder, ready_write)
        finally:
            os.close(ready_write)
        self._children.add(pid)
        self._at("shim-started")
        try:
            async with asyncio.timeout(START_SECONDS):
                ready = await _read_byte(ready_read)
        except TimeoutError:
            raise CannotStart(f"no sign of a start within {START_SECONDS:g} s") from None
        finally:
            os.close(ready_read)
        watched = self.watch(folder, key)
        self._reap()
        if watched or ready or (folder / records.RUNNING).exists():
            return
        errors = b""
        with contextlib.suppress(OSError):
            errors = (folder / records.SHIM_ERRORS).read_bytes()[-1024:]
        text = errors.decode(errors="replace").strip().removeprefix("shim: ")
        raise CannotStart(text or "the supervisor of the container ended without a word")

    def watch(self, folder: Path, key: tuple[str, str]) -> bool:
        """Calls `on_exit(key)` when the run's shim ends. False when it is not running."""
        if folder in self._watched:
            return True
        running = records.read(str(folder / records.RUNNING))
        if running is None or running["bootId"] != records.boot_id():
            return False
        pid = running["shim"]["pid"]
        descriptor = processes.open_pidfd(pid, running["shim"]["startTicks"])
        if descriptor is None:
            return False
        self._watched[folder] = descriptor

        def ended() -> None:
            self._unwatch(folder)
            self._reap()
            self._on_exit(key)

        asyncio.get_running_loop().add_reader(descriptor, ended)
        return True

    def ask_to_stop(self, folder: Path, grace_seconds: float) -> None:
        """Records the wish durably enough for the shim and for our next run, then tells the shim."""
        kill_at = time.monotonic() + grace_seconds
        records.write(str(folder / records.STOP), {"killAt": kill_at}, durable=False)
        self._at("stop-requested")
        self.tell(folder)
        self._at("stop-sent")

    def tell(self, folder: Path) -> None:
        """Makes the shim look at stop.json; harmless when it has, or has gone."""
        running = records.read(str(folder / records.RUNNING))
        if running is not None and running["bootId"] == records.boot_id():
            shim = running["shim"]
            processes.send(shim["pid"], shim["startTicks"], signal.SIGTERM)

    async def abandon(self, folder: Path) -> bool:
        """Makes sure that a prepared run never starts. False when it is just being started."""
        with (folder / records.LOCK).open("ab") as file:
            give_up_at = time.monotonic() + ABANDON_SECONDS
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= give_up_at:
                        return False
                    await asyncio.sleep(POLL_SECONDS)
            if (folder / records.RUNNING).exists():
                return False
            (folder / records.LAUNCH).unlink(missing_ok=True)
        return True

    async def end_leftovers(self, folder: Path, marker: str) -> None:
        """KILLs the shim and all that is left of a run, and waits until it is gone.

        `marker` is the `TMPDIR=...` by which strays are known that left the session.

        Raises:
            LeftoversRemain: something survives KILL (it is stuck in the kernel).
        """
        running = records.read(str(folder / records.RUNNING))
        if running is None or running["bootId"] != records.boot_id():
            return
        give_up_at = time.monotonic() + LEFTOVERS_SECONDS
        while True:
            alive = leftovers(running, marker, processes.table())
            for process in alive:
                processes.send(process.pid, process.start_ticks, signal.SIGKILL)
            if not alive:
                break
            if time.monotonic() >= give_up_at:
                raise LeftoversRemain(f"processes {[p.pid for p in alive]} do not end on KILL")
            await asyncio.sleep(POLL_SECONDS)
        self._at("leftovers-ended")

    def close(self) -> None:
        """Stops watching; the shims go on."""
        for folder in list(self._watched):
            self._unwatch(folder)

    def _spawn(self, folder: Path, ready_write: int) -> int:
        errors = str(folder / records.SHIM_ERRORS)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        # -I and -S: nothing of the user's Python set-up; the environment stays empty.
        command = [sys.executable, "-I", "-S", "-X", "utf8", str(SHIM), str(folder)]
        return os.posix_spawn(
            sys.executable,
            command,
            {},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, ready_write, 1),
                (os.POSIX_SPAWN_OPEN, 2, errors, flags, 0o600),
            ],
            setsigmask=[],
            setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD],
        )

    def _unwatch(self, folder: Path) -> None:
        descriptor = self._watched.pop(folder)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)

    def _reap(self) -> None:
        """Collects those of our own children that have ended. Adopted shims are init's."""
        for pid in sorted(self._children):
            try:
                ended, _ = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                ended = pid
            if ended:
                self._children.discard(pid)


def leftovers(
    running: dict[str, object], marker: str, table: list[processes.Process]
) -> list[processes.Process]:
    """The processes that belong to a run: its shim, its process, their session, and all below.

    A session's number may have been given to somebody else since; the session counts only while
    its first process is ours or one of its members carries the marker.
    """
    known = []
    for role in ("shim", "process"):
        entry = running[role]
        assert isinstance(entry, dict)
        known.append((entry["pid"], entry["startTicks"]))
    living = [process for process in table if not process.dead and process.pid != os.getpid()]
    found = {p.pid: p for p in living if (p.pid, p.start_ticks) in known}
    found.update({p.pid: p for p in living if processes.declares(p.pid, marker)})
    session = known[1][0]
    members = processes.in_session(session, living)
    if any(member.pid in found for member in members):
        found.update({member.pid: member for member in members})
    found.update({p.pid: p for p in processes.descendants(found, living)})
    found.pop(os.getpid(), None)
    return [found[pid] for pid in sorted(found)]


async def _read_byte(descriptor: int) -> bytes:
    """One byte, or nothing at the end of the pipe."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    os.set_blocking(descriptor, False)

    def tell() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(descriptor, tell)
    try:
        await readable
        return os.read(descriptor, 1)
    finally:
        loop.remove_reader(descriptor)
