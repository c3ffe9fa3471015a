"""One process of the grader pool: calls a reward function for samples that come over its input.

    python -m rlhf.graders.worker module:function [folder to import from ...]

Frames are 4 bytes of length and JSON (`wire`). Whatever the function prints goes to standard error.
SIGUSR1 makes the process print where it is, even in an endless loop; it dies with its parent.
"""

import asyncio
import ctypes
import faulthandler
import os
import signal
import sys
from typing import BinaryIO

from rlhf.graders import wire
from rlhf.graders.checking import answers_of
from rlhf.graders.functions import BadFunction, FunctionGrader, load

LENGTH_BYTES = 4
READY = b"ready"
CANNOT_START = 78
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Serves until the input ends."""
    reference, *folders = arguments
    _die_with_parent()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    replies = _own_output()
    sys.path[:0] = folders
    try:
        grader = FunctionGrader(load(reference), inline=True)
    except BadFunction as error:
        sys.stderr.write(f"{error}\n")
        return CANNOT_START
    _send(replies, READY)
    while (body := _receive(sys.stdin.buffer)) is not None:
        samples = wire.decode_request(body)
        answers = asyncio.run(answers_of(grader, samples))
        _send(replies, wire.encode_reply(answers))
    return 0


def _own_output() -> BinaryIO:
    """Standard output for frames alone; what the function prints goes to standard error."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return replies


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _receive(source: BinaryIO) -> bytes | None:
    head = source.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    length = int.from_bytes(head, "big")
    body = source.read(length)
    return body if len(body) == length else None


def _send(target: BinaryIO, body: bytes) -> None:
    target.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)
    target.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
