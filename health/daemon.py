"""The daemon of one node: sources in, ledger and verdict, NodeHealth out.

Sources put what they saw into one intake; one loop keeps it, folds it, and tells the publisher. No
source can hold up another, and nobody can tell the daemon anything but through them.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clusterops.kube import connect
from clusterops.kube.client import Client
from health import daemon_metrics, node_status, shipped
from health.cluster_source import ClusterSource
from health.events import Ending, JobEnded, Operational, Source, What
from health.exposition import Exposition, Family, family
from health.kernel_sources import Inbox, KernelSources
from health.ledger import Ledger
from health.nvml_readings import ReadingFilter
from health.nvml_source import NvmlSource, Pace
from health.policy import yaml_text
from health.policy.schema import Policy
from health.publisher import Publisher
from health.reader import running_boot
from health.verdict.node import NodeVerdict
from health.watch_state import Clock, Intake, Seen, WatchState

TICK_SECONDS = 5.0
"""Suspicions end by time, and the disk may have room again: looked at so often."""
GATHER_SECONDS = 0.05
PRUNE_SECONDS = 600.0
CATCH_UP_SECONDS = 6.0
"""For the reader to connect and say that it has no more; its signs of life come every five."""
WORD_SECONDS = 1.3
"""After a job's pod failed: a little more than the operator takes for settled."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DaemonConfig:
    """One node's watch."""

    node: str
    ledger: Path
    kmsg: Path | None = None
    """Read the kernel's log here."""
    socket: Path | None = None
    """Or take its records from a reader over this socket."""
    journal: bool = False
    """Or follow the journal."""
    nvml: bool = True
    expected_gpus: int | None = None
    kubeconfig: Path | None = None
    publish: bool = True
    policy: Path | None = None
    port: int = 9464
    boot_id: str | None = None
    """The boot that runs; None = ask the kernel."""
    pace: Pace | None = None
    """How often and how long NVML is asked; None = as shipped."""


class ConfigurationError(Exception):
    """The settings cannot work; the text says which and what to do."""


async def serve(
    config: DaemonConfig, stop: asyncio.Event, ready: asyncio.Event | None = None
) -> None:
    """Watches until `stop` is set.

    Raises ConfigurationError, LedgerError, SourceUnusable (no boot id), LinkError, PolicyError,
    ConfigError of the kubeconfig, and OSError when the port is taken.
    """
    if sum((config.kmsg is not None, config.socket is not None, config.journal)) != 1:
        raise ConfigurationError(
            "exactly one way to the kernel's log is needed: a device or file, a reader's socket, or "
            "the journal"
        )
    policy = shipped.policy()
    if config.policy is not None:
        policy = yaml_text.policy(_read(config.policy), shipped.policy_text())
    connection = connect.load(config.kubeconfig) if config.publish else None
    try:
        ledger = Ledger(config.ledger)
        try:
            daemon = Daemon(config, policy, ledger, connection.client() if connection else None)
            await daemon.run(stop, ready)
        finally:
            ledger.close()
    finally:
        if connection is not None:
            await connection.close()


class Daemon:
    """The parts and how they are wired."""

    def __init__(
        self, config: DaemonConfig, policy: Policy, ledger: Ledger, client: Client | None
    ) -> None:
        self._config = config
        self._boot_id = config.boot_id or running_boot()
        kernel = Source.JOURNAL if config.journal else Source.KMSG
        both = frozenset({kernel, Source.TRACE, *((Source.NVML,) if config.nvml else ())})
        self.state = WatchState(
            ledger, shipped.catalogue(), policy,
            boot_id=self._boot_id, clock=_clock(), sources=both,
        )  # fmt: skip
        if ledger.set_aside is not None:
            log.error("the ledger was broken and is set aside as %s", ledger.set_aside)
        self._inbox = Inbox(kernel)
        self._kernel = KernelSources(
            self._inbox, self._boot_id, self.state.position, kmsg=config.kmsg, socket=config.socket
        )
        self._judged = asyncio.Event()
        self._asked = False
        self.verdict: NodeVerdict = self.state.verdict(_clock())
        self._judged_at = _clock().wall
        self._since = self.state.since(self.verdict, _clock())
        self._counts = dict(self.state.counts)
        self._beat = time.monotonic()
        self.nvml: NvmlSource | None = None
        if config.nvml:
            readings = ReadingFilter(self.state.readings(), config.expected_gpus)
            readings.expected = max(readings.expected, self.state.gpus)
            self.nvml = NvmlSource(self._from_nvml, readings, pace=config.pace)
        self.publisher: Publisher | None = None
        self._cluster: ClusterSource | None = None
        if client is not None:
            self.publisher = Publisher(client, config.node, self.status)
            self._cluster = ClusterSource(
                client, config.node, self._seen, wall_of_boot=self.state.boot.wall_offset
            )
        self.exposition = Exposition(config.port, self.metrics, self.unwell)

    async def run(self, stop: asyncio.Event, ready: asyncio.Event | None) -> None:
        """Works until `stop` is set or a part fails for good."""
        work: list[Coroutine[Any, Any, None]] = [
            *self._kernel.work(), self._judge(), self.exposition.run()
        ]  # fmt: skip
        if self.nvml is not None:
            work.append(self.nvml.run())
        if self.publisher is not None and self._cluster is not None:
            work += [self._publish(self.publisher), self._cluster.run()]
        tasks = [asyncio.create_task(part) for part in work]
        stopped = asyncio.create_task(stop.wait())
        try:
            if ready is not None:
                await self.exposition.ready.wait()
                ready.set()
            done, _ = await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in [*tasks, stopped]:
                task.cancel()
            await asyncio.gather(*tasks, stopped, return_exceptions=True)
        await self._take_in()
        for task in done - {stopped}:
            task.result()

    # Sources

    def _from_nvml(
        self, events: Iterable[What], uptime: float, operational: Operational | None = None
    ) -> None:
        self._inbox.add(
            *(Seen(what, uptime, Source.NVML, operational=operational) for what in events)
        )

    def _seen(self, seen: Seen) -> None:
        self._inbox.add(seen)
        if isinstance(seen.what, JobEnded) and seen.what.how is Ending.FAILED:
            # Whoever has to blame somebody for it waits for what this node says after it.
            asyncio.get_running_loop().call_later(WORD_SECONDS, self._say_how_it_is)

    def _say_how_it_is(self) -> None:
        self._asked = True
        self._inbox.came.set()

    async def _publish(self, publisher: Publisher) -> None:
        """Nothing is said before what the kernel had to say is read and judged: a daemon that comes
        back would call its node what it was when it went.
        """
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS):
                await self._kernel.caught_up.wait()
        except TimeoutError:
            log.warning("the kernel's log is not read yet; what is known is said all the same")
        self._judged.clear()
        self._inbox.came.set()
        await self._judged.wait()
        await publisher.run()

    # Judging

    async def _judge(self) -> None:
        prune_at = time.monotonic() + PRUNE_SECONDS
        while True:
            try:
                async with asyncio.timeout(TICK_SECONDS):
                    await self._inbox.came.wait()
            except TimeoutError:
                pass
            await self._take_in()
            # What comes in a burst is judged together: the verdict costs more than a record.
            await asyncio.sleep(GATHER_SECONDS)
            if time.monotonic() >= prune_at:
                await asyncio.to_thread(self.state.prune, _clock())
                prune_at = time.monotonic() + PRUNE_SECONDS

    async def _take_in(self) -> None:
        """Keeps and folds what came. The disk may be slow, so a thread does it."""
        asked, self._asked = self._asked, False
        await asyncio.to_thread(self._assess, self._inbox.emptied())
        self._beat = time.monotonic()
        self._judged.set()
        if self.publisher is not None:
            self.publisher.changed()
            if asked:
                self.publisher.say_again(0.0)

    def _assess(self, intake: Intake) -> None:
        clock = _clock()
        if self.nvml is not None and self.nvml.driver is not None:
            self.state.use_driver(self.nvml.driver)
            self.state.expect_gpus(self.nvml.readings.expected)
        self.state.take(intake, clock)
        self.verdict = self.state.verdict(clock)
        self._judged_at = clock.wall
        self._since = self.state.since(self.verdict, clock)
        self._counts = dict(self.state.counts)

    # What others see

    def status(self) -> dict[str, Any]:
        """The status of NodeHealth as of now."""
        return node_status.status(
            self.verdict,
            since=self._since,
            now=self._judged_at,
            wall=self.state.wall,
            conditions=[self._watching()],
        )

    def _watching(self) -> dict[str, Any]:
        trouble = self._troubles()
        return {
            "type": "Watching",
            "status": "False" if trouble else "True",
            "reason": trouble[0][0] if trouble else "SourcesAnswer",
            "message": "; ".join(text for _, text in trouble) or "kernel log and NVML are watched",
            "lastTransitionTime": node_status.timestamp(_clock().wall),
        }

    def _troubles(self) -> list[tuple[str, str]]:
        """What impairs the watch: says nothing about the hardware."""
        found = []
        if self._kernel.trouble:
            found.append(("KernelLogUnreadable", node_status.printable(self._kernel.trouble)))
        if self._kernel.reader_away:
            found.append(("NoReader", "no reader of the kernel's log is connected"))
        if self.nvml is not None and self.nvml.hanging:
            found.append(("NvmlHangs", "a call into NVML does not return"))
        if self.state.full:
            found.append(("LedgerFull", node_status.printable(self.state.full)))
        return found

    def unwell(self) -> str:
        """Why the daemon should be restarted; what is wrong around it is no reason."""
        silent = time.monotonic() - self._beat
        return f"nothing was judged for {silent:.0f} s" if silent > 20 * TICK_SECONDS else ""

    def metrics(self) -> Iterable[Family]:
        """All families of /metrics."""
        yield from daemon_metrics.of_verdict(self.verdict)
        yield daemon_metrics.of_counts(self._counts)
        prefix = daemon_metrics.PREFIX
        yield family(
            f"{prefix}_watching", "gauge", "1 when every source answers.", not self._troubles()
        )
        yield family(
            f"{prefix}_seconds_since_judged", "gauge", "Age of the verdict in seconds.",
            time.monotonic() - self._beat,
        )  # fmt: skip
        if self.publisher is not None:
            yield family(
                f"{prefix}_status_writes_total", "counter", "Writes of NodeHealth.",
                self.publisher.writes,
            )  # fmt: skip
        if self.nvml is not None:
            yield daemon_metrics.of_gpus(self.nvml.readings.expected, len(self.nvml.boards))
            yield daemon_metrics.of_counters(self.nvml.counters)
            yield family(f"{prefix}_nvml_rounds_total", "counter", "Rounds that NVML answered.",
                         self.nvml.rounds)  # fmt: skip
            yield family(f"{prefix}_nvml_stuck_children", "gauge", "Children that hang in NVML.",
                         self.nvml.stuck)  # fmt: skip
            yield family(f"{prefix}_nvml_garbage_total", "counter", "Answers not believed.",
                         self.nvml.readings.garbage + self.nvml.garbage_lines)  # fmt: skip


def _clock() -> Clock:
    return Clock(time.monotonic(), datetime.now(UTC).timestamp())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the policy {path}: {error}") from error
