"""What one value may be: types, bounds, patterns, formats; each a check made from a schema.

A check returns None when all is well, else findings: a relative path, and a function that words
the cause once the whole path is known (Kubernetes repeats the path within the sentence).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

from clusterops.apiserver import causes
from clusterops.apiserver.causes import Cause
from clusterops.apiserver.structure import Node

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


def fine(_value: Any) -> Findings:
    """The check that everything passes."""
    return None


def sole_type(node: Node) -> type | None:
    """The only Python type that values of the node's JSON type have; None when several do."""
    wanted = _TYPES.get(node.type, ())
    return wanted[0] if len(wanted) == 1 and node.type != "integer" else None


def type_check(node: Node) -> Check:
    """The value has the JSON type of the node; true is no number."""
    name, sole = node.type, sole_type(node)

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

    return check_exact if sole is not None else check_number


def int_or_string(value: Any) -> Findings:
    """A number or a text, as ports are."""
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


_NUMBERS = (int, float)


def _wrong(value: Any, detail: str) -> Findings:
    """A finding with a sentence that follows the path."""
    return [("", lambda path: causes.invalid(path, value, f"{path} in body {detail}"))]


def _bound(holds: Callable[[Any], bool], detail: str) -> Check:
    """A check with a sentence that follows the path; `holds` says whether a value is allowed."""

    def check(value: Any) -> Findings:
        return None if holds(value) else _wrong(value, detail)

    return check


def _minimum(raw: dict[str, Any]) -> Check:
    limit = raw["minimum"]
    if raw.get("exclusiveMinimum"):

        def check_exclusive(value: Any) -> Findings:
            if value > limit if type(value) in _NUMBERS else True:
                return None
            return _wrong(value, f"should be greater than {limit}")

        return check_exclusive

    def check(value: Any) -> Findings:
        if value >= limit if type(value) in _NUMBERS else True:
            return None
        return _wrong(value, f"should be greater than or equal to {limit}")

    return check


def _maximum(raw: dict[str, Any]) -> Check:
    limit = raw["maximum"]
    if raw.get("exclusiveMaximum"):

        def check_exclusive(value: Any) -> Findings:
            if value < limit if type(value) in _NUMBERS else True:
                return None
            return _wrong(value, f"should be less than {limit}")

        return check_exclusive

    def check(value: Any) -> Findings:
        if value <= limit if type(value) in _NUMBERS else True:
            return None
        return _wrong(value, f"should be less than or equal to {limit}")

    return check


def _multiple_of(raw: dict[str, Any]) -> Check:
    step = raw["multipleOf"]
    return _bound(
        lambda v: type(v) not in _NUMBERS or v % step == 0, f"should be a multiple of {step}"
    )


def _min_length(raw: dict[str, Any]) -> Check:
    limit = raw["minLength"]

    def check(value: Any) -> Findings:
        if type(value) is not str or len(value) >= limit:
            return None
        return _wrong(value, f"should be at least {limit} chars long")

    return check


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

    def check(value: Any) -> Findings:
        if type(value) is not str or search(value) is not None:
            return None
        return _wrong(value, f"should match '{pattern}'")

    return check


def _min_count(
    kind: type[list[Any]] | type[dict[str, Any]], noun: str
) -> Callable[[dict[str, Any]], Check]:
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
    texts = frozenset(a for a in allowed if type(a) is str)

    def check(value: Any) -> Findings:
        if type(value) is str:
            if value in texts:
                return None
        elif any(value == a and type(value) is type(a) for a in allowed):
            return None
        return [("", lambda path: causes.not_supported(path, value, allowed))]

    return check


def _required(raw: dict[str, Any]) -> Check:
    names = tuple(raw["required"])
    needed = frozenset(names)

    def check(value: Any) -> Findings:
        if type(value) is not dict or value.keys() >= needed:
            return None
        found: Findings = None
        for name in names:
            if name not in value:
                found = found or []
                found.append((f".{name}", causes.required))
        return found

    return check


# Keyword -> what makes its check.
BOUNDS: dict[str, Callable[[dict[str, Any]], Check]] = {
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

INTEGER_LIMITS = {"int32": 2**31, "int64": 2**63}


def integer_format(name: str) -> Check:
    """A whole number that fits into 32 or 64 bits."""
    limit = INTEGER_LIMITS[name]

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


FORMATS: dict[str, Callable[[str], Any]] = {
    "date-time": _DATE_TIME,
    "byte": _is_base64,
    "quantity": _QUANTITY,
}


def format_check(name: str) -> Check:
    """A text of a format: a time, base64, a quantity."""
    matches = FORMATS[name]

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
