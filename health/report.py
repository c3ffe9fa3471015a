"""Verdicts as plain values for JSON and tables. Texts are as they came: whoever prints them escapes."""

from typing import Any

from health.verdict.incidents import Evidence, IncidentVerdict
from health.verdict.node import NodeVerdict

COLUMNS = ("WHEN", "ACTION", "GPUS", "ROOT", "RULE", "EVENTS", "STATE", "WHY")


def incident(verdict: IncidentVerdict) -> dict[str, Any]:
    """One incident as a JSON object."""
    return {
        "incident": verdict.id,
        "boot": verdict.boot,
        "openedAt": round(verdict.opened_at, 6),
        "lastAt": round(verdict.last_at, 6),
        "action": verdict.action.value,
        "rule": verdict.rule,
        "why": verdict.why,
        "root": verdict.root,
        "gpus": [str(device) for device in verdict.devices],
        "actOn": [str(device) for device in verdict.to_act_on],
        "resetDomain": [str(device) for device in verdict.reset_domain],
        "drain": verdict.drain.value,
        "open": verdict.closed is None,
        "closed": None
        if verdict.closed is None
        else {"at": round(verdict.closed.at, 6), "because": verdict.closed.because},
        "wayBack": verdict.way_back,
        "evidence": [_evidence(each) for each in verdict.evidence],
    }


def _evidence(each: Evidence) -> dict[str, Any]:
    return {
        "at": round(each.at, 6),
        "source": each.source.value,
        "code": each.code,
        "gpu": str(each.device) if each.device is not None else None,
        "count": each.count,
        "role": each.role.value,
        "rule": each.rule,
        "why": each.why,
        "text": each.text,
        "slices": list(each.slices),
        "details": list(each.details),
    }


def rows(verdict: NodeVerdict) -> list[list[str]]:
    """The incidents of a node as the rows of a table."""
    return [
        [
            f"{each.opened_at:.1f}",
            each.action.value,
            ", ".join(str(device) for device in each.devices) or "-",
            each.root,
            each.rule,
            str(sum(finding.observation.count for finding in each.findings)),
            "open" if each.closed is None else each.closed.because,
            each.why,
        ]
        for each in verdict.incidents
    ]


def summary(verdict: NodeVerdict) -> str:
    """The verdict on the node in a sentence."""
    open_now = len(verdict.open)
    number = f"{open_now} open incident{'' if open_now == 1 else 's'} of {len(verdict.incidents)}"
    return f"{verdict.standing.value}: {verdict.why} ({number})"


def counted(verdict: NodeVerdict) -> str:
    """What was seen and what was passed over, with the reasons."""
    return ", ".join(f"{name} {count}" for name, count in verdict.counts.items()) or "nothing"
