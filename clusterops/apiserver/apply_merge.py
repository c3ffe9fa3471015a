"""How server-side apply puts a configuration into a live object, and takes out what it gave up."""

from __future__ import annotations

from typing import Any

from clusterops.apiserver.field_set import Fields, has_parts, item_key, parts
from clusterops.apiserver.structure import Node


def merge(node: Node | None, live: Any, applied: Any) -> Any:
    """`applied` laid over `live`: parts with owners of their own are merged, the rest replaced."""
    if not (has_parts(node, live) and has_parts(node, applied) and type(live) is type(applied)):
        return applied
    if type(applied) is dict:
        merged = dict(live)
        for name, value in applied.items():
            child = node.child(name) if node is not None else None
            merged[name] = merge(child, live[name], value) if name in live else value
        return merged
    assert node is not None
    return _merge_items(node, live, applied)


def _merge_items(node: Node, live: list[Any], applied: list[Any]) -> list[Any]:
    """Items matched by key; those of `applied` come in its order, others stay where they are."""
    ours = {item_key(node, item): item for item in applied}
    if len(ours) != len(applied):
        return applied  # a key twice: validation refuses it, and must still see it
    theirs = {item_key(node, item): item for item in live}
    waiting = list(ours)
    result: list[Any] = []

    def take(key: str) -> None:
        result.append(merge(node.items, theirs[key], ours[key]) if key in theirs else ours[key])

    for key, item in theirs.items():
        if key not in ours:
            result.append(item)
            continue
        # Everything of ours up to this item goes before it, unless it was taken already.
        if key in waiting:
            at = waiting.index(key) + 1
            for due in waiting[:at]:
                take(due)
            waiting = waiting[at:]
    for key in waiting:
        take(key)
    return result


def without_abandoned(node: Node | None, value: Any, last: Fields, kept: Fields) -> Any:
    """`value` without the fields of `last` that are not in `kept`.

    `last` is what an applier owned, `kept` what it and all others own now. A field given up goes
    with all below it, such as defaults that nobody owns.
    """
    if not has_parts(node, value):
        return value
    is_list = type(value) is list
    items: list[Any] = []
    fields: dict[str, Any] = {}
    for element, child, item in parts(node, value):
        if element in last:
            if element not in kept:
                continue
            if last[element]:
                item = without_abandoned(child, item, last[element], kept[element])
        if is_list:
            items.append(item)
        else:
            fields[element[2:]] = item
    return items if is_list else fields
