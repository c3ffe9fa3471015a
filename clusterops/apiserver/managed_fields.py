"""Who set which field: `metadata.managedFields`, server-side apply, and its conflicts."""

from __future__ import annotations

from typing import Any

import msgspec

from clusterops.apiserver.apply_merge import merge, without_abandoned
from clusterops.apiserver.causes import CONFLICT, Cause
from clusterops.apiserver.field_set import (
    Fields,
    compare,
    difference,
    intersection,
    leaves,
    of_applied,
    path_text,
    union,
)
from clusterops.apiserver.kind import Kind
from clusterops.apiserver.ownership import APPLY, UPDATE, Entry, read, write
from clusterops.apiserver.patch_error import PatchError

Obj = dict[str, Any]

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Nobody owns what identifies an object, nor what the server itself writes.
_UNOWNED: Fields = {"f:apiVersion": {}, "f:kind": {}}
_UNOWNED_METADATA = (
    "f:name",
    "f:namespace",
    "f:creationTimestamp",
    "f:selfLink",
    "f:uid",
    "f:generation",
    "f:managedFields",
    "f:resourceVersion",
)


def apply(
    kind: Kind,
    live: Obj | None,
    applied: Obj,
    manager: str,
    *,
    force: bool,
    now: str,
    subresource: str = "",
) -> Obj:
    """The object after `manager` applied `applied` (pruned) to `live` (None: it is created).

    Returns a new object with its `managedFields`; the caller defaults and validates it. `now` is an
    RFC 3339 time to the second. Raises PatchError: 409 Conflict with a cause for each field that
    another manager owns with another value (unless `force`), 400 for `managedFields` in the body.
    """
    if not manager:
        raise PatchError(
            400,
            "BadRequest",
            "PatchOptions.meta.k8s.io is invalid: fieldManager: "
            "Required value: is required for apply patch",
        )
    if (applied.get("metadata") or {}).get("managedFields"):
        raise PatchError(400, "BadRequest", "metadata.managedFields must be nil")
    root = kind.schema.root
    applied = _own_part(kind, applied, subresource)
    entries = read(live)
    me = Entry(manager, APPLY, subresource, kind.api_version, now, {})
    last = next((entry for entry in entries if entry.owner == me.owner), None)
    others = [entry for entry in entries if entry.owner != me.owner]
    claimed = of_applied(root, applied)

    before = live if live is not None else {"metadata": {}}
    merged: Obj = merge(root, before, applied)
    if last is not None:
        # A list that is applied empty stays, without the items given up.
        kept = of_applied(root, applied, empty_lists=True)
        for entry in others:
            kept = union(kept, entry.fields)
        merged = without_abandoned(root, merged, last.fields, kept)
    changed, removed = compare(root, _owned_view(before), _owned_view(merged))
    if changed:
        conflicts = _conflicts(others, changed)
        if conflicts and not force and not _migrates(kind, live, manager, conflicts):
            raise _conflict_error(conflicts)
        others = [entry.without(changed) for entry in others]
    if removed:
        others = [entry.without(removed) for entry in others]
    mine = me._replace(fields=_ownable(claimed))
    if last is not None and not changed and not removed and last.fields == mine.fields:
        mine = mine._replace(time=last.time)
    # The caller goes on to default the result in place: it must share nothing with its sources.
    merged = msgspec.json.decode(msgspec.json.encode(merged), type=dict[str, Any])
    if manager == "kubectl" and not subresource:
        _refresh_last_applied(live, applied, merged)
    write(merged, [mine, *others], now)
    return merged


def track_update(
    kind: Kind,
    old: Obj | None,
    new: Obj,
    manager: str,
    *,
    now: str,
    subresource: str = "",
) -> None:
    """Move the fields that differ between `old` and `new` to `manager`, operation Update, in `new`.

    `new` is whole, defaulted and validated; its `metadata.managedFields` is replaced. A client may
    send `managedFields` of its own (as kubectl's migration does), and `[{}]` to forget all.
    """
    sent = new["metadata"].get("managedFields")
    stored = (old or {}).get("metadata", {}).get("managedFields")
    own = sent and sent != stored and not subresource
    entries = read(new if own else old)
    if sent == [{}] and not subresource:
        entries = []
    before = old if old is not None else _blank(kind)
    changed, removed = compare(kind.schema.root, _owned_view(before), _owned_view(new))
    if not changed and not removed and not own:
        if stored is None:
            new["metadata"].pop("managedFields", None)
        else:
            new["metadata"]["managedFields"] = stored
        return
    changed = _ownable(changed or {})
    me = Entry(manager, UPDATE, subresource, kind.api_version, now, {})
    mine = next((entry for entry in entries if entry.owner == me.owner), me)
    others = [entry for entry in entries if entry.owner != me.owner]
    if removed:
        others = [entry.without(removed) for entry in others]
        mine = mine.without(removed)
    if changed:
        others = [entry.without(changed) for entry in others]
        mine = me._replace(fields=union(mine.fields, changed))
    write(new, [mine, *others], now)


