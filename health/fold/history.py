"""The fold: one event after the other into the history of a node.

It keeps facts - incidents, readings, ends of jobs, boots, repairs - and decides nothing, so the same
events give the same history and any verdict can be asked for again. Memory is bounded whatever
comes; what was given up is counted.
"""

from collections.abc import Callable

import msgspec

from health.events import (
    ActionTaken,
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
    Xid,
)
from health.fold import incident as incidents
from health.fold.causes import Causes
from health.fold.incident import Incident, Observation
from health.fold.jobs import JobEnds
from health.fold.sources import Sources
from health.judge.judge import Judge
from health.judge.judgement import Judgement
from health.parse import details
from health.policy.schema import Policy

MAX_INCIDENTS = 512
MAX_DEVICES = 1024
MAX_BOOTS = 64
MAX_REPAIRS = 256


class Board(msgspec.Struct):
    """Which board is in a place, as the driver printed it."""

    uuid: str | None = None
    serial: str | None = None
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
        self.boots: list[tuple[str, float]] = []
        self.repairs: list[tuple[float, ActionTaken | Verified]] = []
        self.counts: dict[str, int] = {}
        """How often each code was seen; and what was lost or given up, by reason."""
        self.sources = Sources(sources, policy.grouping.source_match_seconds)
        self.now = 0.0
        self._judge = judge
        self._current: dict[PciAddress | None, Incident] = {}
        self._kept: frozenset[str] = frozenset()
        self._last_named: PciAddress | None = None
        self._rules: dict[type, Callable[[Event], Observation | None]] = {
            Xid: self._fault,
            SXid: self._fault,
            SXidDetail: self._detail,
            FallenOff: self._fault,
            Hint: self._fault,
            Identity: self._identity,
            Reading: self._reading,
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
        if type(what) is Xid and self.sources.pairing and self._known(event, code, what):
            return None
        counts[code] = counts.get(code, 0) + 1
        if judgement.rule == "recovery_number":
            self._recovery(event, judgement, device)
        incident = self._incident(event, judgement, device)
        observation = incidents.observe(incident, event, judgement, device)
        if type(what) is Xid and what.gpu_instance is not None:
            observation.note_slice(what.gpu_instance)
        return observation

    def _known(self, event: Event, code: str, xid: Xid) -> bool:
        """True when another source has told this event, and told it as well as this one does."""
        bare = not xid.message
        earlier = self.sources.told_before(event, code, xid.device, bare=bare)
        if earlier is None:
            return False
        if bare or not earlier.bare:
            return True
        # The one that knows only the code was faster: its report gives way to the full one.
        current = self._current.get(xid.device)
        if current is not None:
            incidents.take_back(current, code, xid.device)
            self.counts[code] = max(self.counts.get(code, 0) - 1, 0)
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
        found = self._related(event, judgement, device) or self._new(event, judgement)
        self._current[device] = found
        return found

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
        for name, new in (("uuid", what.uuid), ("serial", what.serial)):
            old = getattr(board, name)
            if new is not None and old is not None and new != old:
                self.boards[device] = board = Board(replaced_at=event.at)
            if new is not None:
                setattr(board, name, new)
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
