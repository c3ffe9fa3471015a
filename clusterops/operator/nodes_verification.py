"""The pod that proves a repaired node healthy, and what its end says. Pure.

It is pinned to the node, tolerates our taint and nothing else, has all its GPUs, and leaves its result
as JSON in the termination message.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterops.api import names
from clusterops.core.remediation_view import Proof, Remedy
from clusterops.operator.nodes_view import GPU_RESOURCE, digest, gpus

CONTAINER = "verify"
RESULT_PATH = "/dev/termination-log"
HISTORY_MOUNT = "/var/lib/clusterops-verification"
HISTORY_NAME = "figures.json"


@dataclass(frozen=True)
class VerificationTemplate:
    """How the checks are run."""

    namespace: str = "default"
    image: str = "clusterops"
    command: tuple[str, ...] = ("python", "-m", "health.verification")
    deadline_seconds: int = 600
    history: str | None = None
    """Folder on the node where the figures of its checks are kept, to be compared with; None = they
    are compared with those of the node's other GPUs alone.
    """
    simulated_gpus: str | None = None
    """Of nodes with simulated GPUs: the file that says how they are, with {node} in its path."""


def pod_name(node: str) -> str:
    """The pod of a node: one at a time, whatever is verified."""
    return f"clusterops-verify-{digest(node)}"


def pod(node: Mapping[str, Any], key: str, template: VerificationTemplate) -> dict[str, Any]:
    """The pod for a node and the remediation that `key` names."""
    name = node["metadata"]["name"]
    number = gpus(node)
    simulated = (node["metadata"].get("labels") or {}).get(names.LABEL_SIMULATED) == "true"
    command = [*template.command, "--gpus", str(number), "--result", RESULT_PATH]
    keeps = _history(template) if number else {}
    if keeps:
        command += ["--history", f"{HISTORY_MOUNT}/{HISTORY_NAME}"]
    if simulated:
        command.append("--simulated")
        if template.simulated_gpus is not None:
            command.append(template.simulated_gpus.replace("{node}", name))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": template.namespace,
            "name": pod_name(name),
            "annotations": {names.ANNOTATION_REMEDIATION: key},
        },
        "spec": {
            "nodeName": name,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": template.deadline_seconds,
            "automountServiceAccountToken": False,
            "tolerations": [
                {"key": names.TAINT_HEALTH, "operator": "Exists"},
                {"key": names.TAINT_PROCESS_RUNTIME, "operator": "Exists"},
            ],
            "containers": [
                {
                    "name": CONTAINER,
                    "image": template.image,
                    "command": command,
                    "terminationMessagePath": RESULT_PATH,
                    "resources": {"limits": {GPU_RESOURCE: number}} if number else {},
                    **({"volumeMounts": [keeps["mount"]]} if keeps else {}),
                }
            ],
            **({"volumes": [keeps["volume"]]} if keeps else {}),
        },
    }


def _history(template: VerificationTemplate) -> dict[str, dict[str, Any]]:
    """Where the node keeps its figures: it outlives pods, reboots and this operator."""
    if template.history is None:
        return {}
    return {
        "mount": {"name": "history", "mountPath": HISTORY_MOUNT},
        "volume": {
            "name": "history",
            "hostPath": {"path": template.history, "type": "DirectoryOrCreate"},
        },
    }


def proof(found: Mapping[str, Any] | None, remedy: Remedy | None) -> Proof:
    """What the pod's state proves for a remediation; another one's pod proves nothing."""
    if found is None or remedy is None or found["metadata"].get("deletionTimestamp"):
        return Proof.NONE
    key = (found["metadata"].get("annotations") or {}).get(names.ANNOTATION_REMEDIATION)
    if key != remedy.key:
        return Proof.NONE
    phase = (found.get("status") or {}).get("phase")
    if phase == "Succeeded":
        return Proof.PASSED if _passed(found) else Proof.FAILED
    return Proof.FAILED if phase == "Failed" else Proof.RUNNING


def _passed(found: Mapping[str, Any]) -> bool:
    """Exit 0 alone is no proof: the result has to say so."""
    for container in (found.get("status") or {}).get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        try:
            result = json.loads(ended.get("message") or "")
        except ValueError:
            continue
        if isinstance(result, dict) and result.get("passed") is True:
            return True
    return False