def _blank(kind: Kind) -> Obj:
    """What a created object is compared with: built-in kinds always have a spec and a status."""
    return {"metadata": {}, "spec": {}, "status": {}} if kind.builtin else {"metadata": {}}


def _owned_view(obj: Obj) -> Obj:
    """An object without `managedFields`, which would own itself."""
    meta = obj["metadata"]
    if "managedFields" not in meta:
        return obj
    return {**obj, "metadata": {k: v for k, v in meta.items() if k != "managedFields"}}


def _own_part(kind: Kind, applied: Obj, subresource: str) -> Obj:
    """What an apply may set at all: on the object all but its status, on /status only that."""
    if "status" not in kind.subresources:
        return applied
    if subresource == "status":
        meta = applied.get("metadata") or {}
        identity = {k: meta[k] for k in ("name", "namespace", "uid") if k in meta}
        kept = {k: v for k, v in applied.items() if k in ("apiVersion", "kind", "status")}
        return {**kept, "metadata": identity}
    return {k: v for k, v in applied.items() if k != "status"}


def _ownable(fields: Fields) -> Fields:
    kept = {k: v for k, v in fields.items() if k not in _UNOWNED and k != "."}
    meta = kept.get("f:metadata")
    if meta is not None:
        meta = {k: v for k, v in meta.items() if k not in _UNOWNED_METADATA and k != "."}
        if meta:
            kept["f:metadata"] = meta
        else:
            del kept["f:metadata"]
    return kept


def _conflicts(others: list[Entry], changed: Fields) -> list[tuple[Entry, tuple[str, ...]]]:
    found = []
    for entry in sorted(others, key=lambda e: e.owner):
        common = intersection(entry.fields, changed)
        found += [(entry, path) for path in sorted(leaves(common))]
    return found


def _conflict_error(conflicts: list[tuple[Entry, tuple[str, ...]]]) -> PatchError:
    causes = [
        Cause(path_text(path), CONFLICT, f"conflict with {_named(entry)}")
        for entry, path in conflicts
    ]
    if len(conflicts) == 1:
        entry, path = conflicts[0]
        message = f"Apply failed with 1 conflict: conflict with {_named(entry)}: {path_text(path)}"
        return PatchError(409, "Conflict", message, causes)
    lines: list[str] = []
    previous: tuple[str, str, str] | None = None
    for entry, path in conflicts:
        if entry.owner != previous:
            lines.append(f"conflicts with {_named(entry)}:")
            previous = entry.owner
        lines.append(f"- {path_text(path)}")
    message = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    return PatchError(409, "Conflict", message, causes)


def _named(entry: Entry) -> str:
    text = f'"{entry.manager}"'
    if entry.subresource:
        text += f' with subresource "{entry.subresource}"'
    if entry.operation == UPDATE:
        text += f" using {entry.api_version}"
        if entry.time:
            text += f" at {entry.time}"
    return text


def _migrates(
    kind: Kind,
    live: Obj | None,
    manager: str,
    conflicts: list[tuple[Entry, tuple[str, ...]]],
) -> bool:
    """Whether kubectl only takes over what it applied client-side before, unchanged since."""
    if manager != "kubectl" or live is None:
        return False
    root = kind.schema.root
    before = _last_applied(live)
    if before is None:
        return False
    allowed = of_applied(root, before)
    changed, removed = compare(root, before, live)
    for gone in (changed, removed):
        if gone:
            allowed = difference(allowed, gone)
    members = set(leaves(allowed))
    return all(path in members for _, path in conflicts)


def _last_applied(live: Obj) -> Obj | None:
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if not isinstance(text, str):
        return None
    try:
        before: Any = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    return before if isinstance(before, dict) else None


def _refresh_last_applied(live: Obj | None, applied: Obj, merged: Obj) -> None:
    """Keeps the annotation of client-side apply true, where it is in use."""
    if live is None or LAST_APPLIED not in (live["metadata"].get("annotations") or {}):
        return
    meta = {k: v for k, v in (applied.get("metadata") or {}).items() if k != "annotations"}
    annotations = {
        k: v
        for k, v in ((applied.get("metadata") or {}).get("annotations") or {}).items()
        if k != LAST_APPLIED
    }
    if annotations:
        meta["annotations"] = annotations
    text = msgspec.json.encode({**applied, "metadata": meta}, order="sorted").decode() + "\n"
    merged["metadata"]["annotations"] = {
        **(merged["metadata"].get("annotations") or {}),
        LAST_APPLIED: text,
    }
