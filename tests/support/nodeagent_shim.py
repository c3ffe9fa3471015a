"""Runs real shims on folders of a test, without an agent."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from clusterops.nodeagent import processes, records
from clusterops.nodeagent.shims import SHIM

DEADLINE_SECONDS = 20.0


class ShimRun:
    """One run folder and the shim on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "run"
        self.log_file = folder / "logs" / "0.log"
        self.process: subprocess.Popen[bytes] | None = None
        for path in (self.folder, self.log_file.parent):
            path.mkdir(parents=True)

    def start(
        self,
        *argv: str,
        env: dict[str, str] | None = None,
        cwd: str = "/tmp",
        max_bytes: int = 1 << 20,
        max_files: int = 3,
        file_size_limit: int | None = None,
        wait: bool = True,
    ) -> "ShimRun":
        launch = {
            "argv": list(argv),
            "env": {"PATH": os.environ["PATH"], "TMPDIR": str(self.folder / "tmp"), **(env or {})},
            "cwd": cwd,
            "umask": 0o022,
            "messagePath": str(self.folder / "message"),
            "log": str(self.log_file),
            "logMaxBytes": max_bytes,
            "logMaxFiles": max_files,
        }
        records.write(str(self.folder / records.LAUNCH), launch, durable=False)
        return self.start_prepared(file_size_limit=file_size_limit, wait=wait)

    def start_prepared(self, *, file_size_limit: int | None = None, wait: bool = True) -> "ShimRun":
        def limit() -> None:
            if file_size_limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_size_limit, resource.RLIM_INFINITY))

        with (self.folder / records.SHIM_ERRORS).open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", str(SHIM), str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={},
                preexec_fn=limit,
            )
        if wait:
            until(
                lambda: self.record(records.RUNNING) or self.process.poll() is not None, "a start"
            )
        return self

    def record(self, name: str) -> dict[str, Any] | None:
        return records.read(str(self.folder / name))

    def finish(self) -> dict[str, Any]:
        """Waits for the shim's end and returns exit.json."""
        assert self.process is not None
        assert self.process.wait(DEADLINE_SECONDS) == 0, self.errors()
        found = self.record(records.EXIT)
        assert found is not None
        return found

    def ask_to_stop(self, grace_seconds: float) -> None:
        assert self.process is not None
        stop = {"killAt": time.monotonic() + grace_seconds}
        records.write(str(self.folder / records.STOP), stop, durable=False)
        self.process.send_signal(signal.SIGTERM)

    def errors(self) -> str:
        return (self.folder / records.SHIM_ERRORS).read_text()

    def entries(self, number: int = 0) -> list[bytes]:
        """The lines of the log file, or of its `number`th predecessor."""
        suffix = f".{number}" if number else ""
        return self.log_file.with_name(self.log_file.name + suffix).read_bytes().split(b"\n")[:-1]

    def output(self) -> str:
        """What the container wrote, of the current log file."""
        return "\n".join(line.split(b" ", 3)[3].decode(errors="replace") for line in self.entries())

    def await_output(self, text: str) -> None:
        until(lambda: self.log_file.exists() and text in self.output(), f"output {text!r}")

    @property
    def pid(self) -> int:
        """Of the container's process."""
        running = self.record(records.RUNNING)
        assert running is not None
        pid: int = running["process"]["pid"]
        return pid

    def clean_up(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE_SECONDS)
        marker = f"TMPDIR={self.folder / 'tmp'}"
        for process in processes.table():
            if processes.declares(process.pid, marker):
                processes.send(process.pid, process.start_ticks, signal.SIGKILL)


@contextlib.contextmanager
def shim_run(folder: Path) -> Iterator[ShimRun]:
    run = ShimRun(folder)
    try:
        yield run
    finally:
        run.clean_up()


def until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> Any:
    """Waits until the condition gives something true, and returns that."""
    give_up_at = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() >= give_up_at:
            raise AssertionError(f"not within {seconds} s: {what}")
        threading.Event().wait(0.01)


def end_processes_of(folder: Path) -> None:
    """KILLs what a test left running: whatever was started with a path of its folder."""
    text = str(folder).encode() + b"/"
    for process in processes.table():
        with contextlib.suppress(OSError):
            started_with = Path(f"/proc/{process.pid}/environ").read_bytes()
            started_with += Path(f"/proc/{process.pid}/cmdline").read_bytes()
            if text in started_with and process.pid != os.getpid():
                processes.send(process.pid, process.start_ticks, signal.SIGKILL)


def is_running(pid: int) -> bool:
    process = processes.read(pid)
    return process is not None and not process.dead


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())
