"""Reads the kernel's log: the device /dev/kmsg, or a FIFO or file that holds its record format.

Every record is looked at, those of the GPU and switch driver are kept, and what could not be read is
counted: records that the ring overran, records of a gap in the numbering, and broken ones. What
users wrote into the log is left out, since a reboot could be forged with it.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from health import kmsg_record
from health.kmsg_record import Record

DEVICE = Path("/dev/kmsg")
MOST_DRIFT_US = 600_000_000
"""A log whose clock is further off than that is not of this boot."""
BATCH_RECORDS = 2048
"""Looked at before others get their turn."""
FILE_POLL_SECONDS = 0.2
"""How often a growing file is looked at; files cannot be waited for as devices and FIFOs can."""
_CHUNK_BYTES = 262_144
_PIPE_BYTES = 1_048_576  # a burst has room; an unprivileged user may be refused it


class SourceUnusable(Exception):
    """The kernel log cannot be read; the text says why and what to do about it."""


class Batch(msgspec.Struct, frozen=True):
    """What one look at the log gave."""

    records: tuple[Record, ...] = ()
    """Those of the driver, in order."""
    up_to: int | None = None
    """The number of the last record that was looked at."""
    read: int = 0
    """How many were looked at."""
    lost: int = 0
    """How many were never seen: overrun by the ring, or missing in the numbering."""
    foreign: int = 0
    """Driver-like records that the kernel did not write."""
    malformed: int = 0
    """Pieces that are no records."""

    def __bool__(self) -> bool:
        return bool(self.read or self.lost or self.malformed)


class Tally:
    """Follows the numbering over many records and makes batches of them."""

    def __init__(self, after: int | None) -> None:
        """`after` is the last number that was seen before; None = nobody looked before."""
        self._seen = after
        self._behind_us = 0
        self._newest_us: int | None = None
        self._clear()

    def _clear(self) -> None:
        self._records: list[Record] = []
        self._read = self._lost = self._foreign = self._malformed = 0

    def add(self, raw: bytes) -> None:
        """Takes one record as it was read; records that were seen before are passed over."""
        head = kmsg_record.head(raw)
        if head is None:
            self._malformed += 1
            return
        if self._seen is not None:
            if head.sequence <= self._seen:
                return
            self._lost += head.sequence - self._seen - 1
        self._seen = head.sequence
        self._newest_us = head.monotonic_us
        self._read += 1
        if not kmsg_record.of_driver(raw):
            return
        if head.facility != kmsg_record.KERNEL_FACILITY:
            self._foreign += 1
            return
        text = kmsg_record.message(raw)
        at = max(0, head.monotonic_us + self._behind_us)
        self._records.append(Record(head.sequence, at, text))

    def set_clock(self, now_us: int) -> None:
        """Learns how far the log's clock is off from the newest record, which was printed just now.

        Printk goes by a clock that nobody corrects: in a month it can be a minute off the monotonic
        one, and an event that two sources tell would look like two.
        """
        if self._newest_us is None or abs(now_us - self._newest_us) > MOST_DRIFT_US:
            return
        known, self._behind_us = self._behind_us, now_us - self._newest_us
        shift = self._behind_us - known
        self._records = [
            msgspec.structs.replace(each, monotonic_us=max(0, each.monotonic_us + shift))
            for each in self._records
        ]

    def broken(self) -> None:
        """Counts a piece that is no record."""
        self._malformed += 1

    def batch(self) -> Batch:
        """All since the last batch."""
        batch = Batch(
            records=tuple(self._records),
            up_to=self._seen,
            read=self._read,
            lost=self._lost,
            foreign=self._foreign,
            malformed=self._malformed,
        )
        self._clear()
        return batch


class Kmsg:
    """An open log. Begins with the oldest record that is there, so that nothing of this boot is
    missed; `after` passes over what was seen before.
    """

    def __init__(self, path: Path = DEVICE, after: int | None = None) -> None:
        """Raises SourceUnusable."""
        self.path = path
        self._tally = Tally(after)
        self._rest = b""
        self._skipping = False
        try:
            kind = path.stat().st_mode
            # A FIFO open for writing as well has no end of file when its writer goes.
            mode = os.O_RDWR if stat.S_ISFIFO(kind) else os.O_RDONLY
            self._fd = os.open(path, mode | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise SourceUnusable(
                f"cannot read {path}: {error.strerror}; /dev/kmsg needs a privileged container, or "
                "name the journal or a file instead"
            ) from error
        if stat.S_ISFIFO(kind):
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._device = stat.S_ISCHR(kind)
        self._file = stat.S_ISREG(kind)

    def close(self) -> None:
        """Closes the log."""
        os.close(self._fd)

    def read(self, *, fresh: bool = False) -> Batch:
        """What is there now, at most BATCH_RECORDS of a device; an empty batch when there is nothing.

        `fresh` says that the newest was printed just now. Raises SourceUnusable when the log fails.
        """
        try:
            if self._device:
                self._read_device()
            else:
                self._read_stream()
        except OSError as error:
            raise SourceUnusable(f"reading {self.path} failed: {error.strerror}") from error
        if fresh and self._device:
            self._tally.set_clock(time.monotonic_ns() // 1000)
        return self._tally.batch()

    def _read_device(self) -> None:
        for _ in range(BATCH_RECORDS):
            try:
                raw = os.read(self._fd, kmsg_record.MAX_RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue  # the ring overran: the next record's number says how many are lost
                if error.errno == errno.EINVAL:
                    self._tally.broken()
                    continue
                raise
            if not raw:
                return
            self._tally.add(raw)

    def _read_stream(self) -> None:
        try:
            piece = os.read(self._fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not piece:
            if self._file and os.fstat(self._fd).st_size < os.lseek(self._fd, 0, os.SEEK_CUR):
                os.lseek(self._fd, 0, os.SEEK_SET)  # cut short: what follows is new
                self._rest = b""
            return
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if self._skipping:
                self._skipping = False
            elif len(line) > kmsg_record.MAX_RECORD_BYTES:
                self._tally.broken()
            elif line and line[0] != 0x20:
                self._tally.add(line)
        if self._skipping:
            self._rest = b""
        if len(self._rest) > kmsg_record.MAX_RECORD_BYTES:
            self._rest, self._skipping = b"", True
            self._tally.broken()

    async def batches(self) -> AsyncIterator[Batch]:
        """What is there, then what comes, for ever. Raises SourceUnusable when the log fails."""
        ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        if not self._file:
            loop.add_reader(self._fd, ready.set)
        try:
            fresh = False
            while True:
                ready.clear()
                batch = self.read(fresh=fresh)
                fresh = False
                if batch:
                    yield batch
                    await asyncio.sleep(0)
                elif self._file:
                    await asyncio.sleep(FILE_POLL_SECONDS)
                else:
                    await ready.wait()
                    fresh = True
        finally:
            if not self._file:
                loop.remove_reader(self._fd)
