"""The columns that `kubectl get` shows for built-in kinds other than pods."""

from typing import Any

from clusterops.apiserver.ages import age
from clusterops.apiserver.columns import NAME, Cell, Column, age_column

Obj = dict[str, Any]
NONE = "<none>"


def _column(name: str, cell: Cell, type_: str = "string", *, wide: bool = False) -> Column:
    return Column(name, type_, cell, priority=1 if wide else 0)


def _at(obj: Obj, *path: str, missing: Any = "") -> Any:
    value: Any = obj
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return missing if value is None or value == "" else value


def _count(*fields: str) -> Cell:
    return lambda obj, _: sum(len(obj.get(field) or ()) for field in fields)


def _node_status(node: Obj, _now: float) -> str:
    conditions = {c.get("type"): c.get("status") for c in _at(node, "status", "conditions") or ()}
    words = {"True": "Ready", "False": "NotReady"}
    status = words.get(conditions.get("Ready", ""), "Unknown")
    if "Ready" in conditions and conditions["Ready"] == "Unknown":
        status = "NotReady"
    if _at(node, "spec", "unschedulable"):
        status += ",SchedulingDisabled"
    return status


def _node_roles(node: Obj, _now: float) -> str:
    labels = node["metadata"].get("labels") or {}
    roles = {
        key.removeprefix("node-role.kubernetes.io/")
        for key in labels
        if key.startswith("node-role.kubernetes.io/")
    }
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return ",".join(sorted(roles - {""})) or NONE


def _node_address(kind: str) -> Cell:
    def cell(node: Obj, _now: float) -> str:
        for address in _at(node, "status", "addresses") or ():
            if address.get("type") == kind:
                return str(address.get("address", NONE))
        return NONE

    return cell


def _node_info(field: str) -> Cell:
    return lambda node, _: _at(node, "status", "nodeInfo", field, missing="<unknown>")


NODES = (
    NAME,
    _column("Status", _node_status),
    _column("Roles", _node_roles),
    age_column(),
    _column("Version", lambda node, _: _at(node, "status", "nodeInfo", "kubeletVersion")),
    _column("Internal-IP", _node_address("InternalIP"), wide=True),
    _column("External-IP", _node_address("ExternalIP"), wide=True),
    _column("OS-Image", _node_info("osImage"), wide=True),
    _column("Kernel-Version", _node_info("kernelVersion"), wide=True),
    _column("Container-Runtime", _node_info("containerRuntimeVersion"), wide=True),
)

NAMESPACES = (
    NAME,
    _column("Status", lambda obj, _: _at(obj, "status", "phase")),
    age_column(),
)


def _event_object(event: Obj, _now: float) -> str:
    about = event.get("involvedObject") or {}
    kind = str(about.get("kind", "")).lower()
    return f"{kind}/{about.get('name', '')}" if about.get("name") else kind


def _event_first(event: Obj, now: float) -> str:
    return age(event.get("firstTimestamp") or event.get("eventTime"), now)


def _event_last(event: Obj, now: float) -> str:
    series = event.get("series") or {}
    last = series.get("lastObservedTime") or event.get("lastTimestamp")
    if last is None:
        return _event_first(event, now)
    count = series.get("count") or event.get("count") or 1
    if count > 1 and event.get("firstTimestamp"):
        return f"{age(last, now)} (x{count} over {_event_first(event, now)})"
    return age(last, now)


def _event_source(event: Obj, _now: float) -> str:
    component = _at(event, "source", "component") or _at(event, "reportingComponent")
    host = _at(event, "source", "host") or _at(event, "reportingInstance")
    return f"{component}, {host}" if host else str(component)


EVENTS = (
    _column("Last Seen", _event_last),
    _column("Type", lambda obj, _: obj.get("type", "")),
    _column("Reason", lambda obj, _: obj.get("reason", "")),
    _column("Object", _event_object),
    _column("Subobject", lambda obj, _: _at(obj, "involvedObject", "fieldPath"), wide=True),
    _column("Source", _event_source, wide=True),
    _column("Message", lambda obj, _: str(obj.get("message", "")).strip()),
    _column("First Seen", _event_first, wide=True),
    _column("Count", lambda obj, _: obj.get("count") or 1, wide=True),
    _column("Name", lambda obj, _: obj["metadata"].get("name", ""), wide=True),
)


def _ports(service: Obj, _now: float) -> str:
    shown = []
    for port in _at(service, "spec", "ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or NONE


def _external_address(service: Obj, _now: float) -> str:
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    return ",".join(spec.get("externalIPs") or ()) or NONE


def _selector(service: Obj, _now: float) -> str:
    selector = _at(service, "spec", "selector") or {}
    return ",".join(f"{key}={selector[key]}" for key in sorted(selector)) or NONE


SERVICES = (
    NAME,
    _column("Type", lambda obj, _: _at(obj, "spec", "type")),
    _column("Cluster-IP", lambda obj, _: _at(obj, "spec", "clusterIP", missing=NONE)),
    _column("External-IP", _external_address),
    _column("Port(s)", _ports),
    age_column(),
    _column("Selector", _selector, wide=True),
)

SECRETS = (
    NAME,
    _column("Type", lambda obj, _: obj.get("type", "")),
    _column("Data", _count("data"), "integer"),
    age_column(),
)
CONFIG_MAPS = (NAME, _column("Data", _count("data", "binaryData"), "integer"), age_column())
SERVICE_ACCOUNTS = (NAME, _column("Secrets", _count("secrets"), "integer"), age_column())
LEASES = (
    NAME,
    _column("Holder", lambda obj, _: _at(obj, "spec", "holderIdentity")),
    age_column(),
)
CUSTOM_RESOURCE_DEFINITIONS = (
    NAME,
    Column(
        "Created At", "date", lambda obj, _: obj["metadata"].get("creationTimestamp"), priority=0
    ),
)
