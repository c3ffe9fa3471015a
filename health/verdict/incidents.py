"""What an incident calls for: one action, with the rule, the evidence and the way back."""

import msgspec
from msgspec.structs import replace

from health.actions import Action, Drain, gravest
from health.events import ActionTaken, PciAddress, Quantity, Source
from health.fold.history import History
from health.fold.incident import Incident
from health.judge.judgement import Judgement
from health.verdict import way_back
from health.verdict.findings import Finding, Role, Surroundings
from health.verdict.topology import Topology
from health.verdict.way_back import Closed

MAX_EVIDENCE = 32


class Evidence(msgspec.Struct, frozen=True):
    """One thing a verdict rests on."""

    at: float
    source: Source
    code: str
    device: PciAddress | None
    count: int
    role: Role
    rule: str
    why: str
    text: str
    slices: tuple[int, ...] = ()
    """GPU instances named, when the GPU is divided."""
    details: tuple[str, ...] = ()


class IncidentVerdict(msgspec.Struct, frozen=True):
    """What an incident calls for."""

    id: str
    boot: str
    opened_at: float
    last_at: float
    action: Action
    rule: str
    why: str
    root: str
    """The code that the rest follows from."""
    devices: tuple[PciAddress, ...]
    to_act_on: tuple[PciAddress, ...]
    """The GPUs that the action concerns; none = the whole node."""
    reset_domain: tuple[PciAddress, ...]
    drain: Drain
    watched: bool
    way_back: str
    closed: Closed | None
    findings: tuple[Finding, ...]
    evidence: tuple[Evidence, ...]


def judge_incident(
    incident: Incident, surroundings: Surroundings, history: History, topology: Topology
) -> IncidentVerdict:
    """The verdict on one incident, as of the history's last moment."""
    findings = by_number(surroundings.findings(incident), incident, history)
    action = gravest([each.action for each in findings])
    root = _root(findings, action)
    rule, why = root.rule, root.why
    devices = _acted_on(findings, action)
    if action is Action.RESET_GPU:
        action, rule, why = _harder(incident, devices, history, topology, (rule, why))
    domain = sorted({each for device in devices for each in topology.reset_domain(device)})
    return IncidentVerdict(
        id=incident.id,
        boot=incident.boot,
        opened_at=incident.opened_at,
        last_at=incident.last_at,
        action=action,
        rule=rule,
        why=why,
        root=root.code,
        devices=tuple(incident.devices),
        to_act_on=tuple(devices),
        reset_domain=tuple(domain) if action is Action.RESET_GPU else (),
        drain=_drain(findings, action),
        watched=way_back.watched(findings),
        way_back=way_back.WORDS[action],
        closed=way_back.closed(incident, findings, action, history),
        findings=tuple(findings),
        evidence=evidence(findings),
    )


def by_number(findings: list[Finding], incident: Incident, history: History) -> list[Finding]:
    """Lays the driver's own recovery action over the faults it speaks about."""
    result = []
    for finding in findings:
        newest = _number(finding.device, incident, history)
        judgement = finding.observation.judgement
        if newest is None:
            result.append(finding)
        elif judgement.by_number:
            stale = judgement.variant != newest.variant
            result.append(
                replace(finding, action=Action.NONE, why=f"{finding.why}; changed since")
                if stale
                else finding
            )
        elif _left_to_driver(finding):
            result.append(
                replace(
                    finding,
                    action=newest.action,
                    rule=newest.rule,
                    why=f"{finding.why}; {newest.why}",
                )
            )
        else:
            result.append(finding)
    return result


def _left_to_driver(finding: Finding) -> bool:
    judgement = finding.observation.judgement
    settled_otherwise = finding.rule != judgement.rule or judgement.rule == "spares_exhausted"
    return judgement.follows_driver and finding.action.concerns_hardware and not settled_otherwise


def _number(device: PciAddress | None, incident: Incident, history: History) -> Judgement | None:
    """The driver's newest wish for a device within an incident, None when it has none."""
    told = [
        each
        for each in incident.of(device)
        if each.judgement.by_number and each.judgement.variant != "0"
    ]
    if told:
        return max(told, key=lambda each: each.last_at).judgement
    number = history.readings.get((device, Quantity.RECOVERY_ACTION))
    recent = number is not None and number.boot == incident.boot
    if number is None or not recent or number.since < incident.opened_at:
        return None
    return number.judgement if number.judgement is not None and number.value != 0 else None


def _root(findings: list[Finding], action: Action) -> Finding:
    """The earliest of the gravest that nothing else explains."""

    def order(finding: Finding) -> tuple[bool, bool, float]:
        observation = finding.observation
        return finding.action is not action, finding.role is not Role.FAULT, observation.first_at

    return min(findings, key=order)


def _acted_on(findings: list[Finding], action: Action) -> list[PciAddress]:
    if action is Action.NONE:
        return []
    devices = [
        each.device
        for each in findings
        if each.action is action and each.device is not None and each.code.startswith("xid:")
    ]
    return sorted(set(devices))


def _harder(
    incident: Incident,
    devices: list[PciAddress],
    history: History,
    topology: Topology,
    now: tuple[str, str],
) -> tuple[Action, str, str]:
    """A reset that was tried and failed, or would take others' jobs along, becomes a reboot."""
    for at, repair in history.repairs:
        tried = isinstance(repair, ActionTaken) and repair.action is Action.RESET_GPU
        failed = tried and not getattr(repair, "succeeded", True) and at >= incident.opened_at
        if failed and (repair.device is None or repair.device in devices):
            return Action.REBOOT_NODE, "reset_failed", f"{now[1]}; a reset was tried and failed"
    if any(topology.others_busy(device) for device in devices):
        why = f"{now[1]}; these GPUs reset only together, and others have jobs"
        return Action.REBOOT_NODE, "reset_domain_busy", why
    return Action.RESET_GPU, *now


def _drain(findings: list[Finding], action: Action) -> Drain:
    asked = [each.observation.judgement.drain for each in findings if each.action is action]
    return next((drain for drain in asked if drain is not Drain.NONE), Drain.NONE)


def evidence(findings: list[Finding]) -> tuple[Evidence, ...]:
    """What a verdict rests on, gravest first, then in the order of time; as much as is useful."""
    chosen = sorted(findings, key=lambda each: (-each.action.severity, each.observation.first_at))[
        :MAX_EVIDENCE
    ]
    return tuple(
        Evidence(
            at=each.observation.first_at,
            source=each.observation.source,
            code=each.code,
            device=each.device,
            count=each.observation.count,
            role=each.role,
            rule=each.rule,
            why=each.why,
            text=each.observation.first_text,
            slices=tuple(each.observation.slices),
            details=tuple(each.observation.details),
        )
        for each in sorted(chosen, key=lambda each: each.observation.first_at)
    )
