"""Defaults and checks of built-in kinds that a schema cannot say.

`finish_*` run after the schema's defaults, in place; `check_*` run after the schema's checks, on
valid types, and return causes in Kubernetes' words.
"""

import base64
from collections.abc import Iterator
from typing import Any

from clusterops.apiserver.causes import (
    Cause,
    duplicate,
    forbidden,
    invalid,
    required,
)
from clusterops.apiserver.metadata import LABEL, name_problem, validate_labels

Obj = dict[str, Any]
_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
    "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_KEY_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._")


def finish_pod(pod: Obj) -> None:
    """Pull policy by image tag, requests from limits, the quality-of-service class."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    for container in _containers(spec):
        if "imagePullPolicy" not in container and isinstance(container.get("image"), str):
            container["imagePullPolicy"] = _pull_policy(container["image"])
        resources = container.get("resources")
        if isinstance(resources, dict) and isinstance(resources.get("limits"), dict):
            requests = resources.setdefault("requests", {})
            if isinstance(requests, dict):
                for name, amount in resources["limits"].items():
                    requests.setdefault(name, amount)
    status = pod.setdefault("status", {})
    if isinstance(status, dict):
        status.setdefault("phase", "Pending")
        status.setdefault("qosClass", _qos_class(spec))


def _containers(spec: Obj) -> Iterator[Obj]:
    for field in ("initContainers", "containers"):
        containers = spec.get(field)
        if isinstance(containers, list):
            yield from (c for c in containers if isinstance(c, dict))


def _pull_policy(image: str) -> str:
    name = image.rpartition("/")[2]
    tag = "" if "@" in name else name.partition(":")[2]
    return "Always" if (not tag and "@" not in name) or tag == "latest" else "IfNotPresent"


def _qos_class(spec: Obj) -> str:
    guaranteed, best_effort = True, True
    for container in _containers(spec):
        resources = container.get("resources")
        resources = resources if isinstance(resources, dict) else {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            if name in limits or name in requests:
                best_effort = False
            if name not in limits or limits[name] != requests.get(name):
                guaranteed = False
    if best_effort:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def check_pod(pod: Obj, old: Obj | None) -> list[Cause]:
    """Names, images, mounts; and that nothing but what may change has changed."""
    spec = pod["spec"]
    causes: list[Cause] = []
    volumes = {volume["name"] for volume in spec.get("volumes") or ()}
    if not spec["containers"]:
        causes.append(required("spec.containers"))
    for index, volume in enumerate(spec.get("volumes") or ()):
        if problem := name_problem(volume["name"], LABEL):
            causes.append(invalid(f"spec.volumes[{index}].name", volume["name"], problem))
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            causes += _check_container(container, f"spec.{field}[{index}]", volumes)
    if selector := spec.get("nodeSelector"):
        causes += validate_labels(selector, "spec.nodeSelector")
    if old is not None and not causes:
        causes += _pod_changes(spec, old["spec"])
    return causes


def _check_container(container: Obj, path: str, volumes: set[str]) -> list[Cause]:
    causes = []
    if problem := name_problem(container["name"], LABEL):
        causes.append(invalid(f"{path}.name", container["name"], problem))
    if not container.get("image"):
        causes.append(required(f"{path}.image"))
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount["name"] not in volumes:
            cause = invalid(f"{path}.volumeMounts[{index}].name", mount["name"], "")
            message = cause.message.replace("Invalid value", "Not found").removesuffix(": ")
            causes.append(Cause(cause.field, "FieldValueNotFound", message))
    return causes


_POD_CHANGES_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions "
    "to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it "
    "was previously negative)"
)


def _pod_changes(spec: Obj, old: Obj) -> list[Cause]:
    if spec == old:
        return []
    if len(spec["containers"]) != len(old["containers"]):
        return [forbidden("spec.containers", "pod updates may not add or remove containers")]
    before = old.get("tolerations") or []
    after = spec.get("tolerations") or []
    if any(toleration not in after for toleration in before):
        return [
            forbidden(
                "spec.tolerations",
                "existing toleration can not be modified except its tolerationSeconds",
            )
        ]
    return [] if _fixed_part(spec) == _fixed_part(old) else [forbidden("spec", _POD_CHANGES_RULE)]


def _fixed_part(spec: Obj) -> Obj:
    """A pod's spec without what may change during its life; binding sets the node's name."""
    fixed = {
        k: v
        for k, v in spec.items()
        if k not in ("activeDeadlineSeconds", "tolerations", "nodeName", "schedulingGates")
    }
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [
                {k: v for k, v in c.items() if k not in ("image", "imagePullPolicy")}
                for c in fixed[field]
            ]
    return fixed


def finish_secret(secret: Obj) -> None:
    """Moves `stringData` into `data`, as the write-only convenience that it is."""
    plain = secret.pop("stringData", None)
    if isinstance(plain, dict):
        stored = secret.setdefault("data", {})
        if isinstance(stored, dict):
            for key, text in plain.items():
                if isinstance(text, str):
                    stored[key] = base64.b64encode(text.encode()).decode()


def check_secret(secret: Obj, old: Obj | None) -> list[Cause]:
    """Keys, and that type and immutable content stay."""
    causes = _check_keys(secret, ("data",))
    if old is not None:
        if secret.get("type") != old.get("type"):
            causes.append(invalid("type", secret.get("type"), "field is immutable"))
        causes += _check_immutable(secret, old, ("data",))
    return causes


def check_config_map(config_map: Obj, old: Obj | None) -> list[Cause]:
    """Keys, not shared by data and binaryData, and that immutable content stays."""
    causes = _check_keys(config_map, ("data", "binaryData"))
    both = set(config_map.get("data") or ()) & set(config_map.get("binaryData") or ())
    causes += [duplicate(f"data[{key}]", key) for key in sorted(both)]
    if old is not None:
        causes += _check_immutable(config_map, old, ("data", "binaryData"))
    return causes


def _check_keys(obj: Obj, fields: tuple[str, ...]) -> list[Cause]:
    return [
        invalid(f"{field}[{key}]", key, _KEY_RULE)
        for field in fields
        for key in obj.get(field) or ()
        if not key or len(key) > 253 or not _KEY_LETTERS.issuperset(key)
    ]


def _check_immutable(obj: Obj, old: Obj, fields: tuple[str, ...]) -> list[Cause]:
    if not old.get("immutable"):
        return []
    text = "field is immutable when `immutable` is set"
    changed = [f for f in fields if (obj.get(f) or {}) != (old.get(f) or {})]
    if not obj.get("immutable"):
        changed.insert(0, "immutable")
    return [forbidden(field, text) for field in changed]


def finish_namespace(namespace: Obj) -> None:
    """Labels the namespace with its name, so that selectors can name it."""
    meta = namespace.get("metadata")
    if isinstance(meta, dict) and isinstance(meta.get("name"), str):
        labels = meta.setdefault("labels", {})
        if isinstance(labels, dict):
            labels["kubernetes.io/metadata.name"] = meta["name"]


def finish_service(service: Obj) -> None:
    """Target ports; no cluster address is handed out where there is no cluster network."""
    spec = service.get("spec")
    if not isinstance(spec, dict):
        return
    ports = spec.get("ports")
    for port in ports if isinstance(ports, list) else ():
        if isinstance(port, dict) and "port" in port:
            port.setdefault("targetPort", port["port"])
    if spec.get("type") == "ClusterIP":
        address = spec.setdefault("clusterIP", "None")
        spec.setdefault("clusterIPs", [address])
    service.setdefault("status", {"loadBalancer": {}})


def check_service(service: Obj, _old: Obj | None) -> list[Cause]:
    """Ports: there, in range, named when there are several."""
    spec = service.get("spec") or {}
    ports = spec.get("ports") or []
    causes = []
    if not ports and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        causes.append(required("spec.ports"))
    for index, port in enumerate(ports):
        if not 1 <= port["port"] <= 65535:
            text = "must be between 1 and 65535, inclusive"
            causes.append(invalid(f"spec.ports[{index}].port", port["port"], text))
        if len(ports) > 1 and not port.get("name"):
            causes.append(required(f"spec.ports[{index}].name"))
    return causes


def check_node(node: Obj, _old: Obj | None) -> list[Cause]:
    """Taints: one of each key and effect."""
    causes, seen = [], set()
    for index, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        identity = (taint["key"], taint["effect"])
        if identity in seen:
            causes.append(duplicate(f"spec.taints[{index}]", taint))
        seen.add(identity)
    return causes


def check_lease(lease: Obj, _old: Obj | None) -> list[Cause]:
    """Durations and counts that make sense."""
    spec = lease.get("spec") or {}
    causes = []
    if (seconds := spec.get("leaseDurationSeconds")) is not None and seconds <= 0:
        causes.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if (count := spec.get("leaseTransitions")) is not None and count < 0:
        text = "must be greater than or equal to 0"
        causes.append(invalid("spec.leaseTransitions", count, text))
    return causes


def check_event(event: Obj, _old: Obj | None) -> list[Cause]:
    """An event lives in the namespace of what it is about."""
    about = event["involvedObject"].get("namespace", "")
    home = (event.get("metadata") or {}).get("namespace", "")
    if about and home and about != home:
        return [invalid("involvedObject.namespace", about, "does not match event.namespace")]
    return []
