"""Deleting objects: at once, after finalizers, or after a pod's grace period."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from clusterops.apiserver.kind import Kind
from clusterops.apiserver.refusals import StatusError, bad_request, conflict, success
from clusterops.apiserver.registry import Registry
from clusterops.apiserver.state import State
from clusterops.apiserver.stored import Key, Stored, decode, encode
from clusterops.apiserver.strategy import JsonObject
from clusterops.apiserver.written_object import Outcome, as_text, is_finished

BACKGROUND, FOREGROUND, ORPHAN = "Background", "Foreground", "Orphan"
FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"
DEFAULT_GRACE_SECONDS = 30


class DeleteOptions(NamedTuple):
    """How to delete. None means that the client did not say."""

    propagation: str | None = None
    grace_seconds: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False


def delete_options(body: JsonObject, query: dict[str, str]) -> DeleteOptions:
    """Options from the body and the query, the body first. Raises 400."""
    preconditions = body.get("preconditions")
    preconditions = preconditions if isinstance(preconditions, dict) else {}
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    try:
        seconds = None if grace is None else int(grace)
    except (TypeError, ValueError):
        raise bad_request("gracePeriodSeconds must be a number of seconds") from None
    if seconds is not None and seconds < 0:
        seconds = 1  # as Kubernetes reads it
    propagation = body.get("propagationPolicy") or query.get("propagationPolicy")
    if propagation is None and body.get("orphanDependents") is True:
        propagation = ORPHAN
    if propagation not in (None, BACKGROUND, FOREGROUND, ORPHAN):
        raise bad_request(
            f'invalid propagationPolicy "{propagation}": must be Background, Foreground or Orphan'
        )
    return DeleteOptions(
        propagation,
        seconds,
        preconditions.get("uid"),
        preconditions.get("resourceVersion"),
        bool(body.get("dryRun") or query.get("dryRun")),
    )


class Deletion:
    """Deletes objects of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @property
    def _state(self) -> State:
        return self._registry.state

    async def delete(self, kind: Kind, key: Key, options: DeleteOptions) -> Outcome:
        """Delete one object, or mark it and leave the rest to finalizers or the node agent."""
        stored = self._registry.latest(kind, key)
        _check_preconditions(kind, stored, options)
        obj = decode(stored.body)
        marked = self._mark(kind, obj, options)
        gone = is_finished(obj)
        strategy = self._registry.kinds.strategy(kind)
        if not marked and not gone:
            return Outcome(200, stored.body, [])
        if options.dry_run:
            body = encode(obj)
        else:
            body = await self._registry.store(kind, stored, obj, deleted=gone)
        if gone and not strategy.returns_deleted:
            return Outcome(200, success(kind, stored.name, stored.uid), [])
        return Outcome(200, body, [])

    def _mark(self, kind: Kind, obj: JsonObject, options: DeleteOptions) -> bool:
        """Set the deletionTimestamp and finalizers that this deletion asks for; if any is new."""
        metadata = obj["metadata"]
        grace = self._grace_seconds(kind, obj, options)
        changed = _set_propagation(metadata, options.propagation)
        if "deletionTimestamp" in metadata:
            before = metadata.get("deletionGracePeriodSeconds") or 0
            asked = options.grace_seconds is not None or grace == 0
            if asked and grace < before:
                deadline = _parsed(metadata["deletionTimestamp"])
                metadata["deletionTimestamp"] = as_text(
                    deadline + timedelta(seconds=grace - before)
                )
                metadata["deletionGracePeriodSeconds"] = grace
                changed = True
            return changed
        metadata["deletionTimestamp"] = as_text(self._registry.now() + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
        if "generation" in metadata:
            metadata["generation"] += 1
        if kind.group_resource == "namespaces":
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        return True

    def _grace_seconds(self, kind: Kind, obj: JsonObject, options: DeleteOptions) -> int:
        """Only a pod that may be running somewhere gets time."""
        if kind.group_resource != "pods":
            return 0
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
            return 0
        if options.grace_seconds is not None:
            return options.grace_seconds
        declared = spec.get("terminationGracePeriodSeconds")
        return declared if isinstance(declared, int) else DEFAULT_GRACE_SECONDS

    async def delete_all(
        self,
        kind: Kind,
        namespace: str | None,
        matches: Callable[[Stored], bool],
        options: DeleteOptions,
    ) -> list[bytes]:
        """Delete what matches; the objects as they were last seen."""
        chosen = [
            stored
            for stored in self._state.collection(kind.group_resource).scan(namespace)
            if matches(stored)
        ]
        # Started together, they share transactions.
        outcomes = await asyncio.gather(
            *(self._delete_if_there(kind, stored, options) for stored in chosen)
        )
        return [stored.body for stored, done in zip(chosen, outcomes, strict=True) if done]

    async def _delete_if_there(self, kind: Kind, stored: Stored, options: DeleteOptions) -> bool:
        try:
            await self.delete(kind, stored.key, options._replace(uid=stored.uid))
        except StatusError as error:
            if error.status in (404, 409):
                return False
            raise
        return True


def _check_preconditions(kind: Kind, stored: Stored, options: DeleteOptions) -> None:
    if options.uid and options.uid != stored.uid:
        why = (
            f"Precondition failed: UID in precondition: {options.uid}, "
            f"UID in object meta: {stored.uid}"
        )
    elif options.resource_version and options.resource_version != str(stored.revision):
        why = (
            "Precondition failed: ResourceVersion in precondition: "
            f"{options.resource_version}, ResourceVersion in object meta: {stored.revision}"
        )
    else:
        return
    raise conflict(kind, stored.name, why)


def _set_propagation(metadata: JsonObject, propagation: str | None) -> bool:
    """Add or take away the finalizers that stand for a propagation policy."""
    before: list[Any] = metadata.get("finalizers") or []
    if propagation is None:
        return False
    kept = [name for name in before if name not in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)]
    wanted = {FOREGROUND: [FOREGROUND_FINALIZER], ORPHAN: [ORPHAN_FINALIZER]}.get(propagation, [])
    after = kept + wanted
    if sorted(after) == sorted(before):
        return False
    if after:
        metadata["finalizers"] = after
    else:
        metadata.pop("finalizers", None)
    return True


def _parsed(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
