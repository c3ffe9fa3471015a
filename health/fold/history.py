"""The fold: one event after the other into the history of a node.

It keeps facts - incidents, readings, ends of jobs, boots, repairs - and decides nothing, so the same
events give the same history and any verdict can be asked for again. Memory is bounded whatever
comes; what was given up is counted.
"""

from collections.abc import Callable

import msgspec

from health.events import (
    ActionTaken,
    Counters,
    Event,
    FallenOff,
    Hint,
    Identity,
    JobEnded,
    PciAddress,
    Quantity,
    Reading,
    RecordsLost,
    Source,
    SXid,
    SXidDetail,
    Verified,
    Watching,
    Wiring,
    Xid,
)
from health.fold import incident as incidents
from health.fold.causes import Causes
from health.fold.incident import Incident, Observation
from health.fold.jobs import JobEnds
from health.fold.sources import SWITCH_REPORTS, Sources, Telling
from health.judge.judge import Judge
from health.judge.judgement import Judgement
from health.parse import details
from health.policy.schema import Policy

MAX_INCIDENTS = 512
MAX_DEVICES = 1024
MAX_BOOTS = 64
MAX_REPAIRS = 256
MAX_TRACES = 1024
MAX_SNAPSHOTS = 16
_BOARD_FIELDS = ("uuid", "serial", "vbios", "slot", "driver")
_OF_THE_BOARD = ("uuid", "serial")


class Board(msgspec.Struct):
    """Which board is in a place, as the driver printed it."""

    uuid: str | None = None
    serial: str | None = None
    vbios: str | None = None
    slot: str | None = None
    driver: str | None = None
    replaced_at: float | None = None
    """When another board appeared in this place."""


class Number(msgspec.Struct):
    """A value that was read, since when it has held, and when it was read last."""

    value: int
    since: float
    judgement: Judgement | None
    text: str
    boot: str
    said_by: str


