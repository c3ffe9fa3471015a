# ruff: noqa: PTH100, PTH110, PTH118, PTH120 - pathlib costs each container a MB
"""Watches over one run of one container, so that nothing of it depends on the agent being alive.

Started as `python -I -S shim.py FOLDER`; the files in FOLDER are described in `records`. It starts
the container's process in a session of its own, copies its output to the log, ends it when told to
by stop.json and SIGTERM (TERM to the session, KILL to every descendant at the deadline), ends what
the process leaves behind, and records the exit code durably before it goes. It is the subreaper of
everything below it, so that a daemon cannot hide by forking twice; and should the shim itself be
killed, the kernel kills the container's process with it.

Exit status: 0 done, or nothing to do any more; 74 could not prepare (nothing was started; stderr
says why); 75 another shim has this folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import signal
import sys
import time

if __name__ == "__main__":
    # Isolated mode hides the folder of our packages. Last, so that it cannot shadow the library.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from clusterops.nodeagent import processes, records, start_errors
from clusterops.nodeagent.cri_log import CriLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

NOT_PREPARED = 74
ALREADY_WATCHED = 75

GRACE_WITHOUT_REQUEST_SECONDS = 30.0
UNFINISHED_LINE_SECONDS = 1.0
LAST_OUTPUT_SECONDS = 0.5
LEFTOVERS_SECONDS = 10.0
RECORD_RETRY_SECONDS = 60.0
READ_BYTES = 64 * 1024


class Shim:
    """One run of one container, from its start to exit.json."""

    def __init__(self, folder: str, launch: dict[str, Any]) -> None:
        self._folder = folder
        self._launch = launch
        self._log = CriLog(launch["log"], launch["logMaxBytes"], launch["logMaxFiles"])
        self._poller = select.poll()
        self._streams: dict[int, bytes] = {}
        self._failure = -1  # a failing start is reported here; closed by a successful exec
        self._wake = -1
        self._child = 0
        self._status: int | None = None  # exit code, or minus the signal
        self._start_error: tuple[str, int] | None = None
        self._started_at = ""
        self._term_sent = False
        self._kill_at: float | None = None
        self._unfinished_since: float | None = None

    def run(self) -> None:
        """Starts, watches and records. Raises OSError when the start could not be prepared."""
        self._listen_to_signals()
        records.reserve_exit(self._folder)
        go = self._fork()
        me, child = processes.read(os.getpid()), processes.read(self._child)
        assert me is not None
        assert child is not None
        records.write(
            os.path.join(self._folder, records.RUNNING),
            {
                "bootId": records.boot_id(),
                "shim": {"pid": me.pid, "startTicks": me.start_ticks},
                "process": {"pid": child.pid, "startTicks": child.start_ticks},
                "startedAt": self._started_at,
                "startedMonotonic": time.monotonic(),
            },
            durable=False,
        )
        os.write(go, b"1")
        os.close(go)
        self._say_ready()
        self._read_stop_request()
        while self._status is None:
            self._wait(self._seconds_until_due())
            self._obey_deadline()
        left_over = self._end_descendants()
        self._drain()
        self._log.close()
        self._record_exit(left_over)

    # Starting

    def _fork(self) -> int:
        """Forks the container's process, which waits for a byte on the returned pipe to go on."""
        out, out_write = os.pipe()
        err, err_write = os.pipe()
        failure, failure_write = os.pipe()
        ready, ready_write = os.pipe()
        go_read, go = os.pipe()
        self._started_at = records.timestamp(time.time_ns())
        shim = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            os.close(go)
            os.close(ready)
            self._become_container(shim, ready_write, go_read, out_write, err_write, failure_write)
        for descriptor in (out_write, err_write, failure_write, go_read, ready_write):
            os.close(descriptor)
        # From here on a TERM finds the session and ends it: before, it would find none to signal,
        # or a handler of ours that the exec then forgets, and the process would run until KILL.
        os.read(ready, 1)
        os.close(ready)
        self._streams = {out: b"stdout", err: b"stderr"}
        self._failure = failure
        for descriptor in (out, err, failure):
            os.set_blocking(descriptor, False)
            self._poller.register(descriptor, select.POLLIN)
        return go

    def _become_container(
        self, shim: int, ready: int, go_read: int, out: int, err: int, failure: int
    ) -> NoReturn:
        stage = "start"
        try:
            os.setsid()
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            _reset_signals()
            os.write(ready, b"1")
            os.close(ready)
            # The shim may have died before the line above; and an unrecorded process never runs.
            if os.getppid() != shim or not os.read(go_read, 1):
                os._exit(start_errors.CANNOT_START)
            nothing = os.open("/dev/null", os.O_RDONLY)
            for source, target in ((nothing, 0), (out, 1), (err, 2)):
                os.dup2(source, target)
            os.umask(self._launch["umask"])
            stage = "cwd"
            os.chdir(self._launch["cwd"])
            stage = "exec"
            argv = self._launch["argv"]
            os.execvpe(argv[0], argv, self._launch["env"])  # noqa: S606 - a vector, no shell
        except OSError as error:
            os.write(failure, f"{stage} {error.errno}".encode())
        except ValueError:  # a NUL in an argument
            os.write(failure, f"{stage} {errno.EINVAL}".encode())
        finally:
            os._exit(start_errors.CANNOT_START)

    def _say_ready(self) -> None:
        """The agent waits for a byte on our stdout; afterwards nobody reads there."""
        with contextlib.suppress(OSError):
            os.write(1, b"1")
        nothing = os.open("/dev/null", os.O_RDWR)
        os.dup2(nothing, 1)
        os.close(nothing)

    def _listen_to_signals(self) -> None:
        self._wake, wake_write = os.pipe()
        for descriptor in (self._wake, wake_write):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, lambda _number, _frame: None)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)
        self._poller.register(self._wake, select.POLLIN)

    # Watching

    def _seconds_until_due(self) -> float | None:
        moments = []
        if self._kill_at is not None:
            moments.append(self._kill_at)
        if self._unfinished_since is not None:
            moments.append(self._unfinished_since + UNFINISHED_LINE_SECONDS)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _wait(self, seconds: float | None) -> None:
        """Sleeps until something happens or the time is over, and deals with what happened."""
        milliseconds = None if seconds is None else int(seconds * 1000) + 1
        for descriptor, _ in self._poller.poll(milliseconds):
            if descriptor == self._wake:
                self._take_signals()
            elif descriptor == self._failure:
                self._take_start_error()
            else:
                self._take_output(descriptor)
        now = time.monotonic()
        if not self._log.has_pending():
            self._unfinished_since = None
        elif self._unfinished_since is None:
            self._unfinished_since = now
        elif now >= self._unfinished_since + UNFINISHED_LINE_SECONDS:
            self._log.flush()
            self._unfinished_since = None

    def _take_signals(self) -> None:
        numbers = b""
        with contextlib.suppress(BlockingIOError):
            while True:
                numbers += os.read(self._wake, 512)
        self._reap()
        if signal.SIGTERM in numbers:
            if not self._read_stop_request() and self._kill_at is None:
                self._kill_at = time.monotonic() + GRACE_WITHOUT_REQUEST_SECONDS
            self._send_term()

    def _read_stop_request(self) -> bool:
        request = records.read(os.path.join(self._folder, records.STOP))
        if request is None:
            return False
        self._kill_at = float(request["killAt"])
        self._send_term()
        return True

    def _send_term(self) -> None:
        if self._term_sent:
            return
        self._term_sent = True
        for process in processes.in_session(self._child, processes.table()):
            processes.send(process.pid, process.start_ticks, signal.SIGTERM)

    def _obey_deadline(self) -> None:
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_descendants()
            # Again in a moment, should the process have been forking just then.
            self._kill_at = time.monotonic() + 0.1

    def _take_start_error(self) -> None:
        report = os.read(self._failure, 64).decode()
        self._poller.unregister(self._failure)
        os.close(self._failure)
        if report:
            stage, number = report.split()
            self._start_error = (stage, int(number))

    def _take_output(self, descriptor: int) -> bool:
        """Copies what is there to the log; False once nothing is there or the stream has ended."""
        try:
            content = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        if content:
            self._log.feed(self._streams[descriptor], content)
            return True
        self._poller.unregister(descriptor)
        os.close(descriptor)
        del self._streams[descriptor]
        return False

    def _reap(self) -> bool:
        """Collects the dead; False when there are no children any more, dead or alive."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._child:
                self._status = os.waitstatus_to_exitcode(status)

    # Ending

    def _kill_descendants(self) -> list[int]:
        below = processes.descendants([os.getpid()], processes.table())
        alive = [process for process in below if not process.dead]
        for process in alive:
            processes.send(process.pid, process.start_ticks, signal.SIGKILL)
        return [process.pid for process in alive]

    def _end_descendants(self) -> list[int]:
        """Kills everything below; returns pids that even KILL did not end in time (stuck in the kernel)."""
        give_up_at = time.monotonic() + LEFTOVERS_SECONDS
        while self._reap():
            alive = self._kill_descendants()
            if time.monotonic() >= give_up_at:
                return alive
            self._wait(0.02)
        return []

    def _drain(self) -> None:
        """Takes the last output. The pipes end with their writers, unless one was handed outside."""
        give_up_at = time.monotonic() + LAST_OUTPUT_SECONDS
        while self._streams and time.monotonic() < give_up_at:
            for descriptor in list(self._streams):
                while self._take_output(descriptor) and time.monotonic() < give_up_at:
                    pass
            if self._streams:
                self._poller.poll(10)

    def _record_exit(self, left_over: list[int]) -> None:
        assert self._status is not None
        code, number = (
            (self._status, 0) if self._status >= 0 else (128 - self._status, -self._status)
        )
        reason, message = ("Completed" if code == 0 else "Error"), ""
        if self._start_error is not None:
            code, message = start_errors.explain(*self._start_error, self._launch)
            reason = start_errors.REASON
        record = {
            "bootId": records.boot_id(),
            "code": code,
            "signal": number,
            "reason": reason,
            "message": message,
            "startedAt": self._started_at,
            "finishedAt": records.timestamp(time.time_ns()),
            "finishedMonotonic": time.monotonic(),
            "droppedLogLines": self._log.dropped,
            "leftOver": left_over[:16],
        }
        give_up_at = time.monotonic() + RECORD_RETRY_SECONDS
        while True:
            try:
                records.write_exit(self._folder, record)
                return
            except OSError:
                if time.monotonic() >= give_up_at:
                    raise
                select.poll().poll(500)  # the disk may have room again


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _lock(folder: str) -> bool:
    """Takes the folder for as long as this process lives. The agent may hold it for an instant."""
    descriptor = os.open(
        os.path.join(folder, records.LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    give_up_at = time.monotonic() + 1.0
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                return False
            select.poll().poll(10)


def main(argv: list[str]) -> int:
    """Runs the container described in the folder `argv[1]`; returns the exit status."""
    folder = os.path.abspath(argv[1])
    os.umask(0o077)
    os.chdir("/")
    with contextlib.suppress(PermissionError):  # already the leader of a session
        os.setsid()
    try:
        if not _lock(folder):
            return ALREADY_WATCHED
        launch = records.read(os.path.join(folder, records.LAUNCH))
        begun = any(
            os.path.exists(os.path.join(folder, name)) for name in (records.RUNNING, records.EXIT)
        )
        if launch is None or begun:
            return 0
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        Shim(folder, launch).run()
    except OSError as error:
        print(f"shim: {error}", file=sys.stderr)  # noqa: T201 - the agent reads shim.stderr
        return NOT_PREPARED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
