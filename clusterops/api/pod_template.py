"""What a job's pod template must be, beyond what Kubernetes itself asks of one.

The template stays raw JSON: Kubernetes adds fields with every release, and none of them may be lost
here. So only the rules that a training job depends on are checked, and names that are almost, but
not quite, a field of Kubernetes.
"""

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from clusterops.api import names
from clusterops.api.pod_fields import (
    CONTAINER_FIELDS,
    ENV_FIELDS,
    POD_FIELDS,
    RESOURCES_FIELDS,
    TEMPLATE_FIELDS,
    VOLUME_MOUNT_FIELDS,
)
from clusterops.api.spelling import slip_of
from clusterops.api.wire import Fault, Path

# Volumes that live and die with the pod, or that nothing can be written to.
_GONE_WITH_THE_POD = ("emptyDir", "ephemeral", "csi", "gitRepo")
_READ_ONLY_VOLUMES = ("configMap", "secret", "downwardAPI", "projected", "image")

# What the operator sets in every pod; a user's value would be lost or would break the rendezvous.
_SET_BY_OPERATOR = (
    names.ENV_JOB,
    names.ENV_NAMESPACE,
    names.ENV_JOB_UID,
    names.ENV_ATTEMPT,
    names.ENV_POD_RANK,
    names.ENV_PODS,
    names.ENV_CHECKPOINT_DIR,
    names.ENV_AGENT_URL,
    names.ENV_AGENT_TOKEN_FILE,
    names.ENV_AGENT_CA_FILE,
    names.ENV_NNODES,
    names.ENV_NODE_RANK,
    names.ENV_MASTER_ADDR,
    names.ENV_MASTER_PORT,
)
_SET_WITH_ONE_PROCESS = (names.ENV_RANK, names.ENV_WORLD_SIZE, names.ENV_LOCAL_RANK)

_CONTAINER: Path = ("spec", "containers", 0)


def gpus(template: Mapping[str, Any]) -> int:
    """How many GPUs one pod of a valid template asks for."""
    containers = _sequence(_object(template.get("spec")).get("containers"))
    return sum(
        _gpu_count(_object(container).get("resources"), "limits") or 0 for container in containers
    )


def faults(
    template: Any, *, checkpoint_directory: str | None, processes_per_pod: int
) -> Iterator[Fault]:
    """Every broken rule, each at its place below the job's `spec` (`template` first)."""
    if not isinstance(template, Mapping):
        return
    for fault in _template_faults(template, processes_per_pod):
        yield Fault(("template", *fault.path), fault.message)
    if checkpoint_directory is not None:
        message = _directory_fault(checkpoint_directory, template)
        if message:
            yield Fault(("checkpoint", "directory"), message)


def _template_faults(template: Mapping[str, Any], processes_per_pod: int) -> Iterator[Fault]:
    yield from _misspelt((), template, TEMPLATE_FIELDS)
    yield from _reserved_labels(template)
    spec = template.get("spec")
    if not isinstance(spec, Mapping):
        yield Fault(("spec",), "must hold a pod spec with one container")
        return
    yield from _misspelt(("spec",), spec, POD_FIELDS)
    if spec.get("restartPolicy", "Never") != "Never":
        yield Fault(
            ("spec", "restartPolicy"),
            "must be Never or absent: the operator starts a new attempt, with all ranks together",
        )
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        yield Fault(("spec", "containers"), "must hold one container")
        return
    if len(containers) > 1:
        yield Fault(
            ("spec", "containers"),
            f"must hold one container, not {len(containers)}: its end is the end of the rank; "
            "a sidecar is an initContainer with restartPolicy Always",
        )
    container = containers[0]
    if isinstance(container, Mapping):
        for fault in _container_faults(container, spec, processes_per_pod):
            yield Fault((*_CONTAINER, *fault.path), fault.message)
    else:
        yield Fault(_CONTAINER, "must be an object with fields")


def _container_faults(
    container: Mapping[str, Any], spec: Mapping[str, Any], processes_per_pod: int
) -> Iterator[Fault]:
    yield from _misspelt((), container, CONTAINER_FIELDS)
    if not isinstance(container.get("name"), str) or not container.get("name"):
        yield Fault(("name",), "is required")
    if not isinstance(container.get("image"), str) or not container.get("image"):
        yield Fault(("image",), "is required; as processes on this machine any name will do")
    for field in ("command", "args"):
        words = container.get(field)
        if words is not None and not _is_argument_vector(words):
            yield Fault((field,), "must be a list of texts; put numbers in quotes")
    if not container.get("command") and not container.get("args"):
        yield Fault(("command",), "the container needs a command or args: what trains?")
    yield from _resource_faults(container.get("resources"))
    yield from _environment_faults(container.get("env"), processes_per_pod)
    yield from _mount_faults(container.get("volumeMounts"), spec)


def _is_argument_vector(words: Any) -> bool:
    return isinstance(words, list) and all(isinstance(word, str) for word in words)


def _resource_faults(resources: Any) -> Iterator[Fault]:
    if not isinstance(resources, Mapping):
        return
    yield from _misspelt(("resources",), resources, RESOURCES_FIELDS)
    limits, requests = (_object(resources.get(kind)) for kind in ("limits", "requests"))
    for kind, amounts in (("limits", limits), ("requests", requests)):
        if names.RESOURCE_GPU in amounts and _gpu_count(resources, kind) is None:
            yield Fault(("resources", kind, names.RESOURCE_GPU), "must be a whole number of GPUs")
    requested = requests.get(names.RESOURCE_GPU)
    if requested is not None and str(requested) != str(limits.get(names.RESOURCE_GPU)):
        yield Fault(
            ("resources", "requests", names.RESOURCE_GPU),
            "must equal limits: GPUs cannot be shared or overcommitted",
        )


