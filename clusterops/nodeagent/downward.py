"""What a pod may learn of itself: the fields of the downward API, as values and as files."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterops.nodeagent import quantities

Pod = Mapping[str, Any]

_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_RESOURCE = re.compile(r"(limits|requests)\.(.+)")


class ConfigError(Exception):
    """The pod asks for something that is not there (yet): a secret, a key, a field.

    Becomes the waiting reason CreateContainerConfigError with this text; it is tried again.
    """


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the node knows and a pod may ask for. `allocatable` as on the Node object."""

    node_name: str
    node_ip: str
    allocatable: Mapping[str, str]


def field(pod: Pod, path: str, around: Surroundings) -> str:
    """The value of a fieldRef.

    Raises:
        ConfigError: no such field, or not one that a pod may ask for.
    """
    metadata = pod["metadata"]
    spec = pod.get("spec") or {}
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript:
        return str((metadata.get(subscript[1]) or {}).get(subscript[2], ""))
    plain = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName") or around.node_name,
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
        "status.hostIP": around.node_ip,
        "status.hostIPs": around.node_ip,
        "status.podIP": around.node_ip,
        "status.podIPs": around.node_ip,
    }
    if path not in plain:
        raise ConfigError(f"fieldPath {path!r} is not supported for environment variables")
    return str(plain[path])


def field_file(pod: Pod, path: str, around: Surroundings) -> str:
    """The content of a file of a downwardAPI volume; whole maps of labels are allowed here.

    Raises:
        ConfigError: no such field.
    """
    if path in ("metadata.labels", "metadata.annotations"):
        entries: Mapping[str, str] = pod["metadata"].get(path.removeprefix("metadata.")) or {}
        return "\n".join(f"{key}={json.dumps(entries[key])}" for key in sorted(entries))
    return field(pod, path, around)


def resource(pod: Pod, container: str, reference: Mapping[str, Any], around: Surroundings) -> str:
    """The value of a resourceFieldRef: a whole number of divisors, rounded up.

    A limit that the container does not set is what the node has, as in Kubernetes.

    Raises:
        ConfigError: no such container or resource, or a malformed quantity.
    """
    name = str(reference.get("containerName") or container)
    wanted = str(reference.get("resource", ""))
    match = _RESOURCE.fullmatch(wanted)
    if match is None:
        raise ConfigError(f"resource {wanted!r} must begin with limits. or requests.")
    kind, resource_name = match.groups()
    declared = _resources(pod, name)
    quantity = (declared.get(kind) or {}).get(resource_name)
    if quantity is None and kind == "limits":
        quantity = around.allocatable.get(resource_name)
    if quantity is None and kind == "requests":
        quantity = (declared.get("limits") or {}).get(resource_name, "0")
    if quantity is None:
        raise ConfigError(f"container {name!r} has no {wanted}")
    divisor = str(reference.get("divisor") or "1")
    try:
        value, unit = quantities.parse(quantity), quantities.parse(divisor)
    except quantities.MalformedQuantity as error:
        raise ConfigError(f"{wanted}: {error}") from error
    if unit == 0:
        unit = quantities.parse("1")  # what an unset divisor is serialised as
    return str(quantities.ceil_div(value, unit))


def _resources(pod: Pod, container: str) -> Mapping[str, Any]:
    spec = pod["spec"]
    for candidate in [*spec.get("containers", ()), *(spec.get("initContainers") or ())]:
        if candidate["name"] == container:
            found: Mapping[str, Any] = candidate.get("resources") or {}
            return found
    raise ConfigError(f"resourceFieldRef names container {container!r}, which the pod lacks")
