"""What is done to a pod besides changing it: placing it on a node, and evicting it."""

from dataclasses import replace
from typing import Any

from clusterops.apiserver.answers import send_body
from clusterops.apiserver.causes import required
from clusterops.apiserver.deletion import Deletion, delete_options
from clusterops.apiserver.kind import Kind
from clusterops.apiserver.refusals import StatusError, bad_request, conflict, success
from clusterops.apiserver.registry import Registry
from clusterops.apiserver.request import Request, Target
from clusterops.apiserver.stored import decode
from clusterops.apiserver.writes import body_object, write_options


class PodActions:
    """POST of pods/binding and pods/eviction."""

    def __init__(self, registry: Registry, deletion: Deletion) -> None:
        self._registry = registry
        self._deletion = deletion

    async def bind(self, request: Request, target: Target) -> None:
        """Assign a pod to a node, once."""
        options = write_options(request)
        binding = await body_object(request)
        node = binding.get("target")
        node = node.get("name") if isinstance(node, dict) else None
        if not isinstance(node, str) or not node:
            cause = required("target.name")
            raise StatusError(422, "Invalid", f'Binding "{target.name}" is invalid: {cause}',
                              [cause])  # fmt: skip
        kind = target.kind
        stored = self._registry.latest(kind, target.key)
        pod = decode(stored.body)
        self._check(kind, pod, binding)
        if assigned := pod.setdefault("spec", {}).get("nodeName"):
            why = f'pod {target.name} is already assigned to node "{assigned}"'
            raise conflict(_binding_of(kind), target.name, why)
        pod["spec"]["nodeName"] = node
        _mark_scheduled(pod, self._registry.now_text())
        if not options.dry_run:
            await self._registry.store(kind, stored, pod, deleted=False)
        await send_body(request.send, 201, success(code=201))

    def _check(self, kind: Kind, pod: dict[str, Any], binding: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        wanted = binding.get("metadata")
        uid = wanted.get("uid") if isinstance(wanted, dict) else None
        if uid and uid != metadata["uid"]:
            why = (
                f"Precondition failed: UID in precondition: {uid}, "
                f"UID in object meta: {metadata['uid']}"
            )
            raise conflict(kind, metadata["name"], why)
        if "deletionTimestamp" in metadata:
            why = f"pod {metadata['name']} is being deleted, cannot be assigned to a host"
            raise conflict(_binding_of(kind), metadata["name"], why)

    async def evict(self, request: Request, target: Target) -> None:
        """Delete a pod with its grace period."""
        eviction = await body_object(request)
        name = (eviction.get("metadata") or {}).get("name")
        if name and name != target.name:
            raise bad_request(f"name in URL does not match name in Eviction object: {name}")
        options = eviction.get("deleteOptions")
        if options is not None and not isinstance(options, dict):
            raise bad_request("deleteOptions of an eviction must be an object")
        chosen = delete_options(options or {}, request.query)
        await self._deletion.delete(target.kind, target.key, chosen)
        await send_body(request.send, 201, success(code=201))


def _binding_of(kind: Kind) -> Kind:
    """Conflicts of a binding name `pods/binding`."""
    return replace(kind, plural="pods/binding")


def _mark_scheduled(pod: dict[str, Any], now: str) -> None:
    status = pod.setdefault("status", {})
    conditions = [
        condition
        for condition in status.get("conditions") or []
        if condition.get("type") != "PodScheduled"
    ]
    conditions.append(
        {"type": "PodScheduled", "status": "True", "lastProbeTime": None,
         "lastTransitionTime": now}
    )  # fmt: skip
    status["conditions"] = conditions
