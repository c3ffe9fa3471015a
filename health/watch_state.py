"""The daemon's judgement: takes what sources saw, keeps it, folds it, and says how the node stands.

Everything that the fold sees is in the ledger first, so a daemon that was killed comes to the same
verdict. While the ledger cannot be written the watch goes on from memory, and what was not kept is
tried again; the sources' positions stay behind with it.

No clock, no input or output of its own besides the ledger that it is given.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import msgspec

from health import report, timeline, trace_events
from health.catalogue.driver import version
from health.catalogue.tables import Catalogue
from health.classify import judge_for
from health.events import (
    Event,
    Operational,
    PciAddress,
    Quantity,
    Reading,
    RecordsLost,
    Source,
    Watching,
    What,
)
from health.fold.history import History
from health.fold.sources import LOGS
from health.ledger import Ledger, LedgerFull, Position, StoredIncident
from health.parse import lines
from health.parse.lines import Line
from health.policy.schema import Policy
from health.storms import StormGate
from health.timeline import Boot
from health.verdict.node import NodeVerdict, judge_node

MAX_UNKEPT = 50_000
"""Events that wait in memory for a disk with room."""
PIECE = 4096
"""Events that are kept together."""
BOOT_BEGAN = -1
"""A number that no record has: each boot begins once."""


class Clock(NamedTuple):
    """The moment, in seconds: since boot, and since 1970."""

    uptime: float
    wall: float


class Seen(NamedTuple):
    """Something that a source saw at an uptime of this boot."""

    what: What
    uptime: float
    source: Source
    sequence: int | None = None
    text: str = ""
    operational: Operational | None = None


class KernelRecord(NamedTuple):
    """A message of the kernel's log."""

    boot: str
    monotonic_us: int
    text: str
    sequence: int | None = None


@dataclass
class Intake:
    """What came from the sources since the last look, with how far they were read."""

    records: list[KernelRecord] = field(default_factory=list)
    source: Source = Source.KMSG
    traced: list[KernelRecord] = field(default_factory=list)
    """Trace events of the driver, read as the log's records are."""
    seen: list[Seen] = field(default_factory=list)
    positions: dict[str, Position] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    lost: int = 0


class WatchState:
    """One node's watch. Used from one thread at a time."""

    def __init__(
        self,
        ledger: Ledger,
        catalogue: Catalogue,
        policy: Policy,
        *,
        boot_id: str,
        clock: Clock,
        sources: frozenset[Source] = frozenset(),
        driver: str | None = None,
    ) -> None:
        """Reads the ledger and folds what it holds. `sources` are those that should all see a fault."""
        self._ledger = ledger
        self._catalogue = catalogue
        self._policy = policy
        self._sources = sources
        self._driver = driver or ledger.note("driver")
        self._unkept: list[Event] = []
        self._unkept_positions: dict[str, Position] = {}
        self._unkept_counts: dict[str, int] = {}
        self._saved_incidents: dict[str, bytes] = {}
        self.full = ""
        """Why the ledger cannot be written, empty when it can."""
        self.gpus = int(ledger.note("gpus") or 0)
        """How many GPUs the node has had at most."""
        places = {source.value: ledger.position(source) for source in Source}
        self._kept_positions = {name: place for name, place in places.items() if place is not None}
        self.boots = ledger.boots()
        self._enter(boot_id, clock)
        self._fold_again()
        self.counts = ledger.counts()
        self._say_that_the_boot_began()
        self._say_that_nobody_watched(clock)
        self._saved_incidents = {each.id: each.body for each in ledger.incidents()}

    @property
    def boot(self) -> Boot:
        """The boot that runs."""
        return self.boots[-1]

    def wall(self, at: float) -> float:
        """The wall time of a moment of the history, in seconds since 1970."""
        return timeline.wall_time(self.boots, at)

    def position(self, source: str) -> Position | None:
        """How far a source was read, as kept."""
        return self._kept_positions.get(source)

    def expect_gpus(self, number: int) -> None:
        """Remembers how many GPUs the node has had at most."""
        if number <= self.gpus:
            return
        self.gpus = number
        try:
            self._ledger.save_note("gpus", str(number))
        except LedgerFull as error:
            self.full = str(error)

    def readings(self) -> dict[tuple[PciAddress | None, Quantity], int | None]:
        """What NVML said last in this boot."""
        return dict(self._last_readings)

    def use_driver(self, driver: str) -> None:
        """Judges everything anew when the driver is another one than was thought."""
        if driver == self._driver:
            return
        self._driver = driver
        try:
            self._ledger.save_note("driver", driver)
        except LedgerFull as error:
            self.full = str(error)
        self._fold_again()

    def take(self, intake: Intake, clock: Clock) -> int:
        """Keeps and folds what came; returns how many events were new."""
        self.boots[-1] = timeline.brought_up_to_date(
            self.boot, uptime=clock.uptime, wall=clock.wall
        )
        counts = dict(intake.counts)
        events = self._events(intake, clock, counts)
        taken = 0
        # In pieces, so that a burst takes no memory for all of itself. What a kill leaves between two
        # pieces is read again and known by its numbers; records without numbers stay together.
        size = PIECE if intake.source is Source.KMSG else None
        piece = list(islice(events, size))
        while following := list(islice(events, size)):
            taken += self._take_piece(piece, {}, {}, counts)
            piece = following
        return taken + self._take_piece(piece, intake.positions, counts, counts)

    def _take_piece(
        self,
        events: list[Event],
        positions: Mapping[str, Position],
        kept_counts: dict[str, int],
        counts: dict[str, int],
    ) -> int:
        passed = [event for event in events if self._gate.passes(event)]
        if len(passed) < len(events):
            left = len(events) - len(passed)
            counts["repeats_not_kept"] = counts.get("repeats_not_kept", 0) + left
        new = self._keep(passed, positions, kept_counts)
        for event in new:
            self._fold(event)
        return len(new)

    def verdict(self, clock: Clock) -> NodeVerdict:
        """How the node stands now; incidents are kept as they are judged."""
        now = self.boot.at(clock.uptime)
        self._history.advance(now)
        verdict = judge_node(self._history)
        self._history.keep(frozenset(each.id for each in verdict.open))
        self._keep_incidents(verdict)
        return verdict

    def since(self, verdict: NodeVerdict, clock: Clock) -> float:
        """The wall time at which the standing became what it is; kept over restarts."""
        noted = (self._ledger.note("standing") or "").partition(" ")
        if noted[0] == verdict.standing.value and noted[2]:
            return float(noted[2])
        try:
            self._ledger.save_note("standing", f"{verdict.standing.value} {clock.wall!r}")
        except LedgerFull as error:
            self.full = str(error)
        return clock.wall

    def prune(self, clock: Clock) -> None:
        """Drops what is too old, and keeps how late it is."""
        try:
            self._ledger.save_boot(self.boot)
            self._ledger.prune(self.boot.at(clock.uptime))
        except LedgerFull as error:
            self.full = str(error)

    # Events

    def _events(self, intake: Intake, clock: Clock, counts: dict[str, int]) -> Iterator[Event]:
        # Seen goes before what was recorded: that a source begins to watch comes first.
        for seen in intake.seen:
            yield Event(
                self.boot.at(seen.uptime), seen.what, self.boot.id, seen.source, seen.sequence,
                text=seen.text, operational=seen.operational,
            )  # fmt: skip
        yield from self._read(intake.records, intake.source, lines.line, counts)
        yield from self._read(intake.traced, Source.TRACE, trace_events.line, counts)
        if intake.lost:
            lost = RecordsLost(intake.lost)
            yield Event(self.boot.at(clock.uptime), lost, self.boot.id, intake.source)

    def _read(
        self,
        records: Sequence[KernelRecord],
        source: Source,
        read: Callable[[str], Line],
        counts: dict[str, int],
    ) -> Iterator[Event]:
        boots: dict[str, Boot | None] = {}
        for record in records:
            if record.boot not in boots:
                boots[record.boot] = self._boot_of(record.boot)
            boot = boots[record.boot]
            if boot is None:
                counts["record_of_unknown_boot"] = counts.get("record_of_unknown_boot", 0) + 1
                continue
            line = read(record.text)
            if line.what is None:
                reason = f"unused:{line.unused}"
                counts[reason] = counts.get(reason, 0) + 1
                continue
            at = boot.at(record.monotonic_us / 1e6)
            yield Event(
                at, line.what, boot.id, source, record.sequence, record.monotonic_us, line.body
            )

    def _boot_of(self, boot_id: str) -> Boot | None:
        return next((boot for boot in reversed(self.boots) if boot.id == boot_id), None)

    def _enter(self, boot_id: str, clock: Clock) -> None:
        if self.boots:
            # How late a boot is gets kept now and then, its events at once. Where the wall clock cannot
            # be believed, the next boot would begin before them.
            last = self.boots[-1]
            latest = self._ledger.latest(last.id)
            if latest is not None:
                self.boots[-1] = last._replace(uptime=max(last.uptime, latest - last.base))
        boot = timeline.entered(self.boots, boot_id, uptime=clock.uptime, wall=clock.wall)
        self.boots = [each for each in self.boots if each.id != boot.id] + [boot]
        try:
            self._ledger.save_boot(boot)
        except LedgerFull as error:
            self.full = str(error)

    def _say_that_the_boot_began(self) -> None:
        """A reboot ends what only needed one, even if the driver has nothing to say in the new boot."""
        began = Event(self.boot.at(0.0), RecordsLost(0), self.boot.id, Source.KMSG, BOOT_BEGAN)
        for event in self._keep([began], {}, {}):
            self._fold(event)

    def _say_that_nobody_watched(self, clock: Clock) -> None:
        """While no daemon ran, the sources that must be there when it happens were not."""
        at = self.boot.at(clock.uptime)
        absent = [
            Event(at, Watching(source, watches=False), self.boot.id, source)
            for source in sorted(self._sources - LOGS)
            if self._history.sources.present(source)
        ]
        for event in self._keep(absent, {}, {}):
            self._fold(event)

    def _keep(
        self, events: list[Event], positions: Mapping[str, Position], counts: dict[str, int]
    ) -> Sequence[Event]:
        if self._unkept:
            # A source whose position could not be kept says the same again after it reconnects.
            known = {_identity(event) for event in self._unkept}
            events = [e for e in events if e.sequence is None or _identity(e) not in known]
        waiting = len(self._unkept)
        self._unkept += events
        self._unkept_positions.update(positions)
        for name, amount in counts.items():
            self._unkept_counts[name] = self._unkept_counts.get(name, 0) + amount
            self.counts[name] = self.counts.get(name, 0) + amount
        if not (self._unkept or self._unkept_positions or self._unkept_counts):
            return events
        try:
            new = self._ledger.record(
                self._unkept, positions=self._unkept_positions, counts=self._unkept_counts
            )
        except LedgerFull as error:
            self.full = str(error)
            excess = len(self._unkept) - MAX_UNKEPT
            if excess > 0:
                del self._unkept[:excess]
                self._unkept_counts["events_not_kept"] = (
                    self._unkept_counts.get("events_not_kept", 0) + excess
                )
            return events
        if waiting:
            # What waited was folded when it came.
            folded = {id(event) for event in self._unkept[:waiting]}
            new = [event for event in new if id(event) not in folded]
        self.full = ""
        self._kept_positions = {**self._kept_positions, **self._unkept_positions}
        self._unkept, self._unkept_positions, self._unkept_counts = [], {}, {}
        return new

    # The fold

    def _fold_again(self) -> None:
        driver = version(self._driver) if self._driver else None
        judge = judge_for(self._catalogue, driver, self._policy)
        self._history = History(judge, self._policy, self._sources)
        self._gate = StormGate()
        self._last_readings: dict[tuple[PciAddress | None, Quantity], int | None] = {}
        since = self.boot.at(self.boot.uptime) - self._policy.grouping.history_seconds
        for event in self._ledger.events(since):
            self._gate.passes(event)
            self._fold(event)
        for event in self._unkept:
            self._fold(event)

    def _fold(self, event: Event) -> None:
        what = event.what
        if isinstance(what, Reading) and event.boot == self.boot.id:
            self._last_readings[(what.device, what.quantity)] = what.value
        self._history.add(event)

    def _keep_incidents(self, verdict: NodeVerdict) -> None:
        changed = []
        for each in verdict.incidents:
            body = msgspec.json.encode(report.incident(each))
            if self._saved_incidents.get(each.id) != body:
                closed_at = each.closed.at if each.closed is not None else None
                changed.append(StoredIncident(each.id, each.opened_at, closed_at, body))
        if not changed:
            return
        try:
            self._ledger.save_incidents(changed)
        except LedgerFull as error:
            self.full = str(error)
            return
        self._saved_incidents.update({each.id: each.body for each in changed})


def _identity(event: Event) -> tuple[str, Source, int | None]:
    return event.boot, event.source, event.sequence
