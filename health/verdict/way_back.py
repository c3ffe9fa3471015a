"""How an incident ends: each has a way back, or a passing fault would hold a node for ever."""

from typing import NamedTuple

from health.actions import Action
from health.events import ActionTaken, PciAddress, Quantity
from health.fold.history import History
from health.fold.incident import Incident
from health.verdict.findings import Finding, Role

# Good news that takes a suspicion back.
TAKEN_BACK_BY = {"xid:163": "xid:162", "sxid:10004": "sxid:10005", "sxid:28001": "sxid:28002", "sxid:28003": "sxid:28004"}  # fmt: skip


class Closed(NamedTuple):
    """When and why an incident ended."""

    at: float
    because: str


WORDS = {
    Action.NONE: "nothing new for a while",
    Action.RESTART_APP: "no further fault once the program has ended",
    Action.RESET_GPU: "the driver asks for nothing more, a reset that worked, a reboot, or passed checks",
    Action.REBOOT_NODE: "the next boot, or passed checks",
    Action.HARDWARE_TICKET: "another board in its place, or passed checks",
}


def closed(
    incident: Incident, findings: list[Finding], action: Action, history: History
) -> Closed | None:
    """The end of an incident as of the history's last moment, None while it is open."""
    ways = (
        _verified(incident, history),
        _replaced(incident, history),
        _rebooted(incident, action, history),
        _reset(incident, action, history),
        _driver_content(findings, action, history),
        _quiet(incident, findings, action, history),
    )
    return min((way for way in ways if way is not None), default=None)


def _verified(incident: Incident, history: History) -> Closed | None:
    for at, repair in history.repairs:
        about = repair.device is None or incident.devices in ([], [repair.device])
        if not isinstance(repair, ActionTaken) and about and at >= incident.last_at:
            return Closed(at, "the checks after the repair passed")
    return None


def _replaced(incident: Incident, history: History) -> Closed | None:
    moments = [_replaced_at(device, history) for device in incident.devices]
    known = [moment for moment in moments if moment is not None and moment >= incident.opened_at]
    if known and len(known) == len(moments):
        return Closed(max(known), "another board is in its place")
    return None


def _replaced_at(device: PciAddress, history: History) -> float | None:
    board = history.boards.get(device)
    return board.replaced_at if board is not None else None


def _rebooted(incident: Incident, action: Action, history: History) -> Closed | None:
    if action is Action.HARDWARE_TICKET:
        return None
    later = [at for boot, at in history.boots if boot != incident.boot and at >= incident.last_at]
    return Closed(min(later), "the node has been rebooted") if later else None


def _reset(incident: Incident, action: Action, history: History) -> Closed | None:
    if action.severity > Action.RESET_GPU.severity:
        return None
    for at, repair in history.repairs:
        if (
            isinstance(repair, ActionTaken)
            and repair.action is Action.RESET_GPU
            and repair.succeeded
            and at >= incident.last_at
            and all(device == repair.device for device in incident.devices)
        ):
            return Closed(at, "the GPU has been reset")
    return None


def _driver_content(findings: list[Finding], action: Action, history: History) -> Closed | None:
    """The driver's number went back to 0, and all that is open here is its matter."""
    if not action.concerns_hardware or action is Action.HARDWARE_TICKET:
        return None
    hard = [each for each in findings if each.action.concerns_hardware]
    moments = []
    for each in hard:
        number = history.readings.get((each.device, Quantity.RECOVERY_ACTION))
        if not each.observation.judgement.follows_driver or number is None or number.value != 0:
            return None
        if number.since < each.observation.last_at:
            return None
        moments.append(number.since)
    return Closed(max(moments), "the driver asks for nothing more") if moments else None


def _quiet(
    incident: Incident, findings: list[Finding], action: Action, history: History
) -> Closed | None:
    if action.concerns_hardware:
        return None
    grouping = history.policy.grouping
    watched = [each for each in findings if _suspicious(each, findings)]
    wait = grouping.watch_seconds if watched and action is Action.NONE else grouping.silence_seconds
    end = incident.last_at + wait
    return Closed(end, "nothing new came") if history.now >= end else None


def _suspicious(finding: Finding, findings: list[Finding]) -> bool:
    if finding.role is not Role.FAULT or not finding.observation.judgement.watched:
        return False
    good_news = TAKEN_BACK_BY.get(finding.code)
    return not any(
        each.code == good_news
        and each.device == finding.device
        and each.observation.last_at >= finding.observation.last_at
        for each in findings
    )


def watched(findings: list[Finding]) -> bool:
    """Whether an incident that needs nothing still raises suspicion."""
    return any(_suspicious(each, findings) for each in findings)
