"""Whether a pod that was bound to this node may run here, and what it needs. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterops.api import names
from clusterops.nodeagent import quantities
from clusterops.nodeagent.downward import Pod


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a pod is Failed for a reason that is not its containers' exit codes."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Rules:
    """What this node accepts. `allowed_namespaces` None: any pod of any namespace."""

    allowed_namespaces: tuple[str, ...] | None
    gpus: int


_FOLDER_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9.]{0,252}")

NOT_ALLOWED = "NotAllowed"
OUT_OF_GPUS = f"OutOf{names.RESOURCE_GPU}"
UNSUPPORTED = "UnsupportedPod"


def refuse(pod: Pod, rules: Rules) -> Failure | None:
    """Why this pod can never run on this node; None when it can."""
    unfit = _unfit_name(pod)
    if unfit:
        return Failure(UNSUPPORTED, f"{unfit!r} cannot be the name of a folder")
    if rules.allowed_namespaces is not None:
        namespace = pod["metadata"]["namespace"]
        if namespace not in rules.allowed_namespaces:
            return Failure(NOT_ALLOWED, f"this node runs no processes for namespace {namespace!r}")
        if not owned_by_training_job(pod):
            return Failure(NOT_ALLOWED, "this node runs processes, and only those of TrainingJobs")
    for container in pod["spec"].get("initContainers") or ():
        if container.get("restartPolicy"):
            return Failure(
                UNSUPPORTED,
                f"init container {container['name']!r} is a sidecar (restartPolicy), which this"
                " node does not run; make it an ordinary container",
            )
    try:
        wanted = wanted_gpus(pod)
    except quantities.MalformedQuantity as error:
        return Failure(UNSUPPORTED, f"{names.RESOURCE_GPU}: {error}")
    if wanted > rules.gpus:
        return Failure(OUT_OF_GPUS, f"the pod wants {wanted} GPUs, this node has {rules.gpus}")
    return None


def _unfit_name(pod: Pod) -> str | None:
    """A name that would lead out of the folders of pods and logs; API servers allow none such."""
    metadata, spec = pod["metadata"], pod["spec"]
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    all_names = [metadata["namespace"], metadata["name"], metadata["uid"]]
    all_names += [container["name"] for container in containers]
    return next((name for name in all_names if not _FOLDER_NAME.fullmatch(name)), None)


def owned_by_training_job(pod: Pod) -> bool:
    """True when a TrainingJob is the pod's controller."""
    return any(
        owner.get("kind") == names.TRAINING_JOBS.kind
        and str(owner.get("apiVersion", "")).partition("/")[0] == names.GROUP
        and owner.get("controller")
        for owner in pod["metadata"].get("ownerReferences") or ()
    )


def wanted_gpus(pod: Pod) -> int:
    """GPUs of the whole pod: its containers' together, or its greediest init container's.

    Raises:
        quantities.MalformedQuantity: a number of GPUs is none.
    """
    spec = pod["spec"]
    together = sum(container_gpus(container) for container in spec["containers"])
    greediest = max(map(container_gpus, spec.get("initContainers") or ()), default=0)
    return max(together, greediest)


def container_gpus(container: Mapping[str, Any]) -> int:
    """GPUs of one container. Raises quantities.MalformedQuantity."""
    resources = container.get("resources") or {}
    for kind in ("limits", "requests"):
        quantity = (resources.get(kind) or {}).get(names.RESOURCE_GPU)
        if quantity is not None:
            return quantities.whole(quantity)
    return 0


def share(pod: Pod, container: str, devices: tuple[str, ...]) -> tuple[str, ...]:
    """The devices of one container out of its pod's.

    Containers run together and divide them in order; an init container runs alone, from the first.
    """
    for candidate in pod["spec"].get("initContainers") or ():
        if candidate["name"] == container:
            return devices[: container_gpus(candidate)]
    first = 0
    for candidate in pod["spec"]["containers"]:
        number = container_gpus(candidate)
        if candidate["name"] == container:
            return devices[first : first + number]
        first += number
    raise KeyError(container)
