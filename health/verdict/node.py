"""The verdict on a node: a fold over its history, for each GPU and for the whole.

Pure: the same history, policy and topology give the same verdict, which can be printed, stored and
asked for again.
"""

import msgspec

from health.actions import Action, Standing, gravest, standing
from health.catalogue.rows import Cause
from health.events import PciAddress, Quantity
from health.fold.history import History, Number
from health.judge.judgement import Judgement
from health.verdict.findings import Surroundings
from health.verdict.incidents import IncidentVerdict, judge_incident
from health.verdict.topology import Topology, of_wirings


class Condition(msgspec.Struct, frozen=True):
    """A reading that is not as it should be, as long as it lasts."""

    quantity: Quantity
    device: PciAddress | None
    value: int
    since: float
    action: Action
    rule: str
    why: str
    of_the_monitor: bool
    """True when only the watching is impaired."""


class GpuVerdict(msgspec.Struct, frozen=True):
    """How one GPU stands."""

    device: PciAddress
    uuid: str | None
    serial: str | None
    standing: Standing
    action: Action
    why: str
    incidents: tuple[str, ...]
    vbios: str | None = None
    slot: str | None = None
    """Where the board sits, as people find it."""
    driver: str | None = None
    resets_with: tuple[PciAddress, ...] = ()
    """The other GPUs that a reset of this one takes along."""
    grown: tuple[tuple[str, int, int], ...] = ()
    """Error counters that are not what they were before the fault: name, before, now."""


class NodeVerdict(msgspec.Struct, frozen=True):
    """How a node stands. `incidents` are all that the history still holds, oldest first."""

    standing: Standing
    action: Action
    rule: str
    why: str
    boot: str
    gpus: tuple[GpuVerdict, ...]
    incidents: tuple[IncidentVerdict, ...]
    conditions: tuple[Condition, ...]
    gaps: dict[str, int]
    """Events that a source missed although another told them."""
    counts: dict[str, int]

    @property
    def open(self) -> tuple[IncidentVerdict, ...]:
        """The incidents that have not ended."""
        return tuple(each for each in self.incidents if each.closed is None)


def judge_node(history: History, topology: Topology | None = None) -> NodeVerdict:
    """The verdict on a node as of the last moment of its history.

    A topology of None is the one that the history has been told.
    """
    topology = topology or of_wirings(history.wirings)
    surroundings = Surroundings(history)
    incidents = tuple(
        judge_incident(each, surroundings, history, topology) for each in history.incidents
    )
    conditions = _conditions(history)
    open_now = [each for each in incidents if each.closed is None]
    action = gravest([*(each.action for each in open_now), *(each.action for each in conditions)])
    rule, why = _reason(action, open_now, conditions)
    suspicion = any(each.watched for each in open_now) or bool(conditions)
    return NodeVerdict(
        standing=standing(action, watched=suspicion),
        action=action,
        rule=rule,
        why=why,
        boot=history.boot,
        gpus=_gpus(history, topology, open_now, conditions),
        incidents=incidents,
        conditions=tuple(conditions),
        gaps=dict(sorted(history.sources.gaps.items())),
        counts=dict(sorted(history.counts.items())),
    )


def _reason(
    action: Action, open_now: list[IncidentVerdict], conditions: list[Condition]
) -> tuple[str, str]:
    for incident in open_now:
        if incident.action is action and (action is not Action.NONE or incident.watched):
            return incident.rule, incident.why
    for condition in conditions:
        if condition.action is action:
            return condition.rule, condition.why
    return "", "nothing is wrong"


def _conditions(history: History) -> list[Condition]:
    found = []
    for (device, quantity), number in history.readings.items():
        judgement = number.judgement
        if judgement is None or (number.value == 0 and quantity is Quantity.RECOVERY_ACTION):
            continue
        if number.boot != history.boot and judgement.action is not Action.HARDWARE_TICKET:
            continue
        action, rule, why = _with_past(quantity, number, judgement, history)
        found.append(
            Condition(
                quantity,
                device,
                number.value,
                number.since,
                action,
                rule,
                why,
                quantity in (Quantity.MONITOR_ERROR, Quantity.MONITOR_HANG),
            )
        )
    return found


def _with_past(
    quantity: Quantity, number: Number, judgement: Judgement, history: History
) -> tuple[Action, str, str]:
    """A GPU that is still missing after a reboot is for the vendor."""
    earlier_loss = any(
        each.boot != number.boot and observation.judgement.cause is Cause.BUS
        for each in history.incidents
        for observation in each.observations.values()
    )
    if quantity is Quantity.DEVICES_MISSING and earlier_loss:
        why = f"{judgement.why}, and a reboot did not bring it back"
        return Action.HARDWARE_TICKET, "missing_after_reboot", why
    return judgement.action, judgement.rule, judgement.why


def _gpus(
    history: History,
    topology: Topology,
    open_now: list[IncidentVerdict],
    conditions: list[Condition],
) -> tuple[GpuVerdict, ...]:
    devices = sorted(
        {
            *history.boards,
            *(device for each in open_now for device in each.devices),
            *(each.device for each in conditions if each.device is not None),
        }
    )
    return tuple(_gpu(device, history, topology, open_now, conditions) for device in devices)


def _gpu(
    device: PciAddress,
    history: History,
    topology: Topology,
    open_now: list[IncidentVerdict],
    conditions: list[Condition],
) -> GpuVerdict:
    mine = [each for each in open_now if device in each.devices]
    about = [
        (finding.action, finding.why)
        for each in mine
        for finding in each.findings
        if finding.device == device
    ]
    # What was decided for the incident as a whole: a reset that became a reboot, a storm.
    about += [(each.action, each.why) for each in mine if device in each.to_act_on]
    about += [(each.action, each.why) for each in conditions if each.device == device]
    action = gravest([each for each, _ in about])
    suspicion = any(each.watched for each in mine) or any(
        each.device == device for each in conditions
    )
    board = history.boards.get(device)
    return GpuVerdict(
        device=device,
        uuid=board.uuid if board is not None else None,
        serial=board.serial if board is not None else None,
        standing=standing(action, watched=suspicion),
        action=action,
        why=next((why for each, why in about if each is action), "nothing is wrong"),
        incidents=tuple(each.id for each in mine),
        vbios=board.vbios if board is not None else None,
        slot=board.slot if board is not None else None,
        driver=board.driver if board is not None else None,
        resets_with=tuple(each for each in topology.reset_domain(device) if each != device),
        grown=_grown(history.counters.get(device, []), mine, conditions, device),
    )


def _grown(
    snapshots: list[tuple[float, dict[str, int]]],
    mine: list[IncidentVerdict],
    conditions: list[Condition],
    device: PciAddress,
) -> tuple[tuple[str, int, int], ...]:
    """What a GPU's faults did to its counters; nothing for one without faults."""
    moments = [each.opened_at for each in mine]
    moments += [each.since for each in conditions if each.device == device]
    if not moments or len(snapshots) < 2:
        return ()
    earlier = [values for at, values in snapshots if at < min(moments)]
    before, now = (earlier or [snapshots[0][1]])[-1], snapshots[-1][1]
    return tuple(
        (name, before[name], value)
        for name, value in sorted(now.items())
        if name in before and before[name] != value
    )
