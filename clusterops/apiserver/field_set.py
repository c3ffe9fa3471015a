"""Sets of fields, in the form that `managedFields` stores them (`fieldsV1`).

A set is a nested dict: `f:NAME` for a field, `k:{...}` for an item of a list with keys, `v:VALUE`
for an item of a list that is a set, and `.` for the thing itself. An empty dict is a leaf. How far a
set goes down is decided by the schema, never by the content.
"""

from __future__ import annotations

from typing import Any

import msgspec

from clusterops.apiserver.structure import MISSING, Node

Fields = dict[str, Any]
ITSELF = "."
_encode = msgspec.json.Encoder(order="sorted").encode


def has_parts(node: Node | None, value: Any) -> bool:
    """Whether parts of a value may have different owners."""
    kind = type(value)
    if kind is dict:
        return node is None or not node.atomic_map
    if kind is list:
        return node is not None and node.list_type != "atomic"
    return False


def item_key(node: Node, item: Any) -> str:
    """The element of a path that names one item of a list with keys, or of a set."""
    if node.list_type == "set" or type(item) is not dict:
        return "v:" + _encode(item).decode()
    keys = {k: item.get(k, node.key_defaults.get(k)) for k in node.map_keys}
    return "k:" + _encode(keys).decode()


def parts(node: Node | None, value: Any) -> list[tuple[str, Node | None, Any]]:
    """The parts of a value: path element, node, value. Only for values that have parts."""
    if type(value) is dict:
        if node is None:
            return [(f"f:{name}", None, item) for name, item in value.items()]
        child = node.child
        return [(f"f:{name}", child(name), item) for name, item in value.items()]
    assert node is not None
    return [(item_key(node, item), node.items, item) for item in value]


def of_applied(node: Node | None, value: Any, *, empty_lists: bool = False) -> Fields:
    """The fields that an applied configuration sets.

    Items of lists count as fields themselves, and so does what no struct declares: keys of maps,
    empty objects, nulls. An empty list with keys sets nothing, so that it conflicts with nobody's
    items; `empty_lists` has it mentioned nevertheless.
    """
    fields: Fields = {}
    declared = node.properties if node is not None and type(value) is dict else {}
    for element, child, item in parts(node, value):
        divisible = has_parts(child, item)
        below = of_applied(child, item, empty_lists=empty_lists) if divisible else {}
        if divisible and not below and type(item) is list and not (empty_lists and not item):
            continue
        if below and element[2:] not in declared:
            below = {ITSELF: {}, **below}
        fields[element] = below
    return fields


def of_value(node: Node | None, value: Any) -> Fields:
    """Every field of a value, what contains others included."""
    if not value or not has_parts(node, value):
        return {}
    fields: Fields = {ITSELF: {}}
    if type(value) is list:
        for element, child, item in parts(node, value):
            fields[element] = of_value(child, item)
        return fields
    # The longest part of tracking a new object: its scalars are not visited one by one.
    properties, others = (node.properties, node.additional) if node is not None else ({}, None)
    for name, item in value.items():
        if type(item) is dict or type(item) is list:
            fields["f:" + name] = of_value(properties.get(name) or others, item)
        else:
            fields["f:" + name] = {}
    return fields


def compare(node: Node | None, old: Any, new: Any) -> tuple[Fields | None, Fields | None]:
    """The fields that are new or different, and those that are gone; None for no such field.

    Equal parts are passed over at the speed of comparing dicts.
    """
    kind = type(new)
    if old == new and type(old) is kind:
        return None, None
    if type(old) is not kind or not has_parts(node, old):
        return of_value(node, new), (of_value(node, old) or None)
    if kind is dict:
        return _compare_objects(node, old, new)
    assert node is not None
    return _compare_lists(node, old, new)


