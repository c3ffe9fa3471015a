"""The privileged half of the watch: reads /dev/kmsg and the driver's trace events, and hands them on.

It has no token, listens nowhere and keeps nothing; all it does is read, count and send.
"""

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

from health import record_link
from health.kmsg import DEVICE, Kmsg, SourceUnusable
from health.record_link import Sent
from health.trace_source import TraceSource, tracing_of

ALIVE_SECONDS = 5.0
RETRY_SECONDS = 1.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReaderConfig:
    """Where records come from and go to."""

    socket: Path
    source: Path = DEVICE
    boot_id: str | None = None
    """The boot that the records are of; None = ask the kernel."""
    tracing: Path | None = None
    """The kernel's tracing; None = its usual place when the log is the kernel's own, else none."""


def running_boot(file: Path = BOOT_ID) -> str:
    """The id of the boot that runs. Raises SourceUnusable."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceUnusable(f"cannot read {file}: {error}; is /proc mounted?") from error


async def serve(config: ReaderConfig, stop: asyncio.Event) -> None:
    """Reads and sends until `stop`; a daemon that is away is waited for.

    Raises SourceUnusable, record_link.LinkError.
    """
    boot = config.boot_id or running_boot()
    stopped = asyncio.create_task(stop.wait())
    work = asyncio.create_task(_work(config, boot))
    try:
        await asyncio.wait([stopped, work], return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        for task in (stopped, work):
            task.cancel()
        await asyncio.gather(stopped, work, return_exceptions=True)


async def _work(config: ReaderConfig, boot: str) -> None:
    while True:
        try:
            async with record_link.connect(config.socket) as (hello, send):
                after = hello.after if hello.boot == boot else _before(hello.boot)
                await _forward(Kmsg(config.source, after), config, boot, send)
        except (OSError, TimeoutError) as error:
            log.info("no daemon at %s (%s); trying again", config.socket, error)
        await asyncio.sleep(RETRY_SECONDS)


def _before(known_boot: str) -> int | None:
    """The number before the first record of a boot: after a reboot all of it should be there."""
    return -1 if known_boot else None


async def _forward(kmsg: Kmsg, config: ReaderConfig, boot: str, send: record_link.Take) -> None:
    sending = asyncio.Lock()

    async def say(sent: Sent) -> None:
        async with sending:
            await send(sent)

    beside = [asyncio.create_task(_say_alive(boot, say))]
    tracing = tracing_of(config.source, config.tracing)
    if tracing is not None:
        beside.append(asyncio.create_task(_trace(tracing, boot, say)))
    batches = kmsg.batches()
    try:
        async for batch in batches:
            await say(Sent(boot, batch))
            for task in beside:
                if task.done():
                    task.result()
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await batches.aclose()  # type: ignore[attr-defined] # an async generator
        kmsg.close()


async def _say_alive(boot: str, say: record_link.Take) -> None:
    while True:
        await asyncio.sleep(ALIVE_SECONDS)
        await say(Sent(boot))


async def _trace(tracing: Path, boot: str, say: record_link.Take) -> None:
    async with contextlib.aclosing(TraceSource(tracing).batches()) as batches:
        async for batch in batches:
            await say(Sent(boot, traced=batch))
