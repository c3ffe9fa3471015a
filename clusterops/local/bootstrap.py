"""The queue and the priorities that a first job needs, made when local mode comes up.

Applied server-side under a field manager of its own and never by force: what a person changed stays
as the person left it.
"""

import contextlib
import json
import os
from collections.abc import Sequence
from typing import Any

from clusterops.api import names
from clusterops.kube import errors
from clusterops.kube.client import Client
from clusterops.local.parts import NodeShape

FIELD_MANAGER = "clusterops-local"
NAMESPACE = "default"
QUEUE = "local"
FLAVOR = "local"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Spaced so that a boost inside one class can never reach the next.
PRIORITY_CLASSES = {"low": 1000, "normal": 2000, "high": 3000}


async def ensure_queues(client: Client, shape: NodeShape, gpus: int | None = None) -> None:
    """Makes namespace, flavor, queues and priority classes. `gpus` is the quota in GPUs; without it
    the shape's, or as many as the registered nodes report.
    """
    total = gpus if gpus is not None else shape.nodes * (shape.gpus_per_node or 0)
    for resource, wanted in objects(total, shape.nodes):
        with contextlib.suppress(errors.Conflict):
            await client.apply(resource, wanted, field_manager=FIELD_MANAGER)


def objects(gpus: int, nodes: int) -> Sequence[tuple[names.ResourceType, dict[str, Any]]]:
    """The objects, in the order in which they must be made."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    quotas = {
        names.RESOURCE_GPU: str(gpus),
        # Processors and memory are not what local mode rations: every node may have the machine.
        "cpu": str((os.cpu_count() or 1) * nodes),
        "memory": str(memory * nodes),
    }
    cluster_queue = {
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [
            {
                "coveredResources": list(quotas),
                "flavors": [
                    {
                        "name": FLAVOR,
                        "resources": [
                            {"name": name, "nominalQuota": quota} for name, quota in quotas.items()
                        ],
                    }
                ],
            }
        ],
    }
    return [
        (names.NAMESPACES, _object(names.NAMESPACES, NAMESPACE)),
        (names.RESOURCE_FLAVORS, _object(names.RESOURCE_FLAVORS, FLAVOR, spec={})),
        *(
            (
                names.WORKLOAD_PRIORITY_CLASSES,
                _merged_by_kubectl(_object(names.WORKLOAD_PRIORITY_CLASSES, name, value=value)),
            )
            for name, value in PRIORITY_CLASSES.items()
        ),
        (names.CLUSTER_QUEUES, _object(names.CLUSTER_QUEUES, QUEUE, spec=cluster_queue)),
        (
            names.LOCAL_QUEUES,
            _object(names.LOCAL_QUEUES, QUEUE, NAMESPACE, spec={"clusterQueue": QUEUE}),
        ),
    ]


def _object(
    resource: names.ResourceType, name: str, namespace: str | None = None, **fields: Any
) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        **fields,
    }


def _merged_by_kubectl(wanted: dict[str, Any]) -> dict[str, Any]:
    """With the record of itself that `kubectl apply` looks for: manifests of a cluster bring priority
    classes of the same names, and kubectl warns of objects that lack it.
    """
    record = json.dumps(wanted, separators=(",", ":"))
    metadata = {**wanted["metadata"], "annotations": {LAST_APPLIED: record}}
    return {**wanted, "metadata": metadata}
