"""Between the objects of the API and the values that remediation is decided on. Pure.

`spec.remediation` holds what the contract names; what only the operator needs to go on after a
restart lies beside it in one annotation, written in the same request.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from clusterops.api import names
from clusterops.api.node_health import RemediationState as State
from clusterops.api.node_health import Rung, Verdict
from clusterops.core.observed import HealthWord
from clusterops.core.remediation_budget import Attempt, FleetNode
from clusterops.core.remediation_ladder import rung_for
from clusterops.core.remediation_view import Execution, NodeView, OpenIncident, Proof, Remedy

GPU_RESOURCE = "nvidia.com/gpu"
RACK_LABELS = ("topology.kubernetes.io/rack", "topology.kubernetes.io/zone")
KEPT_ATTEMPTS = 40

Json = dict[str, Any]


def seconds(stamp: Any) -> float:
    """A timestamp of the API in seconds since 1970; 0 for what is none."""
    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def stamp(moment: float) -> str:
    """The other way round."""
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


def incidents(health: Mapping[str, Any]) -> tuple[OpenIncident, ...]:
    """The open incidents, and one for each reading that alone calls for something."""
    status = health.get("status") or {}
    found = [_incident(each) for each in status.get("incidents") or () if "closedAt" not in each]
    covered = {(gpu, each.verdict) for each in found for gpu in each.gpus}
    for gpu in status.get("gpus") or ():
        verdict = _verdict(gpu.get("verdict"))
        name = str(gpu.get("uuid", ""))
        if rung_for(verdict) is not None and (name, verdict) not in covered:
            found.append(_of_readings(verdict, name, gpu.get("evidence") or ()))
    verdict = _verdict(status.get("verdict"))
    if rung_for(verdict) is not None and all(each.verdict is not verdict for each in found):
        found.append(_of_readings(verdict, "", status.get("evidence") or ()))
    together = {
        str(gpu.get("uuid", "")): [str(other) for other in gpu.get("resetsWith") or ()]
        for gpu in status.get("gpus") or ()
    }
    return tuple(_with_tied(each, together) for each in found)


def _with_tied(incident: OpenIncident, together: Mapping[str, list[str]]) -> OpenIncident:
    """The incident with all that a reset concerns, when that is more than the GPUs themselves."""
    tied = {other for gpu in incident.gpus for other in together.get(gpu, ())}
    return replace(incident, resets=tuple(sorted({*incident.gpus, *tied}))) if tied else incident


def concerns(health: Mapping[str, Any]) -> bool:
    """Whether anything is to be done about a node, or being done."""
    said = word(health)
    return said.faulty or said.under_way


def word(health: Mapping[str, Any]) -> HealthWord:
    """What a node's daemon last said, and whether it is being answered."""
    told = (health.get("status") or {}).get("heartbeatAt")
    held = remedy(health)
    return HealthWord(
        heard_at=datetime.fromtimestamp(seconds(told), UTC) if told else None,
        faulty=any(rung_for(each.verdict) is not None for each in incidents(health)),
        under_way=held is not None and held.state is not State.DONE,
    )


def _incident(raw: Mapping[str, Any]) -> OpenIncident:
    name = str(raw.get("id", ""))
    return OpenIncident(
        id=name,
        verdict=_verdict(raw.get("verdict")),
        opened_at=seconds(raw.get("openedAt")),
        cause=name.rpartition("-")[0] or name,
        boot_id=str(raw.get("bootId") or ""),
        gpus=tuple(str(gpu) for gpu in raw.get("gpus") or ()),
    )


def _of_readings(verdict: Verdict, gpu: str, evidence: Iterable[Mapping[str, Any]]) -> OpenIncident:
    """A condition that NVML tells and no incident: it has the same name as long as it lasts."""
    moments = [seconds(each.get("observedAt")) for each in evidence]
    return OpenIncident(
        id=f"nvml-{verdict.value.lower()}-{digest(gpu)}",
        verdict=verdict,
        opened_at=min(moments, default=0.0),
        cause=f"nvml-{verdict.value.lower()}",
        gpus=(gpu,) if gpu else (),
    )


def _verdict(word: Any) -> Verdict:
    try:
        return Verdict(word)
    except ValueError:
        return Verdict.WATCH  # a newer daemon's word: never a reason to act


def digest(text: str) -> str:
    """A short name for any text."""
    return hashlib.blake2s(text.encode(), digest_size=5).hexdigest()


