"""Creating and changing objects as Kubernetes does.

Each write is one step in the event loop: it takes the latest staged state, computes the new object
and stages it; then it waits until that is durable. So no write ever sees half of another, and a
conflict is a conflict of revisions, never of timing.
"""

from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any

from clusterops.apiserver import managed_fields
from clusterops.apiserver.causes import TYPE_INVALID, Cause
from clusterops.apiserver.kind import Kind
from clusterops.apiserver.kind_set import KindSet
from clusterops.apiserver.refusals import (
    StatusError,
    already_exists,
    bad_request,
    cannot_decode,
    conflict,
    forbidden,
    invalid_object,
    method_not_allowed,
    not_found,
    strict_patch,
)
from clusterops.apiserver.schema import Schema
from clusterops.apiserver.state import State
from clusterops.apiserver.stored import Key, Stored, decode, encode, from_object
from clusterops.apiserver.strategy import JsonObject, Strategy
from clusterops.apiserver.written_object import (
    STRICT,
    Outcome,
    WriteOptions,
    as_text,
    check_namespace,
    check_type,
    is_finished,
    keep_system_metadata,
    metadata_of,
    refuse_unknown,
    restrict,
    unknown_fields,
    warnings_of,
)

NAMESPACES = "namespaces"
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels: no words
_NAME_LIMIT = 63


