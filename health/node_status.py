"""The verdict as the status of a NodeHealth object. Pure: times and identities are handed in.

Texts come from a kernel log, which may hold anything: they are escaped and bounded here.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from health.actions import Standing, standing
from health.verdict.incidents import Evidence, IncidentVerdict
from health.verdict.node import Condition, GpuVerdict, NodeVerdict

MAX_TEXT = 500
MAX_INCIDENTS = 64
MAX_EVIDENCE = 16
MAX_GPUS = 64
RECENT_SECONDS = 86_400.0
"""Incidents that ended are shown for so long."""

Wall = Callable[[float], float]


def status(
    verdict: NodeVerdict,
    *,
    since: float,
    now: float,
    wall: Wall,
    conditions: list[dict[str, Any]],
    generation: int | None = None,
) -> dict[str, Any]:
    """The whole status. `since` and `now` are wall times, `wall` gives that of any other moment."""
    result: dict[str, Any] = {
        "verdict": verdict.standing.value,
        "since": timestamp(since),
        "heartbeatAt": timestamp(now),
        "message": printable(verdict.why, 2000),
        "gpus": [_gpu(each, verdict, wall) for each in verdict.gpus[:MAX_GPUS]],
        "evidence": _node_evidence(verdict, wall),
        "incidents": _incidents(verdict, now, wall),
        "conditions": conditions,
    }
    if generation is not None:
        result["observedGeneration"] = generation
    return result


def timestamp(wall: float) -> str:
    """RFC 3339 in UTC to the millisecond; a clock beyond all calendars gives their ends."""
    bounded = min(max(wall, 0.0), 253_402_300_799.0)
    text = datetime.fromtimestamp(bounded, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def printable(text: str, longest: int = MAX_TEXT) -> str:
    """Foreign text for a status: control characters escaped, lone surrogates too, bounded."""
    short = text if len(text) <= longest else text[:longest] + "..."
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in short
    )


def gpu_name(device: str, uuid: str | None) -> str:
    """What a GPU is called: its UUID, or its place while the driver has not told it."""
    return uuid or f"pci-{device}"


def _gpu(gpu: GpuVerdict, verdict: NodeVerdict, wall: Wall) -> dict[str, Any]:
    result: dict[str, Any] = {
        "uuid": gpu_name(str(gpu.device), gpu.uuid),
        "busId": str(gpu.device),
        "verdict": gpu.standing.value,
    }
    board = {"serial": gpu.serial, "vbios": gpu.vbios, "driver": gpu.driver}
    result |= {name: printable(text, 60) for name, text in board.items() if text}
    if gpu.resets_with:
        uuids = {each.device: each.uuid for each in verdict.gpus}
        result["resetsWith"] = [
            gpu_name(str(each), uuids.get(each)) for each in gpu.resets_with[:MAX_GPUS]
        ]
    if gpu.slot:
        result["slot"] = printable(gpu.slot, 120)
    about = [
        (each.at, _evidence(each, wall))
        for incident in verdict.open
        if incident.id in gpu.incidents
        for each in incident.evidence
        if each.device == gpu.device
    ]
    about += [
        (each.since, _condition(each, wall))
        for each in verdict.conditions
        if each.device == gpu.device
    ]
    newest_last = sorted(about, key=lambda each: each[0])
    shown = [each for _, each in newest_last]
    if gpu.grown and newest_last:
        # Beside the fault and never instead of it.
        shown.append(_counters(gpu, shown[-1]["observedAt"]))
    result["evidence"] = shown[-MAX_EVIDENCE:]
    return result


def _counters(gpu: GpuVerdict, observed_at: str) -> dict[str, Any]:
    """What the fault did to the GPU's error counters: before and after, for the vendor."""
    changes = ", ".join(f"{name} {before} -> {now}" for name, before, now in gpu.grown)
    text = printable(f"counters before the fault and now: {changes}", 2000)
    return {"source": "nvml", "observedAt": observed_at, "text": text}


def _node_evidence(verdict: NodeVerdict, wall: Wall) -> list[dict[str, Any]]:
    about = [
        (each.at, _evidence(each, wall))
        for incident in verdict.open
        for each in incident.evidence
        if each.device is None
    ]
    about += [
        (each.since, _condition(each, wall)) for each in verdict.conditions if each.device is None
    ]
    return [each for _, each in sorted(about, key=lambda each: each[0])[-MAX_EVIDENCE:]]


def _evidence(each: Evidence, wall: Wall) -> dict[str, Any]:
    kind, _, number = each.code.partition(":")
    result: dict[str, Any] = {
        "source": each.source.value,
        "observedAt": timestamp(wall(each.at)),
        "count": max(1, each.count),
        "text": printable(f"{each.why}: {each.text}" if each.text else each.why),
    }
    if kind == "xid" and number.isdigit():
        result["code"] = int(number)
    return result


def _condition(each: Condition, wall: Wall) -> dict[str, Any]:
    return {
        "source": "nvml",
        "observedAt": timestamp(wall(each.since)),
        "text": printable(each.why),
    }


def _incidents(verdict: NodeVerdict, now: float, wall: Wall) -> list[dict[str, Any]]:
    recent = [
        each
        for each in verdict.incidents
        if each.closed is None or now - wall(each.closed.at) < RECENT_SECONDS
    ]
    # Open ones first when there are too many, newest of the rest.
    chosen = sorted(recent, key=lambda each: (each.closed is not None, -each.last_at))
    shown = sorted(chosen[:MAX_INCIDENTS], key=lambda each: (each.opened_at, each.id))
    names = {gpu.device: gpu_name(str(gpu.device), gpu.uuid) for gpu in verdict.gpus}
    return [_incident(each, names, wall) for each in shown]


def _incident(each: IncidentVerdict, names: dict[Any, str], wall: Wall) -> dict[str, Any]:
    stands: Standing = standing(each.action, watched=each.watched)
    result: dict[str, Any] = {
        "id": each.id,
        "verdict": stands.value,
        "openedAt": timestamp(wall(each.opened_at)),
        "gpus": [names.get(device, gpu_name(str(device), None)) for device in each.devices],
        "message": printable(f"{each.root}: {each.why} (rule {each.rule})"),
    }
    if each.boot:
        result["bootId"] = printable(each.boot, 60)
    if each.closed is not None:
        result["closedAt"] = timestamp(wall(each.closed.at))
    return result
