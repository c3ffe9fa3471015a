"""NodeHealth objects as rows for people and for scripts. Pure: ages are counted from a moment given."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from clusterops.api import names
from clusterops.cli.output import age, parse_time

NODE_COLUMNS = ("NODE", "VERDICT", "SINCE", "GPUS", "ACTION", "STATE", "TICKET", "WATCHED", "WHY")
INCIDENT_COLUMNS = ("NODE", "OPENED", "CALLS_FOR", "XID", "GPUS", "ENDED", "WHAT", "ID")
TICKET_COLUMNS = ("NODE", "TICKET", "INCIDENT", "STATE", "GPUS", "SERIALS")
STALE_SECONDS = 180.0
"""A daemon writes once a minute at least; after three it is not there any more."""

Json = Mapping[str, Any]
Row = dict[str, Any]
Pair = tuple[Json, Json | None]


def node_rows(seen: Iterable[Pair], now: datetime | None = None) -> list[Row]:
    """One row a node."""
    now = now or datetime.now(UTC)
    return [_node(health, node, now) for health, node in seen]


def _node(health: Json, node: Json | None, now: datetime) -> Row:
    status = health.get("status") or {}
    remedy = (health.get("spec") or {}).get("remediation") or {}
    gpus = status.get("gpus") or ()
    well = sum(gpu.get("verdict") in ("Healthy", "Watch") for gpu in gpus)
    under_way = remedy.get("state") not in (None, "Done")
    return {
        "node": str(health["metadata"]["name"]),
        "verdict": str(status.get("verdict") or "Unknown"),
        "since": age(status.get("since"), now) if status.get("since") else "",
        "gpus": _gpus(node, well, len(gpus)),
        "action": str(remedy["rung"]) if under_way else "",
        "state": str(remedy["state"]) if under_way else "",
        "ticket": str(remedy.get("ticket") or "") if under_way else "",
        "watched": _watched(status, now),
        "why": str(status.get("message") or ""),
        "tainted": _tainted(node),
    }


def _gpus(node: Json | None, well: int, told: int) -> str:
    """How many GPUs nothing is to be done about, of all; a daemon that reads only the kernel's log
    knows no more than those that were named there.
    """
    capacity = ((node or {}).get("status") or {}).get("capacity") or {}
    number = str(capacity.get(names.RESOURCE_GPU) or "")
    total = max(int(number) if number.isdigit() else 0, told)
    return f"{total - (told - well)}/{total}"


def _watched(status: Json, now: datetime) -> str:
    """Whether somebody looks: a silent daemon is neither good news nor bad."""
    written = parse_time(status.get("heartbeatAt"))
    if written is None or (now - written).total_seconds() > STALE_SECONDS:
        return "silent"
    watching: Json = next(
        (each for each in status.get("conditions") or () if each.get("type") == "Watching"), {}
    )
    return "yes" if watching.get("status") == "True" else str(watching.get("reason") or "partly")


def _tainted(node: Json | None) -> bool:
    taints = ((node or {}).get("spec") or {}).get("taints") or ()
    return any(taint.get("key") == names.TAINT_HEALTH for taint in taints)


def next_command(rows: list[Row]) -> str:
    """What a person asks next about the nodes that were shown; empty when all is well."""
    if any(row["ticket"] for row in rows):
        return "clusterops health tickets"
    ill = [row["node"] for row in rows if row["verdict"] not in ("Healthy", "Unknown")]
    return f"clusterops health incidents {ill[0]}" if ill else ""


def incident_rows(seen: Iterable[Pair], *, ended: bool, now: datetime | None = None) -> list[Row]:
    """One row an incident, oldest first on each node; those that ended only when asked for."""
    now = now or datetime.now(UTC)
    rows = []
    for health, _ in seen:
        status = health.get("status") or {}
        for each in status.get("incidents") or ():
            if each.get("closedAt") and not ended:
                continue
            root = str(each.get("id") or "").split("-")
            rows.append(
                {
                    "node": str(health["metadata"]["name"]),
                    "id": str(each.get("id") or ""),
                    "opened": age(each.get("openedAt"), now),
                    "calls_for": str(each.get("verdict") or ""),
                    "xid": int(root[1]) if root[0] == "xid" and root[1:2] and root[1].isdigit() else None,
                    "gpus": ", ".join(str(gpu) for gpu in each.get("gpus") or ()),
                    "ended": age(each["closedAt"], now) if each.get("closedAt") else "",
                    "what": str(each.get("message") or ""),
                }
            )  # fmt: skip
    return rows


def ticket_rows(seen: Iterable[Pair]) -> list[Row]:
    """One row a ticket that is waited for."""
    rows = []
    for health, _ in seen:
        remedy = (health.get("spec") or {}).get("remediation") or {}
        if not remedy.get("ticket") or remedy.get("state") == "Done":
            continue
        status = health.get("status") or {}
        incident: Json = next(
            (i for i in status.get("incidents") or () if i.get("id") == remedy.get("incident")), {}
        )
        concerned = [str(gpu) for gpu in incident.get("gpus") or ()]
        serials = [
            str(gpu.get("serial"))
            for gpu in status.get("gpus") or ()
            if gpu.get("uuid") in concerned and gpu.get("serial")
        ]
        rows.append(
            {
                "node": str(health["metadata"]["name"]),
                "ticket": str(remedy["ticket"]),
                "incident": str(remedy.get("incident") or ""),
                "state": str(remedy.get("state") or ""),
                "gpus": ", ".join(concerned),
                "serials": ", ".join(serials),
            }
        )
    return rows