class Registry:
    """All writes but deletions. `now` is a wall clock in UTC, `new_uid` makes uids."""

    def __init__(
        self,
        state: State,
        kinds: KindSet,
        *,
        now: Callable[[], datetime],
        new_uid: Callable[[], str],
        random: Random,
    ) -> None:
        self.state = state
        self.kinds = kinds
        self.now = now
        self._new_uid = new_uid
        self._random = random

    def now_text(self) -> str:
        """The time as the API writes it, to the second."""
        return as_text(self.now())

    def latest(self, kind: Kind, key: Key) -> Stored:
        """The object as a writer sees it. Raises NotFound."""
        stored = self.state.collection(kind.group_resource).latest(key)
        if stored is None:
            raise not_found(kind, key[1])
        return stored

    # Creation

    async def create(
        self, kind: Kind, namespace: str, obj: JsonObject, options: WriteOptions
    ) -> Outcome:
        """Store a new object. `namespace` is the one of the path, "" when cluster-scoped."""
        check_type(kind, obj)
        unknown = kind.schema.prune(obj)
        refuse_unknown(kind, unknown, options)
        return await self._create(kind, namespace, obj, options, unknown, tracked=False)

    async def _create(
        self,
        kind: Kind,
        namespace: str,
        obj: JsonObject,
        options: WriteOptions,
        unknown: list[str],
        *,
        tracked: bool,
    ) -> Outcome:
        metadata = metadata_of(kind, obj)
        check_namespace(kind, namespace, metadata)
        if metadata.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        if self.kinds.is_terminating(kind):
            raise method_not_allowed(kind.plural)
        self._require_namespace(kind, namespace, metadata)
        collection = self.state.collection(kind.group_resource)
        strategy = self.kinds.strategy(kind)
        now = self.now_text()
        self._complete_metadata(metadata, now, strategy.counts_generation)
        name = self._choose_name(metadata, namespace, collection.latest)
        strategy.prepare_create(obj)
        kind.schema.default(obj)
        self._refuse_invalid(kind, obj, None, strategy, None)
        key = (namespace, name)
        if collection.latest(key) is not None:
            raise already_exists(kind, name)
        if not tracked:
            managed_fields.track_update(kind, None, obj, options.manager, now=now)
        if options.dry_run:
            return Outcome(201, encode(obj), warnings_of(unknown, options))
        stored = self._stored(kind, key, None, obj, kind.schema)
        await self.state.write(stored)
        return Outcome(201, stored.body, warnings_of(unknown, options))

    def _complete_metadata(self, metadata: JsonObject, now: str, counts_generation: bool) -> None:
        for name in ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            metadata.pop(name, None)
        metadata["uid"] = self._new_uid()
        metadata["creationTimestamp"] = now
        if counts_generation:
            metadata["generation"] = 1

    def _choose_name(
        self, metadata: JsonObject, namespace: str, latest: Callable[[Key], Stored | None]
    ) -> str:
        name, prefix = metadata.get("name"), metadata.get("generateName")
        if not name and prefix and isinstance(prefix, str):
            for _attempt in range(8):
                suffix = "".join(self._random.choices(_SUFFIX_LETTERS, k=5))
                name = metadata["name"] = prefix[: _NAME_LIMIT - 5] + suffix
                if latest((namespace, name)) is None:
                    break
        return str(name or "")

    def _require_namespace(self, kind: Kind, namespace: str, metadata: JsonObject) -> None:
        if not kind.namespaced:
            return
        found = self.state.collection(NAMESPACES).latest(("", namespace))
        if found is None:
            details = {"name": namespace, "kind": NAMESPACES}
            message = f'namespaces "{namespace}" not found'
            raise StatusError(404, "NotFound", message, details=details)
        if found.deleting:
            why = (
                f"unable to create new content in namespace {namespace} "
                "because it is being terminated"
            )
            cause = Cause("metadata.namespace", "NamespaceTerminating",
                          f"namespace {namespace} is being terminated")  # fmt: skip
            raise forbidden(kind, str(metadata.get("name") or ""), why, [cause])

    # Changes

    async def replace(
        self,
        kind: Kind,
        key: Key,
        obj: JsonObject,
        options: WriteOptions,
        subresource: str = "",
    ) -> Outcome:
        """PUT: the object becomes `obj`."""
        check_type(kind, obj)
        metadata = metadata_of(kind, obj)
        check_namespace(kind, key[0], metadata)
        if metadata.get("name") != key[1]:
            raise bad_request(
                f"the name of the object ({metadata.get('name', '')}) does not match the name on "
                f"the URL ({key[1]})"
            )
        unknown = kind.schema.prune(obj)
        refuse_unknown(kind, unknown, options)
        strategy = self.kinds.strategy(kind)
        stored = self.state.collection(kind.group_resource).latest(key)
        if stored is None:
            if strategy.creates_on_update and not subresource:
                metadata.pop("resourceVersion", None)
                return await self._create(kind, key[0], obj, options, unknown, tracked=False)
            raise not_found(kind, key[1])
        if not metadata.get("resourceVersion") and not strategy.unconditional_update:
            cause = Cause("metadata.resourceVersion", "FieldValueInvalid",
                          'Invalid value: "": must be specified for an update')  # fmt: skip
            raise invalid_object(kind, key[1], [cause])
        live = decode(stored.body)
        return await self._update(kind, stored, live, obj, options, subresource, unknown)

    async def change(
        self,
        kind: Kind,
        key: Key,
        changed: Callable[[JsonObject], Any],
        options: WriteOptions,
        subresource: str = "",
    ) -> Outcome:
        """Any other PATCH than apply: the object becomes `changed(live)`, which leaves `live` be."""
        stored = self.latest(kind, key)
        live = decode(stored.body)
        new = changed(live)
        if not isinstance(new, dict):
            raise cannot_decode(kind, "the patch leaves no object")
        metadata = metadata_of(kind, new)
        check_type(kind, new)
        if metadata.get("name") != key[1]:
            raise bad_request("the name of an object cannot be changed by a patch")
        check_namespace(kind, key[0], metadata)
        patched = encode(new) if options.validation == STRICT else b""
        unknown = kind.schema.prune(new)
        if unknown and options.validation == STRICT:
            raise strict_patch(patched.decode(), unknown_fields(unknown))
        return await self._update(kind, stored, live, new, options, subresource, unknown)

    async def apply(
        self,
        kind: Kind,
        key: Key,
        applied: JsonObject,
        options: WriteOptions,
        *,
        force: bool,
        subresource: str = "",
    ) -> Outcome:
        """Server-side apply: what `applied` says becomes the manager's, the rest stays."""
        check_type(kind, applied)
        metadata = metadata_of(kind, applied)
        check_namespace(kind, key[0], metadata)
        if metadata.setdefault("name", key[1]) != key[1]:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on "
                f"the URL ({key[1]})"
            )
        unknown = kind.schema.prune(applied)
        refuse_unknown(kind, unknown, options)
        stored = self.state.collection(kind.group_resource).latest(key)
        if stored is None and subresource:
            raise not_found(kind, key[1])
        live = decode(stored.body) if stored is not None else None
        if stored is None and (uid := metadata.get("uid")):
            raise conflict(kind, key[1], f"uid mismatch: the provided object specified uid {uid}, "
                           "and no existing object was found")  # fmt: skip
        if "status" in kind.subresources:
            restrict(applied, subresource)
        new = managed_fields.apply(
            kind,
            live,
            applied,
            options.manager,
            force=force,
            now=self.now_text(),
            subresource=subresource,
        )
        if stored is None or live is None:
            return await self._create(kind, key[0], new, options, unknown, tracked=True)
        wanted = metadata.get("resourceVersion")
        if wanted:
            new["metadata"]["resourceVersion"] = wanted
        return await self._update(
            kind, stored, live, new, options, subresource, unknown, tracked=True
        )

    async def _update(
        self,
        kind: Kind,
        stored: Stored,
        live: JsonObject,
        new: JsonObject,
        options: WriteOptions,
        subresource: str,
        unknown: list[str],
        *,
        tracked: bool = False,
    ) -> Outcome:
        """The one place where a stored object changes."""
        strategy = self.kinds.strategy(kind)
        self._check_identity(kind, stored, new["metadata"])
        if subresource == "status":
            new = strategy.prepare_status(new, live)
        keep_system_metadata(new["metadata"], live["metadata"])
        if not subresource:
            strategy.prepare_update(new, live)
        kind.schema.default(new)
        warnings = warnings_of(unknown, options)
        if new == live:
            return Outcome(200, stored.body, warnings)
        self._refuse_invalid(kind, new, live, strategy, stored.valid_for)
        if (
            strategy.counts_generation
            and not subresource
            and strategy.specification_changed(new, live)
        ):
            new["metadata"]["generation"] = live["metadata"].get("generation", 0) + 1
        if not tracked:
            managed_fields.track_update(
                kind, live, new, options.manager, now=self.now_text(), subresource=subresource
            )
        if new == live:
            return Outcome(200, stored.body, warnings)
        if options.dry_run:
            return Outcome(200, encode(new), warnings)
        updated = self._stored(kind, stored.key, stored, new, kind.schema)
        await self.state.write(updated, deleted=is_finished(new))
        return Outcome(200, updated.body, warnings)

    def _check_identity(self, kind: Kind, stored: Stored, metadata: JsonObject) -> None:
        uid = metadata.get("uid")
        if uid and uid != stored.uid:
            raise conflict(
                kind,
                stored.name,
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored.uid}",
            )
        wanted = metadata.get("resourceVersion")
        if wanted and wanted != str(stored.revision):
            raise conflict(kind, stored.name)

    async def store(self, kind: Kind, stored: Stored, obj: JsonObject, *, deleted: bool) -> bytes:
        """Store what the server itself changed in an object (deletion, binding); its new bytes."""
        updated = self._stored(kind, stored.key, stored, obj)
        await self.state.write(updated, deleted=deleted)
        return updated.body

    def _stored(
        self,
        kind: Kind,
        key: Key,
        before: Stored | None,
        obj: JsonObject,
        valid_for: Schema | None = None,
    ) -> Stored:
        revision = self.state.next_revision()
        obj["metadata"]["resourceVersion"] = str(revision)
        created = before.created if before is not None else revision
        return from_object(kind.group_resource, key, created, revision, obj, valid_for)

    def _refuse_invalid(
        self,
        kind: Kind,
        obj: JsonObject,
        old: JsonObject | None,
        strategy: Strategy,
        old_valid_for: object,
    ) -> None:
        old_is_valid = old_valid_for is kind.schema
        causes = kind.schema.validate(obj, old, old_is_valid=old_is_valid) or strategy.validate(obj)
        if not causes:
            return
        if kind.builtin and any(cause.reason == TYPE_INVALID for cause in causes):
            wrong = next(cause for cause in causes if cause.reason == TYPE_INVALID)
            raise cannot_decode(kind, str(wrong))
        raise invalid_object(kind, str(obj["metadata"].get("name") or ""), causes)
