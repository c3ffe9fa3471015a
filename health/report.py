"""Verdicts as plain values for JSON and tables. Texts are as they came: whoever prints them escapes."""

from datetime import UTC, datetime
from typing import Any

from health.verdict.incidents import Evidence, IncidentVerdict
from health.verdict.node import NodeVerdict

_LONGEST_UPTIME = 20 * 365 * 86_400.0
_NO_YEAR = 2000

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


def moment(seconds: float) -> str:
    """A place on a log's line of time as its lines would say it.

    That line of time counts from the boot where the log tells the uptime, and is the log's own wall
    clock otherwise; a log without years has its moments in the year 2000 (`health.parse.stamps`).
    """
    if abs(seconds) < _LONGEST_UPTIME:
        return f"[{seconds:.3f}]"
    try:
        when = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError):  # a date that only a broken line can have
        return f"{seconds:.1f}"
    return f"{when:%b %d %H:%M:%S}" if when.year == _NO_YEAR else f"{when:%Y-%m-%d %H:%M:%SZ}"


def rows(verdict: NodeVerdict) -> list[list[str]]:
    """The incidents of a node as the rows of a table."""
    return [
        [
            moment(each.opened_at),
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
    told = (f"{name} {count}" for name, count in verdict.counts.items() if count)
    return ", ".join(told) or "nothing"
