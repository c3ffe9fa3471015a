"""A ticket as text for people: what mail and chat services carry. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from clusterops.operator.tickets.port import Ticket

MAX_LINES = 400
_BOARD = ("uuid", "serial", "slot", "busId", "vbios", "driver", "verdict")


def subject(ticket: Ticket) -> str:
    """One line, with the key that tells a repetition."""
    return f"[{ticket.key}] {_one_line(ticket.title)}"


def body(ticket: Ticket) -> str:
    """The evidence, ordered as a vendor asks for it."""
    bundle = ticket.bundle
    incident = bundle.get("incident") or {}
    lines = [
        f"Node: {_one_line(bundle.get('node', ''))}",
        f"Fault: {_one_line(bundle.get('class', ''))}",
        f"Incident: {_one_line(incident.get('id', ''))}"
        f" opened {_one_line(incident.get('openedAt', 'at an unknown time'))}",
    ]
    if incident.get("message"):
        lines.append(f"What happened: {_one_line(incident['message'])}")
    for gpu in bundle.get("gpus") or ():
        lines += ["", "GPU:", *_named(gpu, _BOARD)]
    lines += ["", "Evidence, oldest first:", *_evidence(bundle.get("evidence") or ())]
    lines += ["", "Tried:", *_tried(bundle.get("tried") or ())]
    return "\n".join([*lines[:MAX_LINES], "", f"Ticket: {ticket.key}", ""])


def _named(values: Mapping[str, Any], order: Iterable[str]) -> list[str]:
    return [f"  {name}: {_one_line(values[name])}" for name in order if values.get(name)]


def _evidence(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    lines = [
        f"  {_one_line(row.get('observedAt', ''))} {_one_line(row.get('source', ''))}"
        f"{' x' + str(row['count']) if row.get('count', 1) != 1 else ''}: "
        f"{_one_line(row.get('text', ''))}"
        for row in rows
    ]
    return lines or ["  none"]


def _tried(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    lines = [
        f"  {_one_line(row.get('rung', ''))} {'failed' if row.get('failed') else 'was begun'}"
        for row in rows
    ]
    return lines or ["  nothing"]


def _one_line(text: Any) -> str:
    return "".join(c if c.isprintable() else " " for c in str(text))
