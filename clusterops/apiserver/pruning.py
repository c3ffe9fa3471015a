"""Remove what a schema does not know, and fill in what it defaults; compiled to closures.

A closure of None means that nothing below that place can need the work, so it is not visited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from clusterops.apiserver.structure import MISSING, Node

Pruner = Callable[[Any], "list[str] | None"]
Defaulter = Callable[[Any], None]

_EMBEDDED_FIELDS = ("apiVersion", "kind", "metadata")


class PruneCompiler:
    """Compiles nodes into functions that remove unknown fields and return their relative paths."""

    def __init__(self) -> None:
        self._done: dict[Node, Pruner | None] = {}

    def compile(self, node: Node) -> Pruner | None:
        """The pruner of a node, or None when nothing below can be unknown."""
        if node in self._done:
            return self._done[node]
        # A recursive definition meets itself here before it is finished.
        self._done[node] = lambda value: (self._done[node] or _nothing)(value)
        pruner: Pruner | None = None
        if node.type == "array" and node.items is not None:
            pruner = self._array(node.items)
        elif node.type == "object" or node.properties:
            pruner = self._object(node)
        self._done[node] = pruner
        return pruner

    def _array(self, items: Node) -> Pruner | None:
        inner = self.compile(items)
        if inner is None:
            return None

        def prune(value: Any) -> list[str] | None:
            if type(value) is not list:
                return None
            unknown: list[str] | None = None
            for index, item in enumerate(value):
                below = inner(item)
                if below:
                    unknown = unknown or []
                    unknown += [f"[{index}]{path}" for path in below]
            return unknown

        return prune

    def _object(self, node: Node) -> Pruner | None:
        known = {name: self.compile(child) for name, child in node.properties.items()}
        if node.embedded:
            for name in _EMBEDDED_FIELDS:
                known.setdefault(name, None)
        keep_others = node.preserve or node.additional is not None
        others = self.compile(node.additional) if node.additional is not None else None
        if keep_others and others is None and not any(known.values()):
            return None

        def prune(value: Any) -> list[str] | None:
            if type(value) is not dict:
                return None
            unknown: list[str] | None = None
            for name in tuple(value):
                inner = known.get(name, MISSING)
                if inner is MISSING:
                    if not keep_others:
                        del value[name]
                        unknown = unknown or []
                        unknown.append(f".{name}")
                        continue
                    inner = others
                if inner is not None:
                    below = inner(value[name])
                    if below:
                        unknown = unknown or []
                        unknown += [f".{name}{path}" for path in below]
            return unknown

        return prune


def _nothing(_value: Any) -> None:
    return None


class DefaultCompiler:
    """Compiles nodes into functions that drop forbidden nulls and then set defaults, in place."""

    def __init__(self) -> None:
        self._done: dict[Node, Defaulter | None] = {}

    def compile(self, node: Node) -> Defaulter | None:
        """The defaulter of a node, or None for scalars and free-form values."""
        if node in self._done:
            return self._done[node]
        self._done[node] = lambda value: (self._done[node] or _nothing)(value)
        defaulter: Defaulter | None = None
        if node.type == "array" and node.items is not None:
            defaulter = self._array(node.items)
        elif node.properties or node.additional is not None:
            defaulter = self._object(node)
        self._done[node] = defaulter
        return defaulter

    def _array(self, items: Node) -> Defaulter | None:
        inner = self.compile(items)
        if inner is None:
            return None

        def default(value: Any) -> None:
            if type(value) is list:
                for item in value:
                    inner(item)

        return default

    def _object(self, node: Node) -> Defaulter:
        below = {name: self.compile(child) for name, child in node.properties.items()}
        nullable = {name for name, child in node.properties.items() if _keeps_null(child)}
        quantities = {name for name, child in node.properties.items() if child.quantity}
        missing = [
            (name, _fresh(child.default))
            for name, child in node.properties.items()
            if child.default is not MISSING
        ]
        additional = node.additional
        others = self.compile(additional) if additional is not None else None
        others_keep_null = additional is None or _keeps_null(additional)
        others_quantity = additional is not None and additional.quantity

        def default(value: Any) -> None:
            if type(value) is not dict:
                return
            for name, item in tuple(value.items()):
                known = name in below
                if item is None:
                    if not (name in nullable if known else others_keep_null):
                        del value[name]
                    continue
                if known:
                    inner = below[name]
                    quantity = name in quantities
                else:
                    inner, quantity = others, others_quantity
                if inner is not None:
                    inner(item)
                elif quantity and type(item) in (int, float):
                    value[name] = msgspec.json.encode(item).decode()
            for name, make in missing:
                if name not in value:
                    value[name] = fresh = make()
                    inner = below[name]
                    if inner is not None:
                        inner(fresh)

        return default


def _keeps_null(node: Node) -> bool:
    return node.nullable or (node.preserve and not node.type and not node.properties)


def _fresh(default: Any) -> Callable[[], Any]:
    """A maker of copies, as defaults that are lists or objects must not be shared."""
    if isinstance(default, dict | list):
        encoded = msgspec.json.encode(default)
        return lambda: msgspec.json.decode(encoded)
    return lambda: default
