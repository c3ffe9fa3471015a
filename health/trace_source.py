"""Reads the driver's trace events from an instance of the kernel's tracing that is ours alone.

What nobody has read stays in the instance's ring, so a reader that comes back finds what happened
meanwhile. A driver that is loaded later, or again, is found; one without these events is nothing to
complain about.
"""

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import msgspec

from health.kmsg import DEVICE
from health.trace_events import MAX_LINE_BYTES, Lost, TraceRecord, record

TRACING = Path("/sys/kernel/tracing")
INSTANCE = "clusterops-health"
EVENTS = ("nvidia/nvidia_dev_xid", "nvswitch/nvswitch_dev_sxid")
CLOCK = "mono"
RING_KB = 256
"""Of each processor; a burst of a thousand reports fits."""
LOOK_SECONDS = 1.0
"""Kernels differ in whether a wait for the pipe wakes up, so it is looked at all the same."""
SETTLE_SECONDS = 5.0
"""How often a driver that is loaded again is looked for."""
_CHUNK_BYTES = 65_536

log = logging.getLogger(__name__)


class TraceBatch(msgspec.Struct, frozen=True):
    """What one look gave."""

    records: tuple[TraceRecord, ...] = ()
    lost: int = 0
    malformed: int = 0
    watches: bool = True
    """Whether the driver's events are being recorded."""


def tracing_of(log_source: Path | None, given: Path | None) -> Path | None:
    """Where the kernel's tracing is to be read: beside the real log, or where somebody says."""
    return given if given is not None or log_source != DEVICE else TRACING


class TraceSource:
    """One instance of the kernel's tracing."""

    def __init__(self, tracing: Path = TRACING) -> None:
        self._tracing = tracing
        self._instance = tracing / "instances" / INSTANCE
        self._fd = -1
        self._rest = b""

    def switch_on(self) -> bool:
        """Has the driver's events recorded; False when the driver has none, or they cannot be had."""
        present = [event for event in EVENTS if (self._tracing / "events" / event).is_dir()]
        if not present:
            return False
        try:
            with contextlib.suppress(FileExistsError):
                self._instance.mkdir()
            self._set_up()
            for event in present:
                enable = self._instance / "events" / event / "enable"
                if not enable.read_text().startswith("1"):
                    enable.write_text("1")
        except OSError as error:
            log.info("the driver's trace events cannot be had: %s", error)
            return False
        return True

    def _set_up(self) -> None:
        if self._fd >= 0:
            return
        # A change of the clock empties the ring: what is right is left alone.
        if f"[{CLOCK}]" not in (self._instance / "trace_clock").read_text():
            (self._instance / "trace_clock").write_text(CLOCK)
            (self._instance / "buffer_size_kb").write_text(str(RING_KB))
        with contextlib.suppress(OSError):
            (self._instance / "buffer_percent").write_text("0")  # wake up for a single event
        self._fd = os.open(
            self._instance / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        )

    def read(self) -> TraceBatch:
        """What was recorded since the last look."""
        try:
            piece = os.read(self._fd, _CHUNK_BYTES)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR):
                log.warning("the trace pipe fails: %s", error)
                self.close()
                return TraceBatch(watches=False)
            return TraceBatch()
        *complete, self._rest = (self._rest + piece).split(b"\n")
        batch = _batch(iter(complete))
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest = b""
            batch = msgspec.structs.replace(batch, malformed=batch.malformed + 1)
        return batch

    def close(self) -> None:
        """Ends reading; what happens is recorded on."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._rest = b""

    async def batches(self) -> AsyncGenerator[TraceBatch, None]:
        """What was recorded, then what is, for ever; a batch without records says that it begins, or
        that it does not go on.
        """
        watching = False
        try:
            while True:
                on = self.switch_on()
                if on != watching:
                    watching = on
                    yield TraceBatch(watches=on)
                if not on:
                    await asyncio.sleep(SETTLE_SECONDS)
                    continue
                async for batch in self._recorded(SETTLE_SECONDS):
                    watching = batch.watches
                    yield batch
        finally:
            self.close()

    async def _recorded(self, seconds: float) -> AsyncGenerator[TraceBatch, None]:
        """For some seconds, what there is."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        until = loop.time() + seconds
        with _readable(loop, self._fd, ready):
            while loop.time() < until and self._fd >= 0:
                ready.clear()
                batch = self.read()
                if batch.records or batch.lost or batch.malformed or not batch.watches:
                    yield batch
                    await asyncio.sleep(0)
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await ready.wait()


@contextlib.contextmanager
def _readable(loop: asyncio.AbstractEventLoop, fd: int, ready: asyncio.Event) -> Iterator[None]:
    try:
        loop.add_reader(fd, ready.set)
    except PermissionError:  # what is no pipe cannot be waited for
        yield
        return
    try:
        yield
    finally:
        loop.remove_reader(fd)


def _batch(complete: Iterator[bytes]) -> TraceBatch:
    records, lost, malformed = [], 0, 0
    for raw in complete:
        found = record(raw)
        if isinstance(found, TraceRecord):
            records.append(found)
        elif isinstance(found, Lost):
            lost += found.events
        elif raw.strip():
            malformed += 1
    return TraceBatch(tuple(records), lost, malformed)
