"""The kernel's log as the journal keeps it: for where /dev/kmsg is closed to this process.

`journalctl` follows it as a child process. Only what the kernel itself wrote counts (`_TRANSPORT` is
set by the journal and cannot be forged), and the journal's cursor says where to go on after a restart.
"""

import asyncio
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec

from health import kmsg_record
from health.kmsg import MOST_DRIFT_US, SourceUnusable

PROGRAM = "journalctl"
MAX_ENTRY_BYTES = 262_144
END_SECONDS = 5.0
SETTLED_US = 600_000_000
"""So long after the boot the journal has caught up with the kernel's log."""


class Entry(msgspec.Struct, frozen=True):
    """One message of the kernel."""

    boot: str
    monotonic_us: int
    text: str


class JournalBatch(msgspec.Struct, frozen=True):
    """Some entries of the driver, and how far the journal was read."""

    entries: tuple[Entry, ...]
    cursor: str
    read: int
    malformed: int


def command(cursor: str, program: str = PROGRAM) -> list[str]:
    """The argument vector: after a cursor, or all of this boot, then what comes."""
    begin = [f"--after-cursor={cursor}"] if cursor else ["--boot=0", "--no-tail"]
    return [program, "--output=json", "--all", "--follow", *begin, "_TRANSPORT=kernel"]


def boot_id(text: str) -> str:
    """A boot's id as the kernel writes it; the journal leaves the dashes out."""
    if len(text) != 32:
        return text
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


class _Fields(msgspec.Struct, frozen=True):
    """The fields of an exported entry that matter."""

    transport: str = msgspec.field(default="", name="_TRANSPORT")
    cursor: str = msgspec.field(default="", name="__CURSOR")
    boot: str = msgspec.field(default="", name="_BOOT_ID")
    message: str | list[Annotated[int, msgspec.Meta(ge=0, le=255)]] = msgspec.field(
        default="", name="MESSAGE"
    )
    """A list of bytes when it is not UTF-8 or has control characters in it."""
    kernel_stamp: str = msgspec.field(default="", name="_SOURCE_MONOTONIC_TIMESTAMP")
    journal_stamp: str = msgspec.field(default="", name="__MONOTONIC_TIMESTAMP")


_decode = msgspec.json.Decoder(_Fields).decode


def entry(line: bytes) -> tuple[Entry | None, str]:
    """The message and the cursor of one exported line; no message when the driver did not write it.

    Raises ValueError when the line is no entry.
    """
    try:
        fields = _decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"no entry of the journal: {error}") from error
    if fields.transport != "kernel":
        return None, fields.cursor
    message = fields.message
    raw = message.encode("utf-8", "replace") if isinstance(message, str) else bytes(message)
    if not kmsg_record.of_driver(raw):
        return None, fields.cursor
    at = _since_boot(fields)
    return Entry(boot_id(fields.boot), at, raw.decode("utf-8", "replace")), fields.cursor


def _since_boot(fields: _Fields) -> int:
    """The kernel's own stamp while the journal may have read late; after that the journal's, since the
    kernel's clock drifts away from the one that other sources go by.
    """
    stamps = [stamp for stamp in (fields.kernel_stamp, fields.journal_stamp) if stamp]
    if not stamps or not all(s.isascii() and s.isdigit() and len(s) < 19 for s in stamps):
        raise ValueError("an entry without a time since boot")
    printed, read = int(stamps[0]), int(stamps[-1])
    return read if read > SETTLED_US and abs(read - printed) < MOST_DRIFT_US else printed


async def batches(cursor: str = "", program: str = PROGRAM) -> AsyncIterator[JournalBatch]:
    """What the journal holds, then what comes, until cancelled.

    Raises SourceUnusable when journalctl is not there or ends.
    """
    try:
        child = await asyncio.create_subprocess_exec(
            *command(cursor, program), stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
        )  # fmt: skip
    except OSError as error:
        raise SourceUnusable(
            f"cannot run {program}: {error.strerror}; give the daemon /dev/kmsg instead"
        ) from error
    assert child.stdout is not None
    rest = b""
    try:
        while piece := await child.stdout.read(MAX_ENTRY_BYTES):
            *lines, rest = (rest + piece).split(b"\n")
            batch = _batch(lines)
            if len(rest) > MAX_ENTRY_BYTES:
                rest, batch = b"", msgspec.structs.replace(batch, malformed=batch.malformed + 1)
            yield batch
        raise SourceUnusable(f"{program} ended with status {await child.wait()}")
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGTERM)
            async with asyncio.timeout(END_SECONDS):
                await child.wait()


def _batch(lines: list[bytes]) -> JournalBatch:
    found, place, malformed = [], "", 0
    for line in lines:
        try:
            message, cursor = entry(line)
        except ValueError:
            malformed += 1
            continue
        place = cursor or place
        if message is not None:
            found.append(message)
    return JournalBatch(tuple(found), place, len(lines), malformed)
