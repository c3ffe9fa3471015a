"""Check values against a schema; compiled to closures that cost nothing to a valid object.

A closure returns None when all is well, else findings: a relative path, and a function that words
the cause once the whole path is known (Kubernetes repeats the path within the sentence).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

import msgspec

from clusterops.apiserver import causes
from clusterops.apiserver.causes import Cause
from clusterops.apiserver.metadata import validate_metadata
from clusterops.apiserver.structure import Node, build

Finding = tuple[str, Callable[[str], Cause]]
Findings = list[Finding] | None
Check = Callable[[Any], Findings]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)").fullmatch
_QUANTITY = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(([KMGTPE]i)|[numkMGTPE]|[eE][+-]?\d+)?").fullmatch
QUANTITY_RULE = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


def type_name(value: Any) -> str:
    """The JSON type of a value as messages call it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names = {dict: "object", list: "array", str: "string", int: "integer", float: "number"}
    return names[type(value)]


class CheckCompiler:
    """Compiles nodes into checks."""

    def __init__(self) -> None:
        self._done: dict[Node, Check | None] = {}

    def compile(self, node: Node) -> Check | None:
        """The check of a node; None when any value will do."""
        if node in self._done:
            return self._done[node]
        self._done[node] = lambda value: (self._done[node] or _fine)(value)
        check = self._compile(node)
        self._done[node] = check
        return check

    def _compile(self, node: Node) -> Check | None:
        if node.int_or_string:
            first: Check | None = _int_or_string
        elif node.type:
            first = _type_check(node)
        else:
            first = None
        rest = [check for check in (*self._bounds(node), self._children(node)) if check]
        if first is None and not rest:
            return None
        nullable = node.nullable

        def check(value: Any) -> Findings:
            if value is None and nullable:
                return None
            if first is not None:
                wrong = first(value)
                if wrong:
                    return wrong
            found: Findings = None
            for part in rest:
                more = part(value)
                if more:
                    found = found + more if found else more
            return found

        return check

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
        embedded = node.embedded

        def check(value: Any) -> Findings:
            if type(value) is not dict:
                return None
            found: Findings = None
            for name, item in value.items():
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

    def _bounds(self, node: Node) -> list[Check]:
        raw = node.raw
        checks = [make(raw) for key, make in _BOUNDS.items() if key in raw]
        if raw.get("format") in _FORMATS and node.type == "string":
            checks.append(_format_check(raw["format"]))
        if node.type == "integer" and raw.get("format") in _INTEGER_LIMITS:
            checks.append(_integer_format(raw["format"]))
        checks += [self._combined(word, raw[word]) for word in _COMBINERS if word in raw]
        return checks

    def _combined(self, word: str, raw: Any) -> Check:
        """`allOf`, `anyOf`, `oneOf` and `not`, whose parts only constrain values."""
        parts = [build(part) for part in (raw if isinstance(raw, list) else [raw])]
        inner = [self.compile(part) or _fine for part in parts]

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


_COMBINERS = {
    "allOf": "",
    "anyOf": "{path} in body must validate at least one schema (anyOf)",
    "oneOf": "{path} in body must validate one and only one schema (oneOf)",
    "not": "{path} in body must not validate the schema (not)",
}


def _fine(_value: Any) -> Findings:
    return None


def _type_check(node: Node) -> Check:
    wanted = _TYPES[node.type]
    name = node.type
    exact = len(wanted) == 1 and name != "integer"
    sole = wanted[0]

    def wrong(value: Any) -> Findings:
        shown = causes.shown(value) if isinstance(value, str) else f'"{type_name(value)}"'
        return [
            (
                "",
                lambda path: causes.type_invalid(
                    path,
                    value if isinstance(value, str | int | float | bool) else type_name(value),
                    f"{path} in body must be of type {name}: {shown}",
                ),
            )
        ]

    def check_exact(value: Any) -> Findings:
        return None if type(value) is sole else wrong(value)

    def check_number(value: Any) -> Findings:
        kind = type(value)
        if kind is int or (kind is float and (name == "number" or value.is_integer())):
            return None
        return wrong(value)

    return check_exact if exact else check_number


def _int_or_string(value: Any) -> Findings:
    if type(value) in (int, str):
        return None
    shown = type_name(value)
    return [
        (
            "",
            lambda path: causes.type_invalid(
                path, shown, f'{path} in body must be of type integer,string: "{shown}"'
            ),
        )
    ]


def _bound(holds: Callable[[Any], bool], detail: str) -> Check:
    """A check with a sentence that follows the path; `holds` says whether a value is allowed."""

    def check(value: Any) -> Findings:
        if holds(value):
            return None
        return [("", lambda path: causes.invalid(path, value, f"{path} in body {detail}"))]

    return check


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _minimum(raw: dict[str, Any]) -> Check:
    limit = raw["minimum"]
    if raw.get("exclusiveMinimum"):
        return _bound(lambda v: not _is_number(v) or v > limit, f"should be greater than {limit}")
    return _bound(
        lambda v: not _is_number(v) or v >= limit, f"should be greater than or equal to {limit}"
    )


