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

    def _field(self, child: Node) -> Pruner | None:
        return _spelled_quantity if child.quantity else self.compile(child)

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
        known = {name: self._field(child) for name, child in node.properties.items()}
        if node.embedded:
            for name in _EMBEDDED_FIELDS:
                known.setdefault(name, None)
        keep_others = node.preserve or node.additional is not None
        others = self._field(node.additional) if node.additional is not None else None
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
                if inner is None:
                    continue
                if inner is _spelled_quantity:
                    value[name] = _as_quantity(value[name])
                elif below := inner(value[name]):
                    unknown = unknown or []
                    unknown += [f".{name}{path}" for path in below]
            return unknown

        return prune


def _nothing(_value: Any) -> None:
    return None


def _spelled_quantity(_value: Any) -> None:
    """Stands for a quantity: a number there becomes the text that quantities are."""


def _as_quantity(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if type(value) in (int, float) else value


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
        missing = [
            (name, _fresh(child.default))
            for name, child in node.properties.items()
            if child.default is not MISSING
        ]
        additional = node.additional
        others = self.compile(additional) if additional is not None else None
        others_keep_null = additional is None or _keeps_null(additional)

        def default(value: Any) -> None:
            if type(value) is not dict:
                return
            dropped: list[str] | None = None
            for name, item in value.items():
                if item is None:
                    if not (name in nullable if name in below else others_keep_null):
                        dropped = dropped or []
                        dropped.append(name)
                    continue
                inner = below.get(name, others)
                if inner is not None:
                    inner(item)
            if dropped is not None:
                for name in dropped:
                    del value[name]
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
