"""An incident: the observations about one fault, each kept once however often it was reported."""

import hashlib
from collections import Counter

import msgspec

from health.actions import Action
from health.catalogue.rows import Cause
from health.events import Event, Operational, PciAddress, Source, Xid
from health.judge.judgement import Judgement

MAX_OBSERVATIONS = 128
MAX_RUNS = 32
MAX_DETAILS = 4
MAX_SLICES = 16
RUN_GAP_SECONDS = 30.0
"""Reports further apart than this are two runs: ends of jobs are matched run by run."""

Key = tuple[str, PciAddress | None, str, str]


class Run(msgspec.Struct):
    """Reports that came close together."""

    first: float
    last: float
    count: int


class Observation(msgspec.Struct):
    """One kind of fault at one place of one device, with how often and when it was reported."""

    judgement: Judgement
    device: PciAddress | None
    boot: str
    runs: list[Run]
    count: int
    first_text: str
    last_text: str
    source: Source
    propagated: bool = False
    """The driver itself said that it comes from elsewhere."""
    injected: int = 0
    """Reports that the driver itself said were injected on purpose."""
    bare: int = 0
    """Reports that came without a message, from a source that knows only the code."""
    details: list[str] = msgspec.field(default_factory=list)
    """Further lines that belong to the report."""
    slices: list[int] = msgspec.field(default_factory=list)
    """The GPU instances that the reports name: with MIG, jobs on the others go on."""

    def note_slice(self, gpu_instance: int) -> None:
        """Remembers a GPU instance that a report named."""
        if gpu_instance not in self.slices and len(self.slices) < MAX_SLICES:
            self.slices.append(gpu_instance)

    @property
    def simulated(self) -> bool:
        """Whether it was never more than an exercise: one real report makes it a fault."""
        return self.injected >= self.count

    @property
    def first_at(self) -> float:
        return self.runs[0].first

    @property
    def last_at(self) -> float:
        return self.runs[-1].last

    def characterise(self, extra: Operational) -> None:
        """Lays what the driver says beside an Xid to a report that is counted here."""
        self.propagated = self.propagated or (extra.propagated and not extra.primary)
        self.injected += extra.simulated

    def count_since(self, moment: float) -> int:
        """Reports since a moment; of a run that began before it, all."""
        return sum(run.count for run in self.runs if run.last >= moment)


class Incident(msgspec.Struct):
    """Observations that belong together. It grows while they come; it never decides anything."""

    id: str
    boot: str
    opened_at: float
    last_at: float
    observations: dict[Key, Observation]
    devices: list[PciAddress]
    dropped: int = 0
    """Reports counted under a coarser observation because there were too many kinds."""
    forgotten: bool = False
    """True when the history has let go of it: nothing may be added any more."""

    def of(self, device: PciAddress | None) -> list[Observation]:
        """The observations about one device."""
        return [each for each in self.observations.values() if each.device == device]


def opened(event: Event, judgement: Judgement) -> Incident:
    """A new incident. Its id depends on nothing but the first event, so a replay gives it again."""
    identity = (
        f"{event.boot}|{event.source}|{event.sequence}|{event.at!r}|{event.text}|{judgement.code}"
    )
    digest = hashlib.blake2s(identity.encode("utf-8", "replace"), digest_size=6).hexdigest()
    name = judgement.code.replace(":", "-").replace("_", "-")
    return Incident(f"{name}-{digest}", event.boot, event.at, event.at, {}, [])


def observe(
    incident: Incident, event: Event, judgement: Judgement, device: PciAddress | None
) -> Observation:
    """Adds a report to an incident."""
    at = event.at
    incident.last_at = at
    key = (judgement.code, device, judgement.variant, judgement.place)
    found = incident.observations.get(key)
    if found is None:
        found = _first(incident, event, judgement, device, key)
    found.count += 1
    found.bare += _bare(event)
    if event.operational is not None:
        found.characterise(event.operational)
    if found.count == 1:
        return found
    run = found.runs[-1]
    if at - run.last <= RUN_GAP_SECONDS:
        run.last = at
        run.count += 1
    else:
        _new_run(found, at)
    found.last_text = event.text
    if judgement.by_number:
        found.judgement = judgement
    return found


