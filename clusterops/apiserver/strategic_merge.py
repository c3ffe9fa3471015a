"""Strategic merge patches: lists merged by the keys that built-in schemas name, and `$` directives.

`$patch` (replace, delete, merge), `$setElementOrder/FIELD`, `$deleteFromPrimitiveList/FIELD` and
`$retainKeys`, as kubectl writes them when it applies, edits and labels built-in kinds.
"""

from __future__ import annotations

from typing import Any

from clusterops.apiserver.patch_error import PatchError
from clusterops.apiserver.structure import Node

Obj = dict[str, Any]

DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
ELEMENT_ORDER = "$setElementOrder/"
DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"


def merge_object(node: Node | None, target: Obj, patch: Obj) -> Obj:
    """`target` with `patch` merged in; neither is changed. Raises PatchError 400."""
    directive = patch.get(DIRECTIVE)
    if directive == "replace":
        return {name: _plain(value) for name, value in patch.items() if name != DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise _malformed(f"unknown directive {DIRECTIVE}: {directive!r}")
    merged = _retained(target, patch)
    for name, value in patch.items():
        if not name.startswith("$"):
            _merge_field(node.child(name) if node else None, merged, name, value)
    for name, value in patch.items():
        field = name.removeprefix(ELEMENT_ORDER)
        if field != name and isinstance(merged.get(field), list):
            child = node.child(field) if node else None
            order = _list_of(value, name)
            merged[field] = _ordered(child, merged[field], order, _patched(patch, field))
    return merged


def _retained(target: Obj, patch: Obj) -> Obj:
    """What of the target remains before the patch's own fields come in."""
    merged = dict(target)
    if RETAIN_KEYS in patch:
        kept = _list_of(patch[RETAIN_KEYS], RETAIN_KEYS)
        merged = {name: value for name, value in merged.items() if name in kept}
    for name, value in patch.items():
        field = name.removeprefix(DELETE_PRIMITIVES)
        if field != name and isinstance(merged.get(field), list):
            gone = _list_of(value, name)
            merged[field] = [item for item in merged[field] if item not in gone]
    return merged


def _merge_field(node: Node | None, merged: Obj, name: str, value: Any) -> None:
    current = merged.get(name)
    if value is None:
        merged.pop(name, None)
    elif type(value) is dict:
        if value.get(DIRECTIVE) == "delete":
            merged.pop(name, None)
        else:
            merged[name] = merge_object(node, current if type(current) is dict else {}, value)
    elif type(value) is list and node is not None and "merge" in node.merge_strategy:
        merged[name] = _merge_list(node, current if type(current) is list else [], value)
    else:
        merged[name] = _plain(value)


def _merge_list(node: Node, current: list[Any], patch: list[Any]) -> list[Any]:
    if not node.merge_key:
        return current + [item for item in patch if item not in current]
    key = node.merge_key
    merged, fresh = list(current), []
    for item in patch:
        if type(item) is not dict:
            raise _malformed(f"an item of a list merged by {key!r} must be an object")
        if item.get(DIRECTIVE) == "replace" and set(item) == {DIRECTIVE}:
            merged = []  # the list is replaced by the other items of the patch
    for item in patch:
        if set(item) == {DIRECTIVE} and item[DIRECTIVE] == "replace":
            continue
        if key not in item:
            raise _malformed(f"map: {_shown(item)} does not contain declared merge key: {key}")
        matching = [i for i, old in enumerate(merged) if old.get(key) == item[key]]
        if item.get(DIRECTIVE) == "delete":
            merged = [old for i, old in enumerate(merged) if i not in matching]
        elif matching:
            merged[matching[0]] = merge_object(node.items, merged[matching[0]], item)
        else:
            fresh.append(merge_object(node.items, {}, item))
    return merged + fresh


def _ordered(
    node: Node | None, items: list[Any], order: list[Any], patched: list[Any]
) -> list[Any]:
    """Items in the order that `$setElementOrder` gives; those it does not name keep their place.

    An item that only the server has stands where it stood relative to the others.
    """
    key = node.merge_key if node is not None else ""

    def identity(item: Any) -> Any:
        return item.get(key) if key and type(item) is dict else item

    wanted = [identity(item) for item in order]
    for item in patched:
        if type(item) is dict and item.get(DIRECTIVE) not in (None, "merge"):
            continue
        if identity(item) not in wanted:
            raise _malformed(
                f"The order in patch list:\n{_shown(patched)}\n doesn't match "
                f"$setElementOrder list:\n{_shown(order)}"
            )
    named = sorted(
        (item for item in items if identity(item) in wanted),
        key=lambda item: wanted.index(identity(item)),
    )
    # Server-only items stay before the first named item that they stood before.
    position = {str(identity(item)): at for at, item in enumerate(items)}
    result: list[Any] = []
    others = [item for item in items if identity(item) not in wanted]
    for item in named:
        while others and position[str(identity(others[0]))] < position[str(identity(item))]:
            result.append(others.pop(0))
        result.append(item)
    return result + others


def _patched(patch: Obj, field: str) -> list[Any]:
    value = patch.get(field)
    return value if isinstance(value, list) else []


def _plain(value: Any) -> Any:
    """A value that replaces another, without nulls and directives in its objects."""
    if type(value) is dict:
        return {
            name: _plain(item)
            for name, item in value.items()
            if item is not None and not name.startswith("$")
        }
    if type(value) is list:
        return [_plain(item) for item in value]
    return value


def _list_of(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise _malformed(f"{name} must be a list")
    return value


def _shown(value: Any) -> str:
    return str(value)


def _malformed(detail: str) -> PatchError:
    return PatchError(400, "BadRequest", f"invalid strategic merge patch: {detail}")