class History:
    """The history of one node. `add` takes events in the order in which they happened."""

    def __init__(
        self, judge: Judge, policy: Policy, sources: frozenset[Source] = frozenset()
    ) -> None:
        self.policy = policy
        self.causes = Causes(policy.causes)
        self.incidents: list[Incident] = []
        self.jobs = JobEnds()
        self.boards: dict[PciAddress, Board] = {}
        self.readings: dict[tuple[PciAddress | None, Quantity], Number] = {}
        self.wirings: dict[PciAddress, Wiring] = {}
        self.counters: dict[PciAddress, list[tuple[float, dict[str, int]]]] = {}
        """Each GPU's error counters at a few moments, oldest first."""
        self.boots: list[tuple[str, float]] = []
        self.repairs: list[tuple[float, ActionTaken | Verified]] = []
        self.counts: dict[str, int] = {}
        """How often each code was seen; and what was lost or given up, by reason."""
        self.sources = Sources(sources, policy.grouping.source_match_seconds)
        self.now = 0.0
        self._judge = judge
        self._current: dict[PciAddress | None, Incident] = {}
        self._kept: frozenset[str] = frozenset()
        self._traces: dict[int, Incident] = {}
        self._last_named: PciAddress | None = None
        self._rules: dict[type, Callable[[Event], Observation | None]] = {
            Xid: self._fault,
            SXid: self._fault,
            SXidDetail: self._detail,
            FallenOff: self._fault,
            Hint: self._fault,
            Identity: self._identity,
            Reading: self._reading,
            Wiring: self._wiring,
            Counters: self._counters,
            Watching: self._watching,
            JobEnded: self._job_ended,
            ActionTaken: self._repaired,
            Verified: self._repaired,
            RecordsLost: self._lost,
        }

    def add(self, event: Event) -> Observation | None:
        """Takes one event in; the observation that it was counted under, if it is one."""
        if event.at > self.now:
            self.now = event.at
        if not self.boots or self.boots[-1][0] != event.boot:
            self._booted(event)
        return self._rules[type(event.what)](event)

    def advance(self, now: float) -> None:
        """Lets time pass without an event: suspicions end, and what a source did not tell shows."""
        self.now = max(self.now, now)
        self.sources.expire(self.now)

    @property
    def boot(self) -> str:
        """The boot of the newest event."""
        return self.boots[-1][0] if self.boots else ""

    def count(self, reason: str, number: int = 1) -> None:
        """Counts something that is only counted."""
        self.counts[reason] = self.counts.get(reason, 0) + number

    def _booted(self, event: Event) -> None:
        if any(boot == event.boot for boot, _ in self.boots):
            # A late event of an earlier boot must not make that boot the current one.
            return
        self.boots.append((event.boot, event.at))
        del self.boots[:-MAX_BOOTS]
        self._current.clear()

    def _fault(self, event: Event) -> Observation | None:
        what = event.what
        judgement = self._judge.judge(what)  # type: ignore[arg-type] # only faults are led here
        if judgement is None:
            return None
        device = what.device  # type: ignore[union-attr] # every fault has one
        counts, code = self.counts, judgement.code
        earlier = self._told_before(event, code, device) if self.sources.pairing else None
        if earlier is not None and not self._gives_way(event, earlier, code, device):
            return None
        counts[code] = counts.get(code, 0) + 1
        if judgement.rule == "recovery_number":
            self._recovery(event, judgement, device)
        incident = self._incident(event, judgement, device)
        observation = incidents.observe(incident, event, judgement, device)
        if earlier is not None and earlier.extra is not None and event.operational is None:
            observation.characterise(earlier.extra)
        if type(what) is Xid and what.gpu_instance is not None:
            observation.note_slice(what.gpu_instance)
        return observation

    def _told_before(self, event: Event, code: str, device: PciAddress | None) -> Telling | None:
        """What other sources have said of this very event already."""
        what = event.what
        if isinstance(what, Xid):
            return self.sources.told_before(event, code, device, bare=not what.message)
        if isinstance(what, SXid):
            among = SWITCH_REPORTS
            return self.sources.told_before(event, code, device, bare=False, among=among)
        return None

    def _gives_way(
        self, event: Event, earlier: Telling, code: str, device: PciAddress | None
    ) -> bool:
        """Whether the earlier report is taken back for this one, which says more; else only what the
        driver says beside it is news.
        """
        current = self._current.get(device)
        what = event.what
        fuller = earlier.bare and isinstance(what, Xid) and bool(what.message)
        if fuller:
            # The source that knows only the code was faster.
            earlier.bare = False
            if current is not None:
                incidents.take_back(current, code, device)
                self.counts[code] = max(self.counts.get(code, 0) - 1, 0)
            return True
        known = incidents.newest(current, code, device) if current is not None else None
        if known is not None and event.operational is not None:
            known.characterise(event.operational)
        return False

    def _detail(self, event: Event) -> Observation | None:
        what = event.what
        assert isinstance(what, SXidDetail)
        current = self._current.get(what.device)
        if current is not None:
            incidents.attach(current, f"sxid:{what.code}", what.device, event.text)
        return None

    def _incident(self, event: Event, judgement: Judgement, device: PciAddress | None) -> Incident:
        """The incident that a fault belongs to: its device's own, a related one, or a new one."""
        current = self._current.get(device)
        if current is not None and self._goes_on(current, event):
            return current
        if len(self._current) >= MAX_DEVICES and device not in self._current:
            # No node has so many; whatever writes this, the watch goes on in bounded time.
            self.count("too_many_devices")
            newest = self.incidents[-1]
            return newest if self._goes_on(newest, event) else self._new(event, judgement)
        found = self._same_trace(event) or self._related(event, judgement, device)
        found = found or self._new(event, judgement)
        self._current[device] = found
        self._note_trace(event, found)
        return found

    def _same_trace(self, event: Event) -> Incident | None:
        """The incident of an event that the driver itself says has the same cause."""
        extra = event.operational
        found = self._traces.get(extra.trace) if extra is not None and extra.trace else None
        return found if found is not None and self._goes_on(found, event) else None

    def _note_trace(self, event: Event, found: Incident) -> None:
        extra = event.operational
        if extra is None or not extra.trace:
            return
        if len(self._traces) >= MAX_TRACES:
            del self._traces[next(iter(self._traces))]
        self._traces[extra.trace] = found

    def _goes_on(self, current: Incident, event: Event) -> bool:
        gap = event.at - current.last_at
        grouping = self.policy.grouping
        if current.boot != event.boot or current.forgotten:
            return False
        if gap <= grouping.silence_seconds:
            return True
        if gap > grouping.quiet_seconds or not incidents.concerns_hardware(current):
            return False
        return not self._repaired_since(current)

    def _repaired_since(self, incident: Incident) -> bool:
        return any(
            at >= incident.last_at and (repair.device is None or repair.device in incident.devices)
            for at, repair in self.repairs
        )

    def _related(
        self, event: Event, judgement: Judgement, device: PciAddress | None
    ) -> Incident | None:
        grouping = self.policy.grouping
        for other in reversed(self.incidents[-16:]):
            gap = event.at - other.last_at
            if gap > grouping.silence_seconds or other.boot != event.boot:
                continue
            for seen in other.observations.values():
                same = seen.judgement.code == judgement.code and seen.device != device
                if same and event.at - seen.last_at <= grouping.same_cause_seconds:
                    return other
                if seen.device != device and self.causes.across(
                    judgement.code, seen.judgement.code, event.at - seen.last_at
                ):
                    return other
        return None

    def _new(self, event: Event, judgement: Judgement) -> Incident:
        fresh = incidents.opened(event, judgement)
        self.incidents.append(fresh)
        oldest = event.at - self.policy.grouping.history_seconds
        if len(self.incidents) > MAX_INCIDENTS:
            self._forget([next(filter(self._over, self.incidents), self.incidents[0])])
        elif self.incidents[0].last_at < oldest:
            past = [each for each in self.incidents if each.last_at < oldest and self._over(each)]
            self._forget(past)
        return fresh

    def keep(self, ids: frozenset[str]) -> None:
        """Names the incidents that are open in the eyes of whoever judges: they are not forgotten."""
        self._kept = ids

    def _forget(self, gone: list[Incident]) -> None:
        for each in gone:
            each.forgotten = True
        self.incidents = [each for each in self.incidents if not each.forgotten]
        self.count("incidents_forgotten", len(gone))

    def _over(self, incident: Incident) -> bool:
        """Whether an incident may be forgotten: a fault that nobody has mended may not."""
        if incident.id in self._kept:
            return False
        if incidents.calls_for_vendor(incident):
            return any(
                isinstance(repair, Verified) and at >= incident.last_at
                for at, repair in self.repairs
            )
        if incidents.concerns_hardware(incident):
            return incident.boot != self.boot or self._repaired_since(incident)
        return True

    def _recovery(self, event: Event, judgement: Judgement, device: PciAddress | None) -> None:
        change = details.recovery_change(event.what.message)  # type: ignore[union-attr] # a 154
        if change is not None:
            self._keep(event, Quantity.RECOVERY_ACTION, device, change.now, judgement)

    def _reading(self, event: Event) -> Observation | None:
        reading = event.what
        assert isinstance(reading, Reading)
        if reading.value is None or reading.value < 0:
            self.count(f"unreadable:{reading.quantity}")
            return None
        judgement = self._judge.judge(reading)
        self._keep(event, reading.quantity, reading.device, reading.value, judgement)
        return None

    def _keep(
        self,
        event: Event,
        quantity: Quantity,
        device: PciAddress | None,
        value: int,
        judgement: Judgement | None,
    ) -> None:
        key = (device, quantity)
        before = self.readings.get(key)
        if before is None and len(self.readings) >= MAX_DEVICES * len(Quantity):
            self.count("too_many_devices")
            return
        same = before is not None and before.value == value and before.boot == event.boot
        since = before.since if same and before is not None else event.at
        self.readings[key] = Number(value, since, judgement, event.text, event.boot, event.source)

    def _identity(self, event: Event) -> Observation | None:
        what = event.what
        assert isinstance(what, Identity)
        # The serial line names no place: it follows the line with the UUID.
        device = what.device or self._last_named
        self._last_named = what.device if what.uuid is not None else None
        if device is None or (device not in self.boards and len(self.boards) >= MAX_DEVICES):
            self.count("identity_without_place")
            return None
        board = self.boards.setdefault(device, Board())
        for name in _BOARD_FIELDS:
            new, old = getattr(what, name), getattr(board, name)
            if name in _OF_THE_BOARD and new is not None and old is not None and new != old:
                self.boards[device] = board = Board(replaced_at=event.at)
            if new is not None:
                setattr(board, name, new)
        return None

    def _wiring(self, event: Event) -> Observation | None:
        what = event.what
        assert isinstance(what, Wiring)
        if what.device in self.wirings or len(self.wirings) < MAX_DEVICES:
            self.wirings[what.device] = what
        return None

    def _counters(self, event: Event) -> Observation | None:
        what = event.what
        assert isinstance(what, Counters)
        if what.device not in self.counters and len(self.counters) >= MAX_DEVICES:
            return None
        kept = self.counters.setdefault(what.device, [])
        kept.append((event.at, what.values))
        if len(kept) > MAX_SNAPSHOTS:
            # The first ones show what was before, the last ones what is.
            del kept[MAX_SNAPSHOTS // 2]
        return None

    def _watching(self, event: Event) -> Observation | None:
        what = event.what
        assert isinstance(what, Watching)
        self.sources.watches(what.source, event.at, watches=what.watches)
        return None

    def _job_ended(self, event: Event) -> Observation | None:
        assert isinstance(event.what, JobEnded)
        self.jobs.add(event, event.what)
        return None

    def _repaired(self, event: Event) -> Observation | None:
        assert isinstance(event.what, ActionTaken | Verified)
        self.repairs.append((event.at, event.what))
        del self.repairs[:-MAX_REPAIRS]
        return None

    def _lost(self, event: Event) -> Observation | None:
        assert isinstance(event.what, RecordsLost)
        self.count("records_lost", max(event.what.count, 0))
        return None
