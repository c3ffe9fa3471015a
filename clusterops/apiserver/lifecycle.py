"""What the server does by itself: collects objects whose owners are gone, empties namespaces and
definitions that are being deleted.

Level-triggered: events only say where to look; what to do is decided from committed state, so that
a restart finds the same work again.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from clusterops.apiserver.database_file import StorageError
from clusterops.apiserver.definitions import CLEANUP_FINALIZER
from clusterops.apiserver.definitions import RESOURCE as DEFINITIONS
from clusterops.apiserver.deletion import (
    BACKGROUND,
    FOREGROUND,
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
    DeleteOptions,
    Deletion,
)
from clusterops.apiserver.kind import Kind
from clusterops.apiserver.owner_index import OwnerIndex, Place
from clusterops.apiserver.refusals import StatusError
from clusterops.apiserver.registry import NAMESPACES, Registry
from clusterops.apiserver.ring import ADDED, DELETED, Event
from clusterops.apiserver.stored import Stored, decode
from clusterops.apiserver.strategy import JsonObject
from clusterops.apiserver.written_object import is_finished

PARALLEL = 64  # places worked on at once, so that their writes share transactions
RETRY_SECONDS = 1.0  # after the disk was full or an object changed meanwhile

_log = logging.getLogger(__name__)


class Lifecycle:
    """The collector. `run` is its only task; `observe` must see every committed event."""

    def __init__(self, registry: Registry, deletion: Deletion) -> None:
        self._registry = registry
        self._deletion = deletion
        self._index = OwnerIndex()
        self._work: dict[Place, None] = {}
        self._wakeup = asyncio.Event()

    def load(self) -> None:
        """Index what is stored; whatever was under way goes on."""
        collections = self._registry.state.collections
        for collection in collections.values():
            self._index.load(collection.objects.values())
        for collection in collections.values():
            for stored in collection.objects.values():
                if stored.deleting or stored.owners:
                    self._look_at((stored.resource, stored.key))

    def observe(self, event: Event) -> None:
        """Note where there may be something to do."""
        current, previous = event.current, event.previous
        self._index.observe(event)
        place = (current.resource, current.key)
        if event.type == DELETED:
            if self._index.has_dependents(current.uid):
                for dependent in self._index.dependents(current.uid):
                    self._look_at(dependent)
            self._look_at_holders(current)
        elif current.deleting or (
            current.owners and (event.type == ADDED or previous is None
                                or previous.owners != current.owners)
        ):  # fmt: skip
            self._look_at(place)
        if previous is not None and previous.owners and previous.owners != current.owners:
            self._look_at_owners(previous)

    def _look_at(self, place: Place) -> None:
        self._work[place] = None
        self._wakeup.set()

    def _look_at_owners(self, stored: Stored) -> None:
        for uid in stored.owners:
            owner = self._index.live(uid)
            if owner is not None and owner.deleting:
                self._look_at((owner.resource, owner.key))

    def _look_at_holders(self, gone: Stored) -> None:
        """Whoever may have waited for this object to go."""
        self._look_at_owners(gone)
        for holder in ((NAMESPACES, ("", gone.namespace)), (DEFINITIONS, ("", gone.resource))):
            stored = self._registry.state.collection(holder[0]).objects.get(holder[1])
            if stored is not None and stored.deleting:
                self._look_at(holder)

    @property
    def idle(self) -> bool:
        """Whether nothing is left to look at."""
        return not self._work

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            while self._work:
                places = list(self._work)[:PARALLEL]
                outcomes = await asyncio.gather(*(self._attempt(place) for place in places))
                failed = [place for place, done in zip(places, outcomes, strict=True) if not done]
                if failed:
                    await asyncio.sleep(RETRY_SECONDS)
                    for place in failed:
                        self._look_at(place)

    async def _attempt(self, place: Place) -> bool:
        """Work on one place; whether that succeeded. A note made meanwhile is kept."""
        self._work.pop(place, None)
        try:
            await self._process(place)
        except StatusError as error:
            # Somebody was faster; the event of that write brings us back if there is more to do.
            return error.status in (404, 409)
        except StorageError as error:
            _log.warning("cannot clean up %s %s/%s yet: %s", place[0], *place[1], error)
            return False
        except Exception:
            # One broken object must not end the clean-up of all others.
            _log.exception("clean-up of %s %s/%s failed", place[0], *place[1])
        return True

    async def _process(self, place: Place) -> None:
        resource, key = place
        stored = self._registry.state.collection(resource).objects.get(key)
        if stored is None:
            return
        kind = self._registry.kinds.resource(resource)
        if kind is None:
            return
        if stored.deleting:
            await self._finish_deletion(kind, stored)
        if stored.owners:
            await self._collect(kind, stored)

    async def _finish_deletion(self, kind: Kind, stored: Stored) -> None:
        finalizers = decode(stored.body)["metadata"].get("finalizers") or []
        if ORPHAN_FINALIZER in finalizers:
            await self._release_dependents(stored)
            await self._drop_finalizer(kind, stored, ORPHAN_FINALIZER)
        elif FOREGROUND_FINALIZER in finalizers:
            if not await self._delete_dependents(stored):
                await self._drop_finalizer(kind, stored, FOREGROUND_FINALIZER)
        elif stored.resource == NAMESPACES:
            await self._empty_namespace(kind, stored)
        elif stored.resource == DEFINITIONS and CLEANUP_FINALIZER in finalizers:
            await self._empty_definition(kind, stored)

    # Owners and dependents

    async def _collect(self, kind: Kind, stored: Stored) -> None:
        """Delete an object all of whose owners are gone; forget those of several that are."""
        references = decode(stored.body)["metadata"].get("ownerReferences") or []
        gone = [reference for reference in references if self._is_gone(kind, stored, reference)]
        if not gone:
            return
        if len(gone) == len(references):
            if not stored.deleting:
                options = DeleteOptions(propagation=self._propagation(stored), uid=stored.uid)
                await self._deletion.delete(kind, stored.key, options)
            return
        uids = {reference["uid"] for reference in gone}
        await self._drop_references(kind, stored, uids)

    def _is_gone(self, kind: Kind, dependent: Stored, reference: JsonObject) -> bool:
        group = reference["apiVersion"].rpartition("/")[0]
        owner_kind = self._registry.kinds.of_type(group, reference["kind"])
        if owner_kind is None:
            return False  # a kind that we do not serve: whoever does must say that it is gone
        if owner_kind.namespaced and not kind.namespaced:
            return False  # cannot be told, as namespaces are not part of the reference
        owner = self._index.live(reference["uid"])
        if owner is None:
            return True
        return owner_kind.namespaced and owner.namespace != dependent.namespace

    def _propagation(self, stored: Stored) -> str:
        return FOREGROUND if self._index.has_dependents(stored.uid) else BACKGROUND

    async def _delete_dependents(self, owner: Stored) -> bool:
        """Delete what the owner of a foreground deletion owns; whether any of it blocks it still."""
        blocked = False
        for resource, key in self._index.dependents(owner.uid):
            stored = self._registry.state.collection(resource).objects.get(key)
            kind = self._registry.kinds.resource(resource)
            if stored is None or kind is None:
                continue
            references = decode(stored.body)["metadata"].get("ownerReferences") or []
            others = [
                reference
                for reference in references
                if reference["uid"] != owner.uid and not self._is_gone(kind, stored, reference)
            ]
            if others:
                await self._drop_references(kind, stored, {owner.uid})
                continue
            blocked = blocked or any(
                reference["uid"] == owner.uid and reference.get("blockOwnerDeletion") is True
                for reference in references
            )
            if not stored.deleting:
                options = DeleteOptions(propagation=self._propagation(stored), uid=stored.uid)
                await self._ignoring_absence(self._deletion.delete(kind, key, options))
        return blocked and self._index.has_dependents(owner.uid)

    async def _release_dependents(self, owner: Stored) -> None:
        for resource, key in self._index.dependents(owner.uid):
            stored = self._registry.state.collection(resource).objects.get(key)
            kind = self._registry.kinds.resource(resource)
            if stored is not None and kind is not None:
                await self._drop_references(kind, stored, {owner.uid})

    async def _drop_references(self, kind: Kind, stored: Stored, uids: set[str]) -> None:
        def drop(metadata: JsonObject) -> None:
            kept = [
                reference
                for reference in metadata.get("ownerReferences") or []
                if reference["uid"] not in uids
            ]
            if kept:
                metadata["ownerReferences"] = kept
            else:
                metadata.pop("ownerReferences", None)

        await self._change_metadata(kind, stored, drop)

    async def _drop_finalizer(self, kind: Kind, stored: Stored, finalizer: str) -> None:
        def drop(metadata: JsonObject) -> None:
            kept = [name for name in metadata.get("finalizers") or [] if name != finalizer]
            if kept:
                metadata["finalizers"] = kept
            else:
                metadata.pop("finalizers", None)

        await self._change_metadata(kind, stored, drop)

    async def _change_metadata(
        self, kind: Kind, stored: Stored, change: Callable[[JsonObject], None]
    ) -> None:
        """Change the newest state of an object, if it is still the same object."""
        latest = self._registry.state.collection(stored.resource).latest(stored.key)
        if latest is None or latest.uid != stored.uid:
            return
        obj = decode(latest.body)
        change(obj["metadata"])
        await self._registry.store(kind, latest, obj, deleted=is_finished(obj))

    # Containers of objects

    async def _empty_namespace(self, kind: Kind, stored: Stored) -> None:
        """Delete everything in a namespace; the namespace itself when nothing is left."""
        left = False
        for collection in tuple(self._registry.state.collections.values()):
            objects = collection.scan(stored.name) if stored.name else []
            left = left or bool(objects)
            await self._delete_all(collection.resource, objects)
        if left:
            return  # the deletion of the last of them brings us back
        latest = self._registry.state.collection(NAMESPACES).latest(stored.key)
        if latest is None or latest.uid != stored.uid:
            return
        obj = decode(latest.body)
        if obj.get("spec", {}).pop("finalizers", None):
            await self._registry.store(kind, latest, obj, deleted=is_finished(obj))

    async def _empty_definition(self, kind: Kind, stored: Stored) -> None:
        """Delete all objects of a kind; its definition when nothing is left."""
        collection = self._registry.state.collection(stored.name)
        await self._delete_all(collection.resource, collection.scan())
        if not collection.objects and not collection.staged:
            await self._drop_finalizer(kind, stored, CLEANUP_FINALIZER)

    async def _delete_all(self, resource: str, objects: list[Stored]) -> None:
        kind = self._registry.kinds.resource(resource)
        state = self._registry.state
        waiting: list[Any] = []
        for stored in objects:
            if kind is None:
                # Left from a kind that is no longer served: nothing else would ever remove it.
                revision = state.next_revision()
                last = _at_revision(stored, revision)
                waiting.append(state.stage(last, deleted=True))
            elif not stored.deleting:
                options = DeleteOptions(propagation=BACKGROUND, uid=stored.uid)
                waiting.append(
                    self._ignoring_absence(self._deletion.delete(kind, stored.key, options))
                )
        await asyncio.gather(*waiting)

    async def _ignoring_absence(self, deletion: Coroutine[Any, Any, Any]) -> None:
        try:
            await deletion
        except StatusError as error:
            if error.status not in (404, 409):
                raise


def _at_revision(stored: Stored, revision: int) -> Stored:
    return Stored(
        resource=stored.resource,
        namespace=stored.namespace,
        name=stored.name,
        created=stored.created,
        revision=revision,
        uid=stored.uid,
        owners=stored.owners,
        deleting=True,
        body=stored.body,
    )