def _bare(event: Event) -> bool:
    return type(event.what) is Xid and not event.what.message


def _first(
    incident: Incident, event: Event, judgement: Judgement, device: PciAddress | None, key: Key
) -> Observation:
    """The observation that a report of a new kind is counted under, with a count of 0 when new."""
    if len(incident.observations) >= MAX_OBSERVATIONS:
        # Noise without end must not take memory without end: the place is given up first.
        incident.dropped += 1
        gravity = judgement.action.severity
        for other, observation in incident.observations.items():
            same = other[0] == judgement.code and other[1] == device
            if same and (judgement.by_number or gravity <= observation.judgement.action.severity):
                return observation
        if not _make_room(incident, judgement):
            return next(reversed(incident.observations.values()))
    fresh = Observation(
        judgement, device, event.boot, [Run(event.at, event.at, 1)], 0, event.text, event.text, event.source
    )  # fmt: skip
    incident.observations[key] = fresh
    if device is not None and device not in incident.devices:
        incident.devices.append(device)
    return fresh


def _make_room(incident: Incident, judgement: Judgement) -> bool:
    """Gives up the least of what an incident holds for a report that says more; False when none does.

    A GPU that leaves the bus amid a thousand exceptions of its program must not drown in them. What the
    driver itself asks for never goes into another's observation either: it would overwrite that one.
    """
    kinds = Counter(key[:2] for key in incident.observations)
    least = min(
        incident.observations,
        key=lambda key: (
            incident.observations[key].judgement.action.severity,
            kinds[key[:2]] == 1,
            incident.observations[key].last_at,
        ),
    )
    held = incident.observations[least].judgement.action.severity
    if judgement.action.severity <= held and not judgement.by_number:
        return False
    incident.dropped += incident.observations.pop(least).count - 1
    return True


def _new_run(found: Observation, at: float) -> None:
    if len(found.runs) >= MAX_RUNS:
        # The oldest two become one; what is asked about is recent.
        eldest, second = found.runs[0], found.runs[1]
        found.runs[:2] = [Run(eldest.first, second.last, eldest.count + second.count)]
    found.runs.append(Run(at, at, 1))


def concerns_hardware(incident: Incident) -> bool:
    """Whether something in it calls for a repair by itself: then only a repair ends it."""
    return any(each.judgement.action.concerns_hardware for each in incident.observations.values())


def calls_for_vendor(incident: Incident) -> bool:
    """Whether something in it calls for the vendor by itself."""
    return any(
        each.judgement.action is Action.HARDWARE_TICKET for each in incident.observations.values()
    )


def attach(incident: Incident, code: str, device: PciAddress | None, text: str) -> None:
    """Puts a further line of a report to the report."""
    for observation in incident.of(device):
        if observation.judgement.code == code and len(observation.details) < MAX_DETAILS:
            observation.details.append(text)
            return


def newest(incident: Incident, code: str, device: PciAddress | None) -> Observation | None:
    """The observation of a code that was reported last, None when it never was."""
    told = [each for each in incident.of(device) if each.judgement.code == code]
    return max(told, key=lambda each: each.last_at, default=None)


def take_back(incident: Incident, code: str, device: PciAddress | None) -> None:
    """Takes one bare report back: another source has told the same event with its message."""
    key = (code, device, "", "")
    found = incident.observations.get(key)
    if found is None or not found.bare:
        return
    found.bare -= 1
    found.count -= 1
    found.injected = min(found.injected, found.count)
    found.runs[-1].count = max(found.runs[-1].count - 1, 1)
    if found.count == 0:
        del incident.observations[key]


def is_fault(observation: Observation) -> bool:
    """True for what went wrong, false for details and good news."""
    return observation.judgement.cause not in (Cause.DETAIL, Cause.INFORMATION)
