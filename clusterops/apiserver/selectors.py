"""Label and field selectors: parsed once, then asked for each object."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clusterops.apiserver.causes import Refused
from clusterops.apiserver.kind import Kind
from clusterops.apiserver.metadata import label_key_problem, label_value_problem

Labels = Mapping[str, str]

_TOKEN = re.compile(r"\s*(?:(?P<mark>==|!=|=|!|<|>|\(|\)|,)|(?P<word>[^\s=!<>(),]+))")


@dataclass(frozen=True)
class LabelSelector:
    """Requirements on labels, all of which must hold."""

    requirements: tuple[Callable[[Labels], bool], ...]

    def matches(self, labels: Labels | None) -> bool:
        """Whether labels satisfy every requirement."""
        labels = labels or {}
        return all(holds(labels) for holds in self.requirements)


def parse_labels(text: str) -> LabelSelector | None:
    """None for an empty text (everything). Raises Refused 400 with Kubernetes' message."""
    if not text.strip():
        return None
    return LabelSelector(tuple(_LabelParser(text).requirements()))


class _LabelParser:
    """`a=b,c!=d,e in (f,g),h notin (i),j,!k`, and `l>1`."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            assert match is not None  # every character is a mark or part of a word
            self._tokens.append(match["mark"] or match["word"])
            position = match.end()
        self._at = 0

    def requirements(self) -> list[Callable[[Labels], bool]]:
        found = [self._requirement()]
        while self._peek() == ",":
            self._at += 1
            found.append(self._requirement())
        if self._peek():
            raise _unparsable(f"found '{self._peek()}', expected: ',' or 'end of string'")
        return found

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _requirement(self) -> Callable[[Labels], bool]:
        token = self._next()
        if token == "!":
            absent = self._key(self._next())
            return lambda labels: absent not in labels
        key = self._key(token)
        operator = self._peek()
        if operator in ("", ","):
            return lambda labels: key in labels
        self._at += 1
        if operator in ("=", "==", "!="):
            return _equality(key, operator, self._value())
        if operator in ("in", "notin"):
            return _membership(key, self._values(), wanted=operator == "in")
        if operator in ("<", ">"):
            return _order(key, operator, self._value())
        raise _unparsable(
            f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt or end of string"
        )

    def _key(self, token: str) -> str:
        if not token or token in ",()=<>" or token in ("==", "!="):
            raise _unparsable(f"found '{token}', expected: identifier")
        if problem := label_key_problem(token):
            raise _unparsable(f'key: Invalid value: "{token}": {problem}')
        return token

    def _value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        value = self._next()
        if problem := label_value_problem(value):
            raise _unparsable(f'values[0][{value}]: Invalid value: "{value}": {problem}')
        return value

    def _values(self) -> set[str]:
        if self._next() != "(":
            raise _unparsable("expected: '('")
        values: set[str] = set()
        while True:
            if self._peek() in (",", ")"):
                values.add("")
            else:
                values.add(self._value())
            token = self._next()
            if token == ")":
                return values
            if token != ",":
                raise _unparsable(f"found '{token}', expected: ',' or ')'")


def _unparsable(detail: str) -> Refused:
    return Refused(400, "BadRequest", f"unable to parse requirement: {detail}")


def _equality(key: str, operator: str, value: str) -> Callable[[Labels], bool]:
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _membership(key: str, values: set[str], *, wanted: bool) -> Callable[[Labels], bool]:
    if wanted:
        return lambda labels: key in labels and labels[key] in values
    return lambda labels: key not in labels or labels[key] not in values


def _order(key: str, operator: str, value: str) -> Callable[[Labels], bool]:
    try:
        limit = int(value)
    except ValueError:
        raise _unparsable(
            f"values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
        ) from None

    def holds(labels: Labels) -> bool:
        try:
            found = int(labels[key])
        except (KeyError, ValueError):
            return False
        return found > limit if operator == ">" else found < limit

    return holds


@dataclass(frozen=True)
class FieldSelector:
    """Requirements on fields, all of which must hold.

    `name` and `namespace` are set when they must equal one value, for a shortcut.
    """

    requirements: tuple[tuple[Callable[[dict[str, Any]], str], bool, str], ...]
    name: str | None = None
    namespace: str | None = None

    def matches(self, obj: dict[str, Any]) -> bool:
        """Whether the decoded object satisfies every requirement."""
        return all((read(obj) == value) is wanted for read, wanted, value in self.requirements)


def parse_fields(text: str, kind: Kind) -> FieldSelector | None:
    """None for an empty text. Raises Refused 400 for a field that the kind cannot be selected by."""
    if not text.strip():
        return None
    requirements = []
    exact: dict[str, str] = {}
    for term in _terms(text):
        match = re.match(r"(?P<path>[^=!]+)(?P<operator>!=|==|=)(?P<value>.*)$", term, re.DOTALL)
        if match is None:
            raise Refused(
                400,
                "BadRequest",
                f"invalid selector: '{text}'; can't understand '{term}'",
            )
        path, wanted = match["path"].strip(), match["operator"] != "!="
        value = re.sub(r"\\(.)", r"\1", match["value"])
        if wanted:
            exact[path] = value
        requirements.append((_field_reader(path, kind, text), wanted, value))
    return FieldSelector(
        tuple(requirements), exact.get("metadata.name"), exact.get("metadata.namespace")
    )


def _terms(text: str) -> list[str]:
    """Split at commas that are not escaped."""
    return [term for term in re.findall(r"(?:\\.|[^,\\])+", text) if term.strip()]


def _field_reader(path: str, kind: Kind, selector: str) -> Callable[[dict[str, Any]], str]:
    names = path.split(".")
    known = path == "metadata.name" or (kind.namespaced and path == "metadata.namespace")
    if not known and path not in kind.selectable_fields:
        group = f"{kind.group}/{kind.version}" if kind.group else f"/{kind.version}"
        raise Refused(
            400,
            "BadRequest",
            f'Unable to find "{group}, Resource={kind.plural}" that match label selector "", '
            f'field selector "{selector}": field label not supported: {path}'
            if kind.builtin
            else f"field label not supported: {path}",
        )
    if path == "source" and kind.kind == "Event":
        return _event_source

    def read(obj: dict[str, Any]) -> str:
        value: Any = obj
        for name in names:
            value = value.get(name) if type(value) is dict else None
        return _as_text(value)

    # A field that is false when it is left out is selected as "false".
    if path in ("spec.unschedulable", "spec.hostNetwork"):
        return lambda obj: read(obj) or "false"
    return read


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if type(value) is bool:
        return "true" if value else "false"
    return str(value)


def _event_source(event: dict[str, Any]) -> str:
    component = (event.get("source") or {}).get("component")
    return str(component or event.get("reportingComponent") or "")
