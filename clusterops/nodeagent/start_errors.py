"""What a container's process that could not be started is told as: exit code and words, as a shell's."""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REASON = "StartError"
NOT_FOUND, NOT_EXECUTABLE, CANNOT_START = 127, 126, 128


def explain(stage: str, number: int, launch: dict[str, Any]) -> tuple[int, str]:
    """Exit code and message for the stage `cwd`, `exec` or another, and the errno it failed with."""
    text = os.strerror(number)
    if stage == "cwd":
        return CANNOT_START, f"working directory {launch['cwd']!r}: {text}"
    program = launch["argv"][0]
    if number in (errno.ENOENT, errno.ENOTDIR):
        where = "no such file" if "/" in program else "not found in PATH"
        return NOT_FOUND, f"command {program!r}: {where}"
    if number in (errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR):
        return NOT_EXECUTABLE, f"command {program!r} cannot be executed: {text}"
    return CANNOT_START, f"command {program!r}: {text}"
