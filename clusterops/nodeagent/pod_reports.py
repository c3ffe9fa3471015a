"""What the API server is told about pods: their status, and that a deleted one is gone from here."""

import time
from collections.abc import Callable
from typing import Any

from clusterops.api import names
from clusterops.kube.client import Client
from clusterops.kube.errors import Conflict, NotFound
from clusterops.kube.store import Key, Store
from clusterops.nodeagent import pod_status, records
from clusterops.nodeagent.observation import Observed

PodObject = dict[str, Any]

CONFLICTS = 4  # in a row, before the watch gets time to catch up


class PodReports:
    """Writes to the API server about the pods of one node, and remembers what it wrote."""

    def __init__(
        self,
        client: Client,
        pods: Store[PodObject],
        node_ip: str,
        at_write_point: Callable[[str], None],
    ) -> None:
        self._client = client
        self._pods = pods
        self._node_ip = node_ip
        self._at = at_write_point
        # By uid: the version that the store had when we wrote, and what our write made of the pod.
        self._written: dict[str, tuple[str | None, PodObject]] = {}

    def current(self, key: Key) -> PodObject | None:
        """The newest known state of the pod: our own last write, until the watch has caught up."""
        pod = self._pods.get(key)
        if pod is None:
            return None
        uid = pod["metadata"]["uid"]
        seen, written = self._written.get(uid, (None, pod))
        if seen == pod["metadata"].get("resourceVersion"):
            return written
        self._written.pop(uid, None)
        return pod

    async def write(self, pod: PodObject, observe: Callable[[], Observed]) -> None:
        """Makes the pod's status what it should be, unless it is so already.

        Raises:
            KubeError: the server does not answer or refuses; a conflict is read anew and tried again.
        """
        metadata = pod["metadata"]
        key, uid = (metadata["namespace"], metadata["name"]), metadata["uid"]
        for attempt in range(1, CONFLICTS + 1):
            now = records.timestamp(time.time_ns())
            status = pod_status.build(pod, observe(), node_ip=self._node_ip, now=now)
            changed = pod_status.changes(pod, status)
            if not changed:
                return
            # With its version, so that conditions others have added meanwhile are not overwritten.
            version = pod["metadata"]["resourceVersion"]
            patch = {"metadata": {"uid": uid, "resourceVersion": version}, "status": changed}
            try:
                written = await self._client.patch(names.PODS, *key, patch, subresource="status")
            except NotFound:
                return
            except Conflict:
                fresh = await self._client.find(names.PODS, *key)
                if fresh is None or fresh["metadata"]["uid"] != uid:
                    return
                if attempt == CONFLICTS:
                    raise
                pod = fresh
                continue
            self._at("status-written")
            in_store = self._pods.get(key)
            seen = None if in_store is None else in_store["metadata"].get("resourceVersion")
            self._written[uid] = (seen, written)
            return

    async def delete(self, pod: PodObject) -> None:
        """Tells the API server that the pod is gone from here, so that it removes the object.

        Raises:
            KubeError: the server does not answer or refuses.
        """
        metadata = pod["metadata"]
        try:
            await self._client.delete(
                names.PODS,
                metadata["namespace"],
                metadata["name"],
                uid=metadata["uid"],
                grace_period_seconds=0,
            )
        except (NotFound, Conflict):
            return  # gone already, or another pod has its name
        self._at("pod-deleted")

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._written.pop(uid, None)