def _compare_objects(
    node: Node | None, old: dict[str, Any], new: dict[str, Any]
) -> tuple[Fields | None, Fields | None]:
    changed: Fields = {}
    removed: Fields = {}
    for name, item in new.items():
        former = old.get(name, MISSING)
        if former == item and type(former) is type(item):
            continue
        child = node.child(name) if node is not None else None
        if former is MISSING:
            changed[f"f:{name}"] = of_value(child, item)
            continue
        more, less = compare(child, former, item)
        if more is not None:
            changed[f"f:{name}"] = more
        if less is not None:
            removed[f"f:{name}"] = less
    if len(old) > len(new) or old.keys() - new.keys():
        for name, item in old.items():
            if name not in new:
                child = node.child(name) if node is not None else None
                removed[f"f:{name}"] = of_value(child, item)
    return changed or None, removed or None


def _compare_lists(
    node: Node, old: list[Any], new: list[Any]
) -> tuple[Fields | None, Fields | None]:
    items = node.items
    changed: Fields = {}
    removed: Fields = {}
    # Most often a few items differ and all stand where they stood: only those need their keys.
    aligned = len(old) == len(new)
    skipped = {i for i, item in enumerate(new) if item == old[i]} if aligned else set()
    before = {item_key(node, item): item for i, item in enumerate(old) if i not in skipped}
    for index, item in enumerate(new):
        if index in skipped:
            continue
        element = item_key(node, item)
        if element not in before:
            changed[element] = of_value(items, item)
            continue
        more, less = compare(items, before.pop(element), item)
        if more is not None:
            changed[element] = more
        if less is not None:
            removed[element] = less
    for element, item in before.items():
        removed[element] = of_value(items, item)
    return changed or None, removed or None


def union(left: Fields, right: Fields) -> Fields:
    """Fields that are in either set. A leaf met with fields below becomes `.` beside them."""
    if not left or left == right:
        return right
    if not right:
        return left
    merged = dict(left)
    for element, below in right.items():
        if element not in merged:
            merged[element] = below
            continue
        mine = merged[element]
        if not mine and below:
            merged[element] = {ITSELF: {}, **below}
        elif mine and not below:
            merged[element] = {ITSELF: {}, **mine}
        else:
            merged[element] = union(mine, below)
    return merged


def difference(left: Fields, right: Fields) -> Fields:
    """Fields of `left` that are not in `right`.

    A leaf in `right` removes the field itself, not what lies below it.
    """
    if not right:
        return left
    remaining: Fields = {}
    for element, below in left.items():
        if element not in right:
            remaining[element] = below
            continue
        other = right[element]
        if not below:
            # `left` owns the thing itself; so does `right` when it is a leaf there or has `.`.
            if other and ITSELF not in other:
                remaining[element] = below
            continue
        rest = difference(below, other if other else {ITSELF: {}})
        if rest:
            remaining[element] = {} if set(rest) == {ITSELF} else rest
    return remaining


def leaves(fields: Fields, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The path of each member of a set."""
    found: list[tuple[str, ...]] = []
    for element, below in fields.items():
        if element == ITSELF:
            found.append(prefix)
        elif below:
            found += leaves(below, (*prefix, element))
        else:
            found.append((*prefix, element))
    return found


def intersection(left: Fields, right: Fields) -> Fields:
    """Fields that are in both sets."""
    common: Fields = {}
    for element, below in left.items():
        if element not in right:
            continue
        other = right[element]
        if not below and not other:
            common[element] = {}
        elif not below or not other:
            if ITSELF in (below or other):
                common[element] = {}
        else:
            both = intersection(below, other)
            if both:
                common[element] = {} if set(both) == {ITSELF} else both
    return common


def path_text(path: tuple[str, ...]) -> str:
    """A path as messages spell it: `.spec.containers[name="a"].image`."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "v":
            text += f"[={rest}]"
        else:
            keys = msgspec.json.decode(rest)
            shown = (f"{name}={_encode(value).decode()}" for name, value in keys.items())
            text += f"[{','.join(shown)}]"
    return text
