"""What the kernel says, whichever way it comes: its log, a reader's socket, the journal, trace events.

All of it goes into the daemon's inbox; how far it was read stands beside it, so that both are kept in
one write.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from health import journald
from health.events import Source, Watching
from health.kmsg import Batch, Kmsg, SourceUnusable
from health.ledger import Position
from health.record_link import Listener, Sent
from health.trace_source import TraceBatch, TraceSource, tracing_of
from health.watch_state import Intake, KernelRecord, Seen

RETRY_SECONDS = 5.0
MAX_WAITING_RECORDS = 20_000
"""A source that is further ahead waits, and the kernel's ring with it."""

log = logging.getLogger(__name__)


class Inbox:
    """What came from all sources and is not judged yet."""

    def __init__(self, kernel: Source) -> None:
        """`kernel` is the way on which its log comes."""
        self.kernel = kernel
        self.intake = Intake(source=kernel)
        self.came = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def add(self, *seen: Seen) -> None:
        """Something that a source saw."""
        self.intake.seen += seen
        self.came.set()

    def count(self, **amounts: int) -> None:
        """Adds to the counts of what became of records."""
        for name, amount in amounts.items():
            if amount:
                self.intake.counts[name] = self.intake.counts.get(name, 0) + amount

    async def hand_over(self) -> None:
        """Wakes the judging loop, and waits while it is far behind."""
        self.came.set()
        if len(self.intake.records) >= MAX_WAITING_RECORDS:
            self._room.clear()
            await self._room.wait()

    def emptied(self) -> Intake:
        """All of it, once; sources that waited go on."""
        self.came.clear()
        taken, self.intake = self.intake, Intake(source=self.kernel)
        self._room.set()
        return taken


class KernelSources:
    """The one way to the kernel's log that is named, and its trace events where they can be read."""

    def __init__(
        self,
        inbox: Inbox,
        boot_id: str,
        kept: Callable[[Source], Position | None],
        *,
        kmsg: Path | None,
        socket: Path | None,
    ) -> None:
        """`kept` says how far a source was read before. Without a log and a socket: the journal."""
        self._inbox = inbox
        self._boot_id = boot_id
        self._kept = kept
        self._kmsg = kmsg
        self._traces = False
        self._listener = (
            Listener(socket, self._position, self._from_reader) if socket is not None else None
        )
        self.trouble = ""
        """Why the log cannot be read, empty when it can."""
        self.caught_up = asyncio.Event()
        """Set once all that was there at the start is in the inbox, or will not come."""

    @property
    def reader_away(self) -> bool:
        """Whether the reader that should send the log is not connected."""
        return self._listener is not None and not self._listener.connected

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run until cancelled."""
        work = [self._read()]
        tracing = tracing_of(self._kmsg, None)
        if tracing is not None:
            work.append(self._follow_trace(tracing))
        return work

    async def _read(self) -> None:
        if self._listener is not None:
            await self._listener.run()
        while True:
            try:
                await (self._follow_kmsg(self._kmsg) if self._kmsg else self._follow_journal())
            except SourceUnusable as error:
                if str(error) != self.trouble:
                    log.warning("%s", error)
                self.trouble = str(error)
                self.caught_up.set()
                self._inbox.came.set()
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow_kmsg(self, path: Path) -> None:
        kept_boot, after = self._position()
        if kept_boot != self._boot_id:
            after = -1 if kept_boot else None  # after a reboot nothing may be missing
        kmsg = Kmsg(path, after)
        self.trouble = ""
        try:
            while batch := kmsg.read():
                await self._take(self._boot_id, batch)
            self.caught_up.set()
            async for batch in kmsg.batches():
                await self._take(self._boot_id, batch)
        finally:
            kmsg.close()

    async def _follow_journal(self) -> None:
        position = self._kept(Source.JOURNAL)
        async for batch in journald.batches(position.cursor if position is not None else ""):
            self.trouble = ""
            self.caught_up.set()
            intake = self._inbox.intake
            intake.records += [
                KernelRecord(each.boot or self._boot_id, each.monotonic_us, each.text)
                for each in batch.entries
            ]
            if batch.cursor:
                intake.positions[Source.JOURNAL] = Position(self._boot_id, None, batch.cursor)
            self._inbox.count(read=batch.read, malformed=batch.malformed)
            await self._inbox.hand_over()

    def _position(self) -> tuple[str, int | None]:
        kept = self._kept(Source.KMSG)
        return (kept.boot, kept.sequence) if kept is not None else ("", None)

    async def _follow_trace(self, tracing: Path) -> None:
        async for batch in TraceSource(tracing).batches():
            await self._take_traced(self._boot_id, batch)

    async def _take_traced(self, boot: str, batch: TraceBatch) -> None:
        if batch.watches != self._traces:
            self._traces = batch.watches
            what = Watching(Source.TRACE, watches=batch.watches)
            self._inbox.add(Seen(what, time.monotonic(), Source.TRACE))
        self._inbox.intake.traced += [
            KernelRecord(boot, each.monotonic_us, each.text) for each in batch.records
        ]
        self._inbox.count(trace_lost=batch.lost, trace_malformed=batch.malformed)
        await self._inbox.hand_over()

    async def _from_reader(self, sent: Sent) -> None:
        self.trouble = ""
        if sent.traced is not None:
            await self._take_traced(sent.boot, sent.traced)
            return
        if not sent.batch:
            self.caught_up.set()  # a sign of life: it has nothing more to send
        if sent.boot != self._boot_id:
            self._inbox.count(record_of_unknown_boot=sent.batch.read)
            return
        await self._take(sent.boot, sent.batch)

    async def _take(self, boot: str, batch: Batch) -> None:
        intake = self._inbox.intake
        intake.records += [
            KernelRecord(boot, each.monotonic_us, each.text, each.sequence)
            for each in batch.records
        ]
        self._inbox.count(
            read=batch.read, lost=batch.lost, forged=batch.foreign, malformed=batch.malformed
        )
        intake.lost += batch.lost
        if batch.up_to is not None:
            intake.positions[Source.KMSG] = Position(boot, batch.up_to)
        if batch.records or batch.lost:
            await self._inbox.hand_over()
