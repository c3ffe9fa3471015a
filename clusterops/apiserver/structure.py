"""The tree behind a schema: one `Node` a place in the object, shared where a definition repeats.

Everything that walks objects by schema (pruning, defaults, validation, field ownership, strategic
merge) walks these nodes, so that the keywords of OpenAPI are read in one place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MISSING: Any = object()
REF_PREFIX = "#/components/schemas/"


@dataclass(eq=False)
class Node:
    """What may stand at one place of an object.

    `type` is empty for anything. `list_type` is atomic, set or map (with `map_keys`); `atomic_map`
    marks an object that has one owner as a whole. `merge_key` and `merge_strategy` are those of
    strategic merge patches. `raw` holds the remaining keywords, for validation.
    """

    type: str = ""
    raw: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, Node] = field(default_factory=dict)
    additional: Node | None = None
    items: Node | None = None
    preserve: bool = False
    int_or_string: bool = False
    quantity: bool = False
    nullable: bool = False
    embedded: bool = False
    default: Any = MISSING
    list_type: str = "atomic"
    map_keys: tuple[str, ...] = ()
    key_defaults: dict[str, Any] = field(default_factory=dict)
    atomic_map: bool = False
    merge_key: str = ""
    merge_strategy: frozenset[str] = frozenset()

    def child(self, name: str) -> Node | None:
        """The node of one field of an object; None when the schema says nothing about it."""
        return self.properties.get(name) or self.additional


ANYTHING = Node(preserve=True)


def build(raw: dict[str, Any], definitions: dict[str, dict[str, Any]] | None = None) -> Node:
    """The tree of a schema; `$ref`s are looked up by their last part in `definitions`.

    Raises KeyError for a `$ref` to nothing.
    """
    return _Builder(definitions or {}).node(raw)


class _Builder:
    """Keeps one node a definition, so that recursive definitions end."""

    def __init__(self, definitions: dict[str, dict[str, Any]]) -> None:
        self._definitions = definitions
        self._shared: dict[str, Node] = {}

    def node(self, raw: dict[str, Any]) -> Node:
        """The node of one schema object."""
        reference = raw.get("$ref")
        if reference is None:
            node = Node()
            self._fill(node, raw)
            return node
        name = reference.removeprefix(REF_PREFIX)
        overrides = {k: v for k, v in raw.items() if k != "$ref"}
        if overrides:
            node = Node()
            self._fill(node, {**self._definitions[name], **overrides})
            return node
        if name not in self._shared:
            self._shared[name] = Node()
            self._fill(self._shared[name], self._definitions[name])
        return self._shared[name]

    def _fill(self, node: Node, raw: dict[str, Any]) -> None:
        node.raw = raw
        node.type = raw.get("type", "")
        node.preserve = bool(raw.get("x-kubernetes-preserve-unknown-fields"))
        node.int_or_string = bool(raw.get("x-kubernetes-int-or-string"))
        node.quantity = raw.get("format") == "quantity"
        node.nullable = bool(raw.get("nullable"))
        node.embedded = bool(raw.get("x-kubernetes-embedded-resource"))
        node.default = raw.get("default", MISSING)
        node.list_type = raw.get("x-kubernetes-list-type", "atomic")
        node.map_keys = tuple(raw.get("x-kubernetes-list-map-keys", ()))
        node.atomic_map = raw.get("x-kubernetes-map-type") == "atomic"
        node.merge_key = raw.get("x-kubernetes-patch-merge-key", "")
        strategy = raw.get("x-kubernetes-patch-strategy", "")
        node.merge_strategy = frozenset(strategy.split(",")) if strategy else frozenset()
        for name, sub in raw.get("properties", {}).items():
            node.properties[name] = self.node(sub)
        additional = raw.get("additionalProperties")
        if isinstance(additional, dict):
            node.additional = self.node(additional)
        elif additional is True:
            node.additional = ANYTHING
        if isinstance(raw.get("items"), dict):
            node.items = self.node(raw["items"])
            if node.list_type == "map":
                node.key_defaults = {
                    key: node.items.properties[key].default
                    for key in node.map_keys
                    if key in node.items.properties
                    and node.items.properties[key].default is not MISSING
                }
