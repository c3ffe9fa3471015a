"""The Node object: what this machine offers and how it describes itself. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterops.api import names
from clusterops.nodeagent.config import NodeAgentConfig
from clusterops.nodeagent.gpus import Gpu

READY = ("True", "AgentReady", "the node agent runs pods")
STOPPED = ("False", "AgentStopped", "the node agent was stopped and has ended its pods")

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Machine:
    """What the operating system says about this machine."""

    hostname: str
    architecture: str
    kernel: str
    os_image: str
    machine_id: str
    boot_id: str
    cpus: int
    memory_bytes: int
    agent_version: str


def allocatable(config: NodeAgentConfig, machine: Machine, gpus: tuple[Gpu, ...]) -> dict[str, str]:
    """What pods may ask for in all, as quantities."""
    return {
        "cpu": str(machine.cpus),
        "memory": f"{machine.memory_bytes // 1024}Ki",
        "pods": str(config.max_pods),
        names.RESOURCE_GPU: str(len(gpus)),
    }


def metadata(config: NodeAgentConfig, machine: Machine, gpus: tuple[Gpu, ...]) -> dict[str, Any]:
    """Name and labels."""
    architecture = _ARCHITECTURES.get(machine.architecture, machine.architecture)
    labels = {
        "kubernetes.io/hostname": config.node_name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        **config.labels,
    }
    if config.simulated_gpus is not None:
        labels[names.LABEL_SIMULATED] = "true"
    products = sorted({gpu.product for gpu in gpus if gpu.product})
    if len(products) == 1:
        labels["nvidia.com/gpu.product"] = _label_value(products[0])
    return {"name": config.node_name, "labels": labels}


def taints(config: NodeAgentConfig) -> list[dict[str, str]]:
    """Pods of a cluster must ask for a node that runs processes; on one's own machine all are so."""
    if config.embedded:
        return []
    return [{"key": names.TAINT_PROCESS_RUNTIME, "effect": "NoSchedule"}]


def status(
    config: NodeAgentConfig,
    machine: Machine,
    gpus: tuple[Gpu, ...],
    ready: tuple[str, str, str],
    existing: Mapping[str, Any],
    now: str,
) -> dict[str, Any]:
    """The Node's status. `ready`: status, reason and message of the condition Ready.

    `existing` is the status as it stands: others' conditions stay, transitions keep their times.
    """
    resources = allocatable(config, machine, gpus)
    conditions = [c for c in existing.get("conditions") or () if c.get("type") != "Ready"]
    before: Mapping[str, Any] = next(
        (c for c in existing.get("conditions") or () if c.get("type") == "Ready"), {}
    )
    since = before.get("lastTransitionTime") if before.get("status") == ready[0] else None
    condition = {
        "type": "Ready",
        "status": ready[0],
        "reason": ready[1],
        "message": ready[2],
        "lastHeartbeatTime": now,
        "lastTransitionTime": since or now,
    }
    return {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [*conditions, condition],
        "addresses": [
            {"type": "InternalIP", "address": config.node_ip},
            {"type": "Hostname", "address": machine.hostname},
        ],
        "nodeInfo": {
            "architecture": _ARCHITECTURES.get(machine.architecture, machine.architecture),
            "bootID": machine.boot_id,
            "containerRuntimeVersion": f"process://{machine.agent_version}",
            "kernelVersion": machine.kernel,
            "kubeProxyVersion": "",
            "kubeletVersion": f"clusterops-{machine.agent_version}",
            "machineID": machine.machine_id,
            "operatingSystem": "linux",
            "osImage": machine.os_image,
            "systemUUID": machine.machine_id,
        },
    }


def lease(config: NodeAgentConfig, node_uid: str, renew_time: str) -> dict[str, Any]:
    """The Lease by which the cluster knows that this node lives. `renew_time` with microseconds."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": config.node_name,
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": config.node_name, "uid": node_uid}
            ],
        },
        "spec": {
            "holderIdentity": config.node_name,
            "leaseDurationSeconds": config.lease_seconds,
            "renewTime": renew_time,
        },
    }


LEASE_NAMESPACE = "kube-node-lease"


def _label_value(text: str) -> str:
    kept = "".join(char if char.isalnum() or char in "-_." else "-" for char in text)
    return kept[:63].strip("-_.")
