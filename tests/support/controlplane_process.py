"""A program of the control plane as a child process: it dies with its parent and keeps a log.

Run as a script it turns itself into the program, after asking the kernel to be killed with the parent.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_SECONDS = 15.0


class Program:
    """One program, its arguments and its log. Started and stopped any number of times."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log_file: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`arguments` begin with the program's path; `environment` is all that it gets."""
        self.name = name
        self.log_file = log_file
        self._arguments = list(arguments)
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts it; ready or not is another matter."""
        assert not self.running, f"{self.name} runs"
        command = [sys.executable, "-S", "-E", __file__, str(os.getpid()), *self._arguments]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **self._environment},
                start_new_session=True,
            )

    def tell_to_stop(self) -> None:
        """SIGTERM, if it runs."""
        if self.running:
            assert self._process is not None
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Waits for its end; what does not leave in time is killed."""
        if self._process is None:
            return
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def wait_at_most(self, seconds: float) -> None:
        """Until it ends, or the time is up."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)

    def stop(self) -> None:
        """SIGTERM, and waits."""
        self.tell_to_stop()
        self.wait()

    def kill(self) -> None:
        """SIGKILL, and waits."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)

    def log(self) -> str:
        """The end of what it wrote."""
        if not self.log_file.exists():
            return ""
        return self.log_file.read_text(errors="replace")[-4000:]


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on at this moment."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def resident_mb(pid: int) -> float:
    """Memory of a process, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def _main(parent: str, *command: str) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG, kept by execve
    if os.getppid() != int(parent):
        raise SystemExit("the process that started this one is gone")
    os.execv(command[0], command)


if __name__ == "__main__":
    _main(*sys.argv[1:])