def remedy(health: Mapping[str, Any]) -> Remedy | None:
    """The remediation under way as it was written down, None when there is none."""
    raw = (health.get("spec") or {}).get("remediation")
    if not raw:
        return None
    beside = _annotation(health)
    expires = raw.get("expires")
    return Remedy(
        incident=raw["incident"],
        cause=str(beside.get("cause", "")),
        boot_id=str(raw.get("bootId") or ""),
        rung=Rung(raw["rung"]),
        state=State(raw.get("state", State.PLANNED)),
        expires=seconds(expires) if expires else None,
        begun_at=float(beside.get("begunAt", 0.0)),
        executed_at=beside.get("executedAt"),
        execution=Execution(beside.get("execution", Execution.NOT_STARTED)),
        ticket=raw.get("ticket"),
    )


def attempts(health: Mapping[str, Any]) -> tuple[Attempt, ...]:
    """What was begun on the node, oldest first."""
    node = health["metadata"]["name"]
    return tuple(
        Attempt(node, a["incident"], a["cause"], Rung(a["rung"]), a["at"], a["failed"])
        for a in _annotation(health).get("attempts", ())
    )


def _annotation(health: Mapping[str, Any]) -> dict[str, Any]:
    text = (health["metadata"].get("annotations") or {}).get(names.ANNOTATION_REMEDIATION)
    try:
        decoded = json.loads(text) if text else {}
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def patch(health: Mapping[str, Any], written: Remedy, begun: tuple[Attempt, ...]) -> dict[str, Any]:
    """The merge patch that writes a remediation down, over the version that was decided on."""
    kept = [
        {"incident": a.incident, "cause": a.cause, "rung": a.rung.value, "at": a.at, "failed": a.failed}
        for a in begun[-KEPT_ATTEMPTS:]
    ]  # fmt: skip
    beside = {
        "cause": written.cause,
        "begunAt": written.begun_at,
        "executedAt": written.executed_at,
        "execution": written.execution.value,
        "attempts": kept,
    }
    remediation = {
        "incident": written.incident,
        "bootId": written.boot_id,
        "rung": written.rung.value,
        "state": written.state.value,
        "expires": stamp(written.expires) if written.expires is not None else None,
        "ticket": written.ticket,
    }
    text = json.dumps(beside, separators=(",", ":"))
    return {
        "metadata": {
            "resourceVersion": health["metadata"]["resourceVersion"],
            "annotations": {names.ANNOTATION_REMEDIATION: text},
        },
        "spec": {"remediation": remediation},
    }


def gpus(node: Mapping[str, Any]) -> int:
    """How many GPUs a node has to give."""
    status = node.get("status") or {}
    amounts = status.get("capacity") or status.get("allocatable") or {}
    try:
        return int(amounts.get(GPU_RESOURCE, 0))
    except ValueError:
        return 0


def fleet_node(node: Mapping[str, Any], health: Mapping[str, Any] | None) -> FleetNode:
    """A node as the budgets see it."""
    labels = node["metadata"].get("labels") or {}
    rack = next((labels[label] for label in RACK_LABELS if label in labels), "")
    held = remedy(health) if health is not None else None
    cause = ""
    if (held is not None and held.state is not State.DONE) or ours(node) is not None:
        cause = (held.cause if held is not None else "") or "unknown"
    return FleetNode(node["metadata"]["name"], gpus(node), rack, cause)


def ours(node: Mapping[str, Any]) -> Json | None:
    """Our taint, None when the node has none. A cordon or any other taint is somebody else's."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return next((taint for taint in taints if taint.get("key") == names.TAINT_HEALTH), None)


def notice(node: Mapping[str, Any]) -> str | None:
    """The seconds that jobs on the node were left to save, None when nobody said."""
    return (node["metadata"].get("annotations") or {}).get(names.ANNOTATION_NOTICE)


def taints(node: Mapping[str, Any], value: str | None) -> list[Json]:
    """All taints of the node with ours as it should be, None = without it; others' are kept."""
    others = [
        taint
        for taint in (node.get("spec") or {}).get("taints") or ()
        if taint.get("key") != names.TAINT_HEALTH
    ]
    if value is None:
        return others
    return [*others, {"key": names.TAINT_HEALTH, "value": value, "effect": "NoSchedule"}]


def view(
    node: Mapping[str, Any],
    health: Mapping[str, Any],
    *,
    proof: Proof,
    jobs: tuple[str, ...],
) -> NodeView:
    """All that is known of a node."""
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return NodeView(
        name=node["metadata"]["name"],
        boot_id=str(info.get("bootID") or ""),
        incidents=incidents(health),
        remedy=remedy(health),
        proof=proof,
        tainted=ours(node) is not None,
        jobs=jobs,
        attempts=attempts(health),
    )
