"""An API server in memory, as far as the operator uses one: versions, finalizers, ownership, grace.

Every change is logged per kind, so that a test can deliver changes late and each kind at its own
pace. `on_change(plural, before, after)` sees each change at the moment it is stored.
"""

import itertools
import random
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from clusterops.kube.errors import AlreadyExists, Conflict, NotFound, ServerBusy

Json = dict[str, Any]
Key = tuple[str, str]
Change = Callable[[str, Json | None, Json | None], None]


def _copy(value: Any) -> Any:
    """A deep copy of JSON, many times faster than `copy.deepcopy`."""
    return msgspec.json.decode(msgspec.json.encode(value))


class FakeServer:
    """Objects by kind and (namespace, name)."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._uids = itertools.count(1)
        self.version = 0
        self.objects: dict[str, dict[Key, Json]] = {}
        self.log: dict[str, list[tuple[Key, Json | None]]] = {}
        self.on_change: list[Change] = []

    def stamp(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def peek(self, plural: str) -> list[Json]:
        """All objects as they are stored: to be read only."""
        return list(self.objects.get(plural, {}).values())

    def all(self, plural: str) -> list[Json]:
        return [_copy(obj) for obj in self.objects.get(plural, {}).values()]

    def find(self, plural: str, namespace: str | None, name: str) -> Json | None:
        found = self.objects.get(plural, {}).get((namespace or "", name))
        return None if found is None else _copy(found)

    def get(self, plural: str, namespace: str | None, name: str) -> Json:
        found = self.find(plural, namespace, name)
        if found is None:
            raise NotFound(404, "NotFound", f"{plural} {namespace}/{name} not found")
        return found

    def create(self, plural: str, obj: Json) -> Json:
        obj = _copy(obj)
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if key in self.objects.get(plural, {}):
            raise AlreadyExists(409, "AlreadyExists", f"{plural} {key} already exists")
        metadata["uid"] = f"uid-{next(self._uids)}"
        metadata["creationTimestamp"] = self.stamp()
        metadata["generation"] = 1
        if plural != "pods":
            obj.pop("status", None)
        self._store(plural, key, None, obj)
        return _copy(obj)

    def replace_status(self, plural: str, obj: Json) -> Json:
        metadata = obj["metadata"]
        current = self.get(plural, metadata.get("namespace"), metadata["name"])
        self._check_version(current, metadata.get("resourceVersion"))
        return self._update(plural, current, {**current, "status": _copy(obj["status"])})

    def patch(
        self, plural: str, namespace: str | None, name: str, patch: Json, subresource: str | None
    ) -> Json:
        current = self.get(plural, namespace, name)
        expected = patch.get("metadata") or {}
        self._check_version(current, expected.get("resourceVersion"))
        if expected.get("uid", current["metadata"]["uid"]) != current["metadata"]["uid"]:
            raise Conflict(409, "Conflict", f"the uid of {name} is another")
        if subresource == "status":
            patched = {**current, "status": _merge(current.get("status"), patch.get("status"))}
        else:
            patched = _merge(current, {k: v for k, v in patch.items() if k != "status"})
            if patched.get("spec") != current.get("spec"):
                patched["metadata"]["generation"] += 1
        return self._update(plural, current, patched)

    def delete(
        self, plural: str, namespace: str | None, name: str, uid: str | None, grace: int | None
    ) -> Json:
        current = self.get(plural, namespace, name)
        if uid is not None and current["metadata"]["uid"] != uid:
            raise Conflict(409, "Conflict", f"the uid of {name} is another")
        deleting = _copy(current)
        deleting["metadata"].setdefault("deletionTimestamp", self.stamp())
        if plural == "pods" and grace != 0 and current["spec"].get("nodeName"):
            terminal = current.get("status", {}).get("phase") in ("Succeeded", "Failed")
            if not terminal:
                until = self._now().timestamp() + (30 if grace is None else grace)
                before = current.get("killAt")
                deleting["killAt"] = until if before is None else min(before, until)
                return self._update(plural, current, deleting)
        deleting.pop("killAt", None)
        return self._update(plural, current, deleting)

    def remove(self, plural: str, namespace: str, name: str) -> None:
        """What a kubelet does when a pod has ended: the object goes."""
        self._remove(plural, (namespace, name))

    def _check_version(self, current: Json, version: str | None) -> None:
        if version is not None and version != current["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", f"{current['metadata']['name']} has changed")

    def _update(self, plural: str, before: Json, after: Json) -> Json:
        metadata = after["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        gone = "deletionTimestamp" in metadata and not metadata.get("finalizers")
        kept = plural == "pods" and "killAt" in after
        if gone and not kept:
            self._remove(plural, key)
            return _copy(after)
        if after == before:
            return _copy(after)
        self._store(plural, key, before, after)
        return _copy(after)

    def _store(self, plural: str, key: Key, before: Json | None, after: Json) -> None:
        self.version += 1
        after["metadata"]["resourceVersion"] = str(self.version)
        self.objects.setdefault(plural, {})[key] = after
        self.log.setdefault(plural, []).append((key, _copy(after)))
        for listener in self.on_change:
            listener(plural, before, _copy(after))

    def _remove(self, plural: str, key: Key) -> None:
        before = self.objects.get(plural, {}).pop(key, None)
        if before is None:
            return
        self.version += 1
        self.log.setdefault(plural, []).append((key, None))
        for listener in self.on_change:
            listener(plural, before, None)
        uid = before["metadata"]["uid"]
        for kind in list(self.objects):
            for other in self.all(kind):
                owners = other["metadata"].get("ownerReferences") or []
                if any(owner["uid"] == uid for owner in owners):
                    metadata = other["metadata"]
                    self.delete(kind, metadata.get("namespace"), metadata["name"], None, 0)


class FakeClient:
    """The verbs of `kube.client.Client` on a FakeServer; some calls fail as an overloaded one does."""

    def __init__(self, server: FakeServer, rng: random.Random, failure_rate: float = 0.0) -> None:
        self._server = server
        self._rng = rng
        self.failure_rate = failure_rate

    def _perhaps_fail(self) -> None:
        if self._rng.random() < self.failure_rate:
            raise ServerBusy(500, "InternalError", "failed calling webhook")

    async def find(self, resource: Any, namespace: str | None, name: str) -> Json | None:
        self._perhaps_fail()
        return self._server.find(resource.plural, namespace, name)

    async def get(self, resource: Any, namespace: str | None, name: str) -> Json:
        self._perhaps_fail()
        return self._server.get(resource.plural, namespace, name)

    async def list(
        self, resource: Any, namespace: str | None = None, *, label_selector: str | None = None
    ) -> tuple[list[Json], str]:
        self._perhaps_fail()
        found = self._server.all(resource.plural)
        if namespace is not None:
            found = [obj for obj in found if obj["metadata"].get("namespace") == namespace]
        if label_selector is not None:
            key, _, value = label_selector.partition("=")
            found = [o for o in found if (o["metadata"].get("labels") or {}).get(key) == value]
        return found, str(self._server.version)

    async def create(self, resource: Any, obj: Json) -> Json:
        self._perhaps_fail()
        return self._server.create(resource.plural, obj)

    async def patch(
        self,
        resource: Any,
        namespace: str | None,
        name: str,
        patch: Json,
        *,
        subresource: str | None = None,
    ) -> Json:
        self._perhaps_fail()
        return self._server.patch(resource.plural, namespace, name, patch, subresource)

    async def replace_status(self, resource: Any, obj: Json) -> Json:
        self._perhaps_fail()
        return self._server.replace_status(resource.plural, obj)

    async def delete(
        self,
        resource: Any,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        grace_period_seconds: int | None = None,
        propagation: str | None = None,
    ) -> Json:
        del propagation
        self._perhaps_fail()
        return self._server.delete(resource.plural, namespace, name, uid, grace_period_seconds)


def _merge(base: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return _copy(patch)
    merged = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged
