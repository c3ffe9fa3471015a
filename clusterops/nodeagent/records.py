# ruff: noqa: PTH104, PTH108, PTH110, PTH118, PTH120, PTH123 - pathlib costs each container a MB
"""The files through which the agent, its shims and the agent's next run know of each other.

One folder per run of a container. Each file appears whole or not at all (written beside, then
renamed), so a reader never sees half of one, and each has a single writer:

| file          | writer | says                                                        |
|---------------|--------|-------------------------------------------------------------|
| launch.json   | agent  | what to start; removed = do not start any more               |
| shim.lock     | shim   | locked for as long as the shim lives                         |
| running.json  | shim   | pid and start time of shim and process                       |
| stop.json     | agent  | end the container: TERM now, KILL at a moment                |
| exit.json     | shim   | how it ended (the agent writes it when the shim was killed)  |

Moments are seconds of CLOCK_MONOTONIC, which all processes of one boot share; each record says which
boot. Standard library only, and little of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LAUNCH = "launch.json"
LOCK = "shim.lock"
RUNNING = "running.json"
STOP = "stop.json"
EXIT = "exit.json"
EXIT_RESERVE = "exit.reserve"  # space for exit.json, taken while there is some
SHIM_ERRORS = "shim.stderr"
TERMINATION_MESSAGE = "termination-message"

RESERVED_BYTES = 4096
MAX_RECORD_BYTES = 8 << 20


def read(path: str) -> dict[str, Any] | None:
    """The record, or None when it does not exist or holds no whole record (a power cut can do that)."""
    try:
        with open(path, "rb") as file:
            record = json.loads(file.read(MAX_RECORD_BYTES))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def write(path: str, record: dict[str, Any], *, durable: bool) -> None:
    """Makes `path` this record, readable by the owner only. `durable`: it survives a power cut.

    Raises:
        OSError: it could not be written; the previous record, if any, is untouched.
    """
    write_bytes(path, json.dumps(record).encode(), 0o600, durable=durable)


def write_bytes(path: str, content: bytes, mode: int, *, durable: bool) -> None:
    """Makes `path` a file of this content and mode, whole or not at all. Raises OSError."""
    beside = f"{path}.new"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, mode)
        _write_all(descriptor, content)
        if durable:
            os.fsync(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    finally:
        os.close(descriptor)
    os.rename(beside, path)
    if durable:
        sync_folder(os.path.dirname(path))


def reserve_exit(folder: str) -> None:
    """Takes the disk space of exit.json now, so that a full disk later cannot lose an exit code."""
    path = os.path.join(folder, EXIT_RESERVE)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _write_all(descriptor, b" " * RESERVED_BYTES)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_exit(folder: str, record: dict[str, Any]) -> None:
    """Makes exit.json this record, durably, in the reserved space when there is any. Raises OSError."""
    content = json.dumps(record).encode()
    reserve = os.path.join(folder, EXIT_RESERVE)
    target = os.path.join(folder, EXIT)
    if len(content) > RESERVED_BYTES or not os.path.exists(reserve):
        write_bytes(target, content, 0o600, durable=True)
        return
    descriptor = os.open(reserve, os.O_WRONLY | os.O_CLOEXEC)
    try:
        # Padded with blanks: the blocks are overwritten where they are, none is added.
        os.pwrite(descriptor, content.ljust(RESERVED_BYTES), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(reserve, target)
    sync_folder(folder)


def sync_folder(folder: str) -> None:
    """Makes the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """Tells one boot of the machine from the next; monotonic moments of two boots do not compare."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def timestamp(nanoseconds: int) -> str:
    """RFC 3339 in UTC with whole seconds, as Kubernetes writes times, from nanoseconds since 1970."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(nanoseconds // 1_000_000_000))


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
