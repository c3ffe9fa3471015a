"""Workloads of an outside owner in the real Kueue, written with the operator's own status writes.

No operator acts on them: their owner is a ConfigMap. So what Kueue does, and what it makes of each
write, is seen alone.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from support.controlplane_tenant import KUEUE, Tenant, condition, eventually
from support.embedded import Answer

from clusterops.api import names
from clusterops.core import workload as writes

Json = dict[str, Any]
Change = Callable[[Json], Json | None]
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
CONFLICTS = 20


class Workloads:
    """The Workloads of a tenant."""

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        self._plane = tenant.plane
        self._probed = False
        core = f"/api/v1/namespaces/{tenant.namespace}/configmaps"
        self._owner = self._plane.send("POST", core, {"metadata": {"name": "owner"}})

    def path(self, name: str = "", more: str = "") -> str:
        """The URL path of all Workloads or of one."""
        place = f"{KUEUE}/namespaces/{self.tenant.namespace}/workloads"
        return place + (f"/{name}" if name else "") + more

    def body(
        self,
        name: str,
        gpus: int = 1,
        count: int = 1,
        priority: int = 100,
        queue: str = "queue",
        annotations: Json | None = None,
        **spec: Any,
    ) -> Json:
        """A Workload of `count` pods with `gpus` each."""
        owner = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": self._owner["metadata"]["uid"],
            "controller": True,
        }
        container = {
            "name": "c",
            "image": "none",
            "resources": {"requests": {names.RESOURCE_GPU: str(gpus)}},
        }
        pod_set = {
            "name": "main",
            "count": count,
            "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
        }
        metadata = {
            "name": name,
            "ownerReferences": [owner],
            "labels": {names.KUEUE_LABEL_JOB_UID: owner["uid"]},
            "annotations": annotations or {},
        }
        return {
            "apiVersion": names.WORKLOADS.api_version,
            "kind": names.WORKLOADS.kind,
            "metadata": metadata,
            "spec": {"queueName": queue, "priority": priority, "podSets": [pod_set], **spec},
        }

    def create(self, name: str, **fields: Any) -> Json:
        """Creates one; the fields are those of `body`."""
        return self._plane.send("POST", self.path(), self.body(name, **fields))

    def get(self, name: str) -> Json:
        """One as it is now."""
        return self._plane.send("GET", self.path(name))

    def delete(self, name: str) -> None:
        """Deletes one."""
        self._plane.send("DELETE", self.path(name))

    def patch(self, name: str, patch: Json, more: str = "") -> Answer:
        """A merge patch, whatever the answer."""
        return self._plane.request("PATCH", self.path(name, more), patch, headers=MERGE_PATCH)

    def edit(self, name: str, **spec: Any) -> None:
        """A merge patch of the spec that must be taken."""
        answer = self.patch(name, {"spec": spec})
        assert answer.status == 200, answer.content

    def resized(self, name: str, count: int) -> Answer:
        """Another count for the pod set."""
        pod_sets = json.loads(json.dumps(self.get(name)["spec"]["podSets"]))
        pod_sets[0]["count"] = count
        return self.patch(name, {"spec": {"podSets": pod_sets}})

    # Status, as the operator writes it

    def put_status(self, raw: Json, status: Json) -> Answer:
        """Replaces the status of an object that was read."""
        path = self.path(raw["metadata"]["name"], "/status")
        return self._plane.request("PUT", path, {**raw, "status": status})

    def write(self, name: str, change: Change) -> Json:
        """Reads, changes, replaces; reads again when Kueue wrote in between."""
        for _ in range(CONFLICTS):
            raw = self.get(name)
            status = change(raw)
            assert status is not None, f"nothing to write: {raw.get('status')}"
            answer = self.put_status(raw, status)
            if answer.status != 409:
                assert answer.status == 200, answer.content
                written: Json = answer.json
                return written
        raise AssertionError(f"{CONFLICTS} conflicts in a row on {name}")

    def release(self, name: str, hold: bool = False) -> Json:
        """The one write that gives quota back."""
        return self.write(
            name, lambda raw: writes.released_status(raw, hold, "released by the test", 0, now())
        )

    def evict(self, name: str, reason: str = "NodeFailures") -> Json:
        """Evicted by us, quota held."""
        return self.write(
            name, lambda raw: writes.evicted_status(raw, reason, "by the test", now())
        )

    def go_on(self, name: str) -> Json:
        """Takes an eviction back."""
        return self.write(
            name,
            lambda raw: writes.cancelled_eviction_status(
                raw, "PreemptionCancelled", "its reason went away", now()
            ),
        )

    # What they are

    def is_(self, name: str, kind: str, reason: str | None = None) -> bool:
        """Whether a condition is True, and for that reason if one is named."""
        found = condition(self.get(name), kind)
        return found.get("status") == "True" and reason in (None, found.get("reason"))

    def admitted(self, name: str) -> bool:
        """Whether it may run."""
        return self.is_(name, "Admitted")

    def holds_quota(self, name: str) -> bool:
        """Whether it has an admission and nobody took its quota."""
        return self.is_(name, "QuotaReserved") and bool(self.get(name)["status"].get("admission"))

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Waits."""
        eventually(true, f"{what}; {self._all()}")

    def until_admitted(self, *which: str) -> None:
        """Waits for all of them."""
        for name in which:
            self.until(lambda name=name: self.admitted(name), f"{name} to be admitted")

    def until_evicted(self, name: str, reason: str = "Preempted") -> None:
        """Waits for the eviction."""
        self.until(lambda: self.is_(name, "Evicted", reason), f"{name} to be evicted: {reason}")

    def until_pending(self, name: str) -> Json:
        """Waits until Kueue has said that it is not admitted; its QuotaReserved condition."""
        return eventually(
            lambda: (
                found
                if (found := condition(self.get(name), "QuotaReserved")).get("status") == "False"
                else None
            ),
            f"{name} to be pending",
        )

    def _all(self) -> str:
        items = self._plane.send("GET", self.path())["items"]
        return json.dumps({one["metadata"]["name"]: one.get("status") for one in items})[:3000]

    def used(self) -> int:
        """GPUs that the queue counts as taken."""
        path = f"{KUEUE}/clusterqueues/{self.tenant.cluster_queue}"
        status = self._plane.send("GET", path).get("status") or {}
        usage = status.get("flavorsReservation") or []
        return sum(int(one["total"]) for flavor in usage for one in flavor["resources"])

    def settled(self, probe: str) -> None:
        """Waits until Kueue has gone through its queues twice since this was called.

        Behind a head that waits for its victims a pending Workload is not even given a status, so
        what tells is two Workloads that pass, one after the other, through a queue of their own.
        """
        tenant = self.tenant
        if not self._probed:
            self._probed = True
            spec = {"namespaceSelector": {}, "resourceGroups": [tenant.group(1)]}
            tenant.kueue("ClusterQueue", f"probe-{tenant.suffix}", spec)
            queue = {"clusterQueue": f"probe-{tenant.suffix}"}
            tenant.kueue("LocalQueue", "probe", queue, tenant.namespace)
        for turn in range(2):
            self.create(f"{probe}-{turn}", queue="probe")
            self.until_admitted(f"{probe}-{turn}")
            self.delete(f"{probe}-{turn}")


def now() -> datetime:
    """The time that status writes carry."""
    return datetime.now(UTC)
