"""Keeps this machine's Node object true and its lease fresh, whatever happens to the API server."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from clusterops.api import names
from clusterops.kube.client import Client
from clusterops.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from clusterops.nodeagent import node_object, records
from clusterops.nodeagent.config import NodeAgentConfig
from clusterops.nodeagent.gpus import Gpu
from clusterops.nodeagent.node_object import LEASE_NAMESPACE, Machine

RETRY_SECONDS = 1.0

log = logging.getLogger(__name__)


class NodeRegistration:
    """The Node and Lease of one agent. `registered` is set once the Node exists and says Ready."""

    def __init__(
        self,
        config: NodeAgentConfig,
        client: Client,
        machine: Machine,
        gpus: tuple[Gpu, ...],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registered = asyncio.Event()
        self._config = config
        self._client = client
        self._machine = machine
        self._gpus = gpus
        self._monotonic = monotonic
        self._uid = ""

    async def run(self) -> None:
        """Registers, then renews lease and status until cancelled. Failures are tried again.

        On being cancelled nothing is written: running pods go on, as they do while kubelet is
        restarted, and a Node whose agent does not come back is lost when its lease runs out.
        """
        renew_seconds = self._config.lease_seconds / 4
        confirm_at = renewed_at = 0.0
        while True:
            try:
                # A lease that ran out may have made others write that this node is not known.
                lapsed = self._monotonic() - renewed_at > self._config.lease_seconds
                if not self._uid or lapsed or self._monotonic() >= confirm_at:
                    await self.write(node_object.READY)
                    confirm_at = self._monotonic() + self._config.node_status_seconds
                await self.renew_lease()
                renewed_at = self._monotonic()
            except NotFound:
                self._uid = ""  # somebody deleted the Node: register again
                delay = RETRY_SECONDS
            except KubeError as error:
                log.warning("node %s: %s", self._config.node_name, error)
                delay = RETRY_SECONDS
            else:
                self.registered.set()
                delay = renew_seconds
            await asyncio.sleep(delay)

    async def say_stopped(self) -> None:
        """Says that this node runs nothing any more, so that nothing is sent to it. Raises KubeError."""
        await self.write(node_object.STOPPED)

    async def write(self, ready: tuple[str, str, str]) -> None:
        """Creates the Node or corrects it, and writes its status. Raises KubeError."""
        config = self._config
        wanted = node_object.metadata(config, self._machine, self._gpus)
        node = await self._client.find(names.NODES, None, config.node_name)
        if node is None:
            node = await self._create(wanted)
        changes = self._metadata_changes(node, wanted)
        if changes:
            node = await self._client.patch(names.NODES, None, config.node_name, changes)
        self._uid = node["metadata"]["uid"]
        now = records.timestamp(time.time_ns())
        existing = node.get("status") or {}
        status = node_object.status(config, self._machine, self._gpus, ready, existing, now)
        patch = {
            "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
            "status": status,
        }
        try:
            await self._client.patch(
                names.NODES, None, config.node_name, patch, subresource="status"
            )
        except Conflict:
            self._uid = ""  # somebody wrote in between: read anew at the next try
            raise

    async def renew_lease(self) -> None:
        """Makes the lease say that this node lives now. Raises KubeError."""
        renew_time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        lease = node_object.lease(self._config, self._uid, renew_time)
        patch = {
            "spec": lease["spec"],
            "metadata": {"ownerReferences": lease["metadata"]["ownerReferences"]},
        }
        name = self._config.node_name
        try:
            await self._client.patch(names.LEASES, LEASE_NAMESPACE, name, patch)
            return
        except NotFound:
            pass
        if await self._client.find(names.NAMESPACES, None, LEASE_NAMESPACE) is None:
            namespace = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": LEASE_NAMESPACE},
            }
            await self._create_unless_there(names.NAMESPACES, namespace)
        await self._create_unless_there(names.LEASES, lease)

    async def _create(self, metadata: dict[str, Any]) -> dict[str, Any]:
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "spec": {"taints": node_object.taints(self._config)},
        }
        if not self._uid:
            log.info("registering node %s", self._config.node_name)
        return await self._client.create(names.NODES, node)

    def _metadata_changes(self, node: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
        """A merge patch for labels and taints that are not as they should be, others' left alone."""
        labels = node["metadata"].get("labels") or {}
        missing = {k: v for k, v in wanted["labels"].items() if labels.get(k) != v}
        if names.LABEL_SIMULATED in labels and names.LABEL_SIMULATED not in wanted["labels"]:
            missing[names.LABEL_SIMULATED] = None
        taints = list((node.get("spec") or {}).get("taints") or ())
        ours = node_object.taints(self._config)
        others = [taint for taint in taints if taint.get("key") != names.TAINT_PROCESS_RUNTIME]
        changes: dict[str, Any] = {}
        if missing:
            changes["metadata"] = {"labels": missing}
        if [t for t in taints if t not in others] != ours:
            changes["spec"] = {"taints": others + ours}
            # A list is replaced whole: only if nobody has changed it since.
            version = node["metadata"]["resourceVersion"]
            changes.setdefault("metadata", {})["resourceVersion"] = version
        return changes

    async def _create_unless_there(self, resource: names.ResourceType, obj: dict[str, Any]) -> None:
        try:
            await self._client.create(resource, obj)
        except AlreadyExists:
            log.debug("%s %s exists", resource.kind, obj["metadata"]["name"])