def _maximum(raw: dict[str, Any]) -> Check:
    limit = raw["maximum"]
    if raw.get("exclusiveMaximum"):
        return _bound(lambda v: not _is_number(v) or v < limit, f"should be less than {limit}")
    return _bound(
        lambda v: not _is_number(v) or v <= limit, f"should be less than or equal to {limit}"
    )


def _multiple_of(raw: dict[str, Any]) -> Check:
    step = raw["multipleOf"]
    return _bound(lambda v: not _is_number(v) or v % step == 0, f"should be a multiple of {step}")


def _min_length(raw: dict[str, Any]) -> Check:
    limit = raw["minLength"]
    return _bound(
        lambda v: type(v) is not str or len(v) >= limit,
        f"should be at least {limit} chars long",
    )


def _max_length(raw: dict[str, Any]) -> Check:
    limit = raw["maxLength"]

    def check(value: Any) -> Findings:
        if type(value) is not str or len(value) <= limit:
            return None
        return [("", lambda path: causes.too_long(path, limit))]

    return check


def _pattern(raw: dict[str, Any]) -> Check:
    pattern = raw["pattern"]
    search = re.compile(pattern).search
    return _bound(
        lambda v: type(v) is not str or search(v) is not None, f"should match '{pattern}'"
    )


def _min_count(kind: type[list[Any]] | type[dict[str, Any]], noun: str) -> Callable[[dict[str, Any]], Check]:
    def make(raw: dict[str, Any]) -> Check:
        limit = raw["minItems" if kind is list else "minProperties"]
        return _bound(
            lambda v: type(v) is not kind or len(v) >= limit,
            f"should have at least {limit} {noun}",
        )

    return make


def _max_count(kind: type[list[Any]] | type[dict[str, Any]]) -> Callable[[dict[str, Any]], Check]:
    def make(raw: dict[str, Any]) -> Check:
        limit = raw["maxItems" if kind is list else "maxProperties"]

        def check(value: Any) -> Findings:
            if type(value) is not kind or len(value) <= limit:
                return None
            count = len(value)
            return [("", lambda path: causes.too_many(path, count, limit))]

        return check

    return make


def _enum(raw: dict[str, Any]) -> Check:
    allowed = list(raw["enum"])

    def check(value: Any) -> Findings:
        if any(value == a and type(value) is type(a) for a in allowed):
            return None
        return [("", lambda path: causes.not_supported(path, value, allowed))]

    return check


def _required(raw: dict[str, Any]) -> Check:
    names = tuple(raw["required"])

    def check(value: Any) -> Findings:
        if type(value) is not dict:
            return None
        found: Findings = None
        for name in names:
            if name not in value:
                found = found or []
                found.append((f".{name}", causes.required))
        return found

    return check


_BOUNDS: dict[str, Callable[[dict[str, Any]], Check]] = {
    "required": _required,
    "enum": _enum,
    "minimum": _minimum,
    "maximum": _maximum,
    "multipleOf": _multiple_of,
    "minLength": _min_length,
    "maxLength": _max_length,
    "pattern": _pattern,
    "minItems": _min_count(list, "items"),
    "maxItems": _max_count(list),
    "minProperties": _min_count(dict, "properties"),
    "maxProperties": _max_count(dict),
}

_INTEGER_LIMITS = {"int32": 2**31, "int64": 2**63}


def _integer_format(name: str) -> Check:
    limit = _INTEGER_LIMITS[name]

    def check(value: Any) -> Findings:
        if -limit <= value < limit:
            return None
        return [
            (
                "",
                lambda path: causes.type_invalid(
                    path, value, f"{path} in body must be of type {name}: {value}"
                ),
            )
        ]

    return check


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


_FORMATS: dict[str, Callable[[str], Any]] = {
    "date-time": _DATE_TIME,
    "byte": _is_base64,
    "quantity": _QUANTITY,
}


def _format_check(name: str) -> Check:
    matches = _FORMATS[name]

    def check(value: Any) -> Findings:
        if matches(value):
            return None
        if name == "quantity":
            return [("", lambda path: causes.type_invalid(path, value, QUANTITY_RULE))]
        return [
            (
                "",
                lambda path: causes.type_invalid(
                    path, value, f"{path} in body must be of type {name}: {causes.shown(value)}"
                ),
            )
        ]

    return check


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
                found.append((f"[{index}]", lambda path, v=wanted: causes.duplicate(path, v)))  # type: ignore[misc]
            seen.add(encoded)
        return found

    return check


def _embedded_metadata(value: dict[str, Any]) -> Findings:
    meta = value.get("metadata")
    if not isinstance(meta, dict):
        return None
    wrong = validate_metadata(meta, "", "metadata")
    return [
        (f".{cause.field}", lambda path, c=cause: c._replace(field=path))  # type: ignore[misc]
        for cause in wrong
    ] or None