def _environment_faults(environment: Any, processes_per_pod: int) -> Iterator[Fault]:
    reserved = _SET_BY_OPERATOR + (_SET_WITH_ONE_PROCESS if processes_per_pod == 1 else ())
    seen: list[str] = []
    for position, variable in enumerate(_sequence(environment)):
        if not isinstance(variable, Mapping):
            continue
        yield from _misspelt(("env", position), variable, ENV_FIELDS)
        name, value = variable.get("name"), variable.get("value")
        if not isinstance(name, str) or not name:
            yield Fault(("env", position, "name"), "is required")
            continue
        if name in reserved:
            yield Fault(("env", position, "name"), f"{name} is set by the operator in every pod")
        if name in seen:
            yield Fault(("env", position, "name"), f"{name} is set twice")
        if value is not None and not isinstance(value, str):
            yield Fault(("env", position, "value"), "must be text; put it in quotes")
        seen.append(name)


def _mount_faults(mounts: Any, spec: Mapping[str, Any]) -> Iterator[Fault]:
    volumes = [_object(volume).get("name") for volume in _sequence(spec.get("volumes"))]
    seen: list[str] = []
    for position, mount in enumerate(_sequence(mounts)):
        if not isinstance(mount, Mapping):
            continue
        place: Path = ("volumeMounts", position)
        yield from _misspelt(place, mount, VOLUME_MOUNT_FIELDS)
        if mount.get("name") not in volumes:
            yield Fault((*place, "name"), "must be the name of one of the template's volumes")
        path = mount.get("mountPath")
        if not isinstance(path, str) or not path.startswith("/"):
            yield Fault((*place, "mountPath"), "must be an absolute path")
        elif posixpath.normpath(path) in seen:
            yield Fault((*place, "mountPath"), f"{path} is mounted twice")
        else:
            seen.append(posixpath.normpath(path))


def _reserved_labels(template: Mapping[str, Any]) -> Iterator[Fault]:
    labels = _object(_object(template.get("metadata")).get("labels"))
    for label in labels:
        if isinstance(label, str) and label.startswith(f"{names.GROUP}/"):
            yield Fault(("metadata", "labels", label), "is set by the operator on every pod")


def _directory_fault(directory: str, template: Mapping[str, Any]) -> str | None:
    """Why nothing saved in `directory` would be there for the next attempt; None if it would."""
    if posixpath.normpath(directory) != directory.rstrip("/") or ".." in directory.split("/"):
        return 'must be a plain path, without "." or ".." or doubled slashes'
    spec = _object(template.get("spec"))
    containers = _sequence(spec.get("containers"))
    mount = _innermost_mount(directory, _object(containers[0]) if containers else {})
    if mount is None:
        return (
            f"{directory} is in none of the container's volumeMounts: what is saved there is lost "
            "with the pod; mount a persistentVolumeClaim at it or above it"
        )
    path = mount["mountPath"]
    if mount.get("readOnly") is True:
        return f"{directory} is in the volumeMount {path}, which is readOnly"
    if mount.get("subPathExpr"):
        return (
            f"{directory} is in the volumeMount {path}, whose subPathExpr may change with the pod"
        )
    volume = next(
        (
            volume
            for volume in map(_object, _sequence(spec.get("volumes")))
            if volume.get("name") == mount.get("name")
        ),
        {},
    )
    kind = next((field for field in volume if field != "name"), "emptyDir")
    if kind in _GONE_WITH_THE_POD:
        return (
            f"{directory} is in the volumeMount {path} of kind {kind}, which is gone with the pod; "
            "use a persistentVolumeClaim"
        )
    if kind in _READ_ONLY_VOLUMES:
        return (
            f"{directory} is in the volumeMount {path} of kind {kind}, which cannot be written to"
        )
    return None


def _innermost_mount(directory: str, container: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The mount that a file in the directory would be written to: the longest path above it."""
    found: Mapping[str, Any] | None = None
    longest = 0
    for mount in map(_object, _sequence(container.get("volumeMounts"))):
        path = mount.get("mountPath")
        if not isinstance(path, str) or not path.startswith("/"):
            continue
        root = posixpath.normpath(path)
        below = root == "/" or directory == root or directory.startswith(root + "/")
        if below and len(root) > longest:
            found, longest = mount, len(root)
    return found


def _gpu_count(resources: Any, kind: str) -> int | None:
    """The GPUs under limits or requests; None when absent or no whole number from 0."""
    amount = _object(_object(resources).get(kind)).get(names.RESOURCE_GPU)
    if isinstance(amount, int) and not isinstance(amount, bool) and amount >= 0:
        return amount
    return (
        int(amount) if isinstance(amount, str) and amount.isascii() and amount.isdigit() else None
    )


def _misspelt(place: Path, found: Mapping[str, Any], known: tuple[str, ...]) -> Iterator[Fault]:
    for field in found:
        meant = slip_of(str(field), known)
        if meant is not None:
            yield Fault((*place, str(field)), f'unknown field (did you mean "{meant}"?)')


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
