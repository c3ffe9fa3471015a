"""Check values against a schema; compiled to closures that cost nothing to a valid object."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from clusterops.apiserver import causes
from clusterops.apiserver.causes import Cause
from clusterops.apiserver.constraints import (
    BOUNDS,
    FORMATS,
    INTEGER_LIMITS,
    Check,
    Findings,
    fine,
    format_check,
    int_or_string,
    integer_format,
    sole_type,
    type_check,
)
from clusterops.apiserver.metadata import validate_metadata
from clusterops.apiserver.structure import Node, build


class CheckCompiler:
    """Compiles nodes into checks."""

    def __init__(self) -> None:
        self._done: dict[Node, Check | None] = {}

    def compile(self, node: Node) -> Check | None:
        """The check of a node; None when any value will do."""
        if node in self._done:
            return self._done[node]
        self._done[node] = lambda value: (self._done[node] or fine)(value)
        check = self._compile(node)
        self._done[node] = check
        return check

    def compile_apart(self, node: Node) -> tuple[Check | None, Check | None]:
        """The check of a node in two: of the value as a whole, and of its parts."""
        return self._joined(node, self._bounds(node)), self._children(node)

    def _compile(self, node: Node) -> Check | None:
        children = self._children(node)
        return self._joined(node, [*self._bounds(node), *([children] if children else ())])

    def _joined(self, node: Node, rest: list[Check]) -> Check | None:
        """The check of a node's type and then the rest."""
        if node.int_or_string:
            first: Check | None = int_or_string
        elif node.type:
            first = type_check(node)
        else:
            first = None
        if first is None and not rest:
            return None
        sole = None if node.int_or_string else sole_type(node)
        return _joined(first, tuple(rest), sole, node.nullable)

    def _children(self, node: Node) -> Check | None:
        if node.items is not None:
            return self._items(node)
        if node.properties or node.additional is not None or node.embedded:
            return self._fields(node)
        return None

    def _items(self, node: Node) -> Check | None:
        assert node.items is not None
        inner = self.compile(node.items)
        unique = _uniqueness(node)
        if inner is None and unique is None:
            return None

        def check(value: Any) -> Findings:
            if type(value) is not list:
                return None
            found: Findings = None
            if inner is not None:
                for index, item in enumerate(value):
                    wrong = inner(item)
                    if wrong:
                        found = found or []
                        found += [(f"[{index}]{path}", make) for path, make in wrong]
            if unique is not None and not found:
                found = unique(value)
            return found

        return check

    def _fields(self, node: Node) -> Check:
        known = {name: self.compile(child) for name, child in node.properties.items()}
        others = self.compile(node.additional) if node.additional is not None else None
        # Most fields are of a plain type: those are passed over without a call.
        plain = {name: self._plain_type(child) for name, child in node.properties.items()}
        plain_others = self._plain_type(node.additional) if node.additional is not None else None
        embedded = node.embedded

        def check(value: Any) -> Findings:
            if type(value) is not dict:
                return None
            found: Findings = None
            for name, item in value.items():
                if type(item) is plain.get(name, plain_others):
                    continue
                inner = known.get(name, others)
                if inner is not None:
                    wrong = inner(item)
                    if wrong:
                        found = found or []
                        found += [(f".{name}{path}", make) for path, make in wrong]
            if embedded and not found:
                found = _embedded_metadata(value)
            return found

        return check

    def _plain_type(self, node: Node) -> type | None:
        """The Python type that is all the check of a node asks for; None when it asks for more."""
        parts = node.properties or node.items or node.additional or node.embedded
        if parts or node.int_or_string or self._bounds(node):
            return None
        return sole_type(node)

    def _bounds(self, node: Node) -> list[Check]:
        raw = node.raw
        checks = [make(raw) for key, make in BOUNDS.items() if key in raw]
        if raw.get("format") in FORMATS and node.type == "string":
            checks.append(format_check(raw["format"]))
        if node.type == "integer" and raw.get("format") in INTEGER_LIMITS:
            checks.append(integer_format(raw["format"]))
        checks += [self._combined(word, raw[word]) for word in _COMBINERS if word in raw]
        return checks

    def _combined(self, word: str, raw: Any) -> Check:
        """`allOf`, `anyOf`, `oneOf` and `not`, whose parts only constrain values."""
        parts = [build(part) for part in (raw if isinstance(raw, list) else [raw])]
        inner = [self.compile(part) or fine for part in parts]

        def check(value: Any) -> Findings:
            results = [part(value) for part in inner]
            valid = sum(1 for result in results if not result)
            if word == "allOf":
                merged = [finding for result in results for finding in result or ()]
                return merged or None
            ok = {"anyOf": valid > 0, "oneOf": valid == 1, "not": valid == 0}[word]
            if ok:
                return None
            text = _COMBINERS[word]
            return [("", lambda path: causes.invalid(path, value, text.format(path=path)))]

        return check


def _joined(
    first: Check | None, rest: tuple[Check, ...], sole: type | None, nullable: bool
) -> Check:
    """Type first, and only when that is right all the rest. `sole` is the type `first` wants."""
    only = rest[0] if len(rest) == 1 else None

    def check(value: Any) -> Findings:
        if type(value) is not sole:
            if value is None and nullable:
                return None
            if first is not None and (wrong := first(value)):
                return wrong
        if only is not None:
            return only(value)
        found: Findings = None
        for part in rest:
            more = part(value)
            if more:
                found = found + more if found else more
        return found

    return check


_COMBINERS = {
    "allOf": "",
    "anyOf": "{path} in body must validate at least one schema (anyOf)",
    "oneOf": "{path} in body must validate one and only one schema (oneOf)",
    "not": "{path} in body must not validate the schema (not)",
}


def _uniqueness(node: Node) -> Check | None:
    """No item twice in a set, no key twice in a map; lists of other types may repeat."""
    if node.list_type == "map":
        keys, defaults = node.map_keys, node.key_defaults

        def identity(item: Any) -> Any:
            return {k: item.get(k, defaults.get(k)) for k in keys}

    elif node.list_type == "set":

        def identity(item: Any) -> Any:
            return item

    else:
        return None

    def check(value: Any) -> Findings:
        if len(value) < 2:
            return None
        seen: set[bytes] = set()
        found: Findings = None
        for index, item in enumerate(value):
            if item is None:
                continue
            wanted = identity(item)
            encoded = msgspec.json.encode(wanted, order="sorted")
            if encoded in seen:
                found = found or []
                found.append((f"[{index}]", partial(_duplicate, wanted)))
            seen.add(encoded)
        return found

    return check


def _embedded_metadata(value: dict[str, Any]) -> Findings:
    meta = value.get("metadata")
    if not isinstance(meta, dict):
        return None
    wrong = validate_metadata(meta, "", "metadata")
    return [(f".{cause.field}", partial(_cause_at, cause)) for cause in wrong] or None


def _duplicate(value: Any, path: str) -> Cause:
    return causes.duplicate(path, value)


def _cause_at(cause: Cause, path: str) -> Cause:
    return cause._replace(field=path)
