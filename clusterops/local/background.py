"""Starts `up` in the background, and learns from the process itself whether it came up.

It gets one end of a pipe, says there when everything runs, and closes it by ending: so two of them
that begin in the same moment cannot be taken for one another. Each has a log of its own, which
becomes `up.log`, or `up-failed.log`, when it is known how it went.
"""

import os
import select
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from clusterops.local.errors import AlreadyRunning, StartFailed
from clusterops.local.state_folder import StateFolder

READY = b"ready\n"
START_SECONDS = 60.0
# The node drain, then each part in turn.
DOWN_SECONDS = 120.0


def start(folder: StateFolder, argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """Runs `argv --ready-fd=N` until it says that it is ready; the process, which goes on.

    Raises:
        AlreadyRunning: another process was faster.
        StartFailed: it ended, or said nothing in time; it is ended then, with all it has started.
    """
    reading, writing = os.pipe()
    log = folder.logs / f"up-{os.getpid()}.log"
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*argv, f"--ready-fd={writing}"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=(writing,),
            )
    except OSError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    try:
        ready = _says_ready(reading, START_SECONDS)
    except KeyboardInterrupt:
        _abandon(process)
        raise
    finally:
        os.close(reading)
    if ready:
        log.replace(folder.logs / "up.log")
        return process
    holder = folder.running_pid()
    _abandon(process)
    raise _failure(folder, log, None if holder == process.pid else holder)


def say_ready(descriptor: int) -> None:
    """Tells whoever waits at the other end of the pipe that everything runs."""
    try:
        os.write(descriptor, READY)
    except BrokenPipeError:
        pass  # it does not wait any more; what runs goes on
    finally:
        os.close(descriptor)


def _says_ready(descriptor: int, seconds: float) -> bool:
    """Whether the word comes; False when the pipe was closed without it, or time is up."""
    deadline, said = time.monotonic() + seconds, b""
    while READY not in said:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return False
        piece = os.read(descriptor, 64)
        if not piece:
            return False
        said += piece
    return True


def _abandon(process: subprocess.Popen[bytes]) -> None:
    """Ends a background process that is not wanted any more, with all that it has started."""
    process.terminate()
    try:
        process.wait(DOWN_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()  # its parts end with it
        process.wait()


def _failure(folder: StateFolder, log: Path, holder: int | None) -> AlreadyRunning | StartFailed:
    if holder is not None:
        log.unlink(missing_ok=True)
        return AlreadyRunning(str(folder.root), holder)
    kept = log.replace(folder.logs / "up-failed.log")
    # What it told before it failed is no news; its own "error: " is said by this process.
    before, _, error = f"\n{kept.read_text(errors='replace').strip()}".partition("\nerror: ")
    return StartFailed(error or before.strip() or "it said nothing", f"the whole log is {kept}")
