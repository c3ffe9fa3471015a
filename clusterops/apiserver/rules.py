"""The validation rules of a schema, found once and run on each object that passes its schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clusterops.apiserver.causes import INVALID, Cause
from clusterops.apiserver.cel import Program
from clusterops.apiserver.cel_syntax import CelError
from clusterops.apiserver.cel_values import EvaluationError
from clusterops.apiserver.structure import MISSING, Node

RuleCheck = Callable[[Any, Any, str], "list[Cause]"]
_WORDS = {"rule", "message", "messageExpression", "reason", "fieldPath"}
_REASONS = (
    "FieldValueInvalid",
    "FieldValueForbidden",
    "FieldValueRequired",
    "FieldValueDuplicate",
)


@dataclass(frozen=True)
class Rule:
    """One rule: its program, and how its failure is told."""

    program: Program
    message: str
    message_program: Program | None
    reason: str
    field_path: str

    def check(self, value: Any, old: Any, path: str, type_: str) -> Cause | None:
        """The cause when the rule does not hold for `value` at `path`."""
        if self.program.uses_old and old is MISSING:
            return None
        try:
            if self.program(value, old) is True:
                return None
            detail = self._detail(value, old)
        except EvaluationError as error:
            detail = f"rule evaluation error: {error}: {self.program.text}"
        where = (path + self.field_path).lstrip(".")
        prefix = _PREFIXES[self.reason]
        if self.reason in (_REASONS[0], _REASONS[3]):
            return Cause(where, self.reason, f'{prefix}: "{type_}": {detail}')
        return Cause(where, self.reason, f"{prefix}: {detail}")

    def _detail(self, value: Any, old: Any) -> str:
        if self.message_program is not None:
            try:
                text = self.message_program(value, old)
            except EvaluationError:
                text = None
            if isinstance(text, str) and text.strip():
                return text.strip()
        return self.message or f"failed rule: {self.program.text}"


_PREFIXES = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}


def compile_rules(raw: list[dict[str, Any]], node: Node) -> list[Rule]:
    """The rules of one node. Raises CelError, naming the rule that cannot be served."""
    rules = []
    for entry in raw:
        text = entry.get("rule", "")
        if not text:
            raise CelError("a rule needs the field `rule`")
        unknown = sorted(set(entry) - _WORDS)
        if unknown:
            raise CelError(f"rule {text!r}: {', '.join(unknown)} is not supported")
        reason = entry.get("reason", INVALID)
        if reason not in _REASONS:
            raise CelError(f"rule {text!r}: reason {reason!r} is none of {', '.join(_REASONS)}")
        expression = entry.get("messageExpression")
        try:
            rules.append(
                Rule(
                    program=Program(text, node),
                    message=entry.get("message", "").strip(),
                    message_program=Program(expression, node) if expression else None,
                    reason=reason,
                    field_path=entry.get("fieldPath", ""),
                )
            )
        except CelError as error:
            raise CelError(f"rule {text!r}: {error}") from None
    return rules


class RuleCompiler:
    """Compiles the rules of a node and of everything below it into one function."""

    def __init__(self) -> None:
        self._done: dict[Node, RuleCheck | None] = {}

    def compile(self, node: Node) -> RuleCheck | None:
        """The check of all rules below a node; None when there are none. Raises CelError."""
        if node in self._done:
            return self._done[node]
        self._done[node] = None  # a recursive definition carries no rules
        rules = compile_rules(node.raw.get("x-kubernetes-validations", []), node)
        fields = {
            name: check
            for name, child in node.properties.items()
            if (check := self.compile(child)) is not None
        }
        items = self.compile(node.items) if node.items is not None else None
        others = self.compile(node.additional) if node.additional is not None else None
        if rules or fields or items or others:
            self._done[node] = _combine(node, rules, fields, items, others)
        return self._done[node]


def _combine(
    node: Node,
    rules: list[Rule],
    fields: dict[str, RuleCheck],
    items: RuleCheck | None,
    others: RuleCheck | None,
) -> RuleCheck:
    def check(value: Any, old: Any, path: str) -> list[Cause]:
        if value is None:
            return []
        found = [
            cause
            for rule in rules
            if (cause := rule.check(value, old, path, node.type or "object")) is not None
        ]
        if type(value) is dict and (fields or others):
            before = old if type(old) is dict else {}
            if others is None:
                for name, rule in fields.items():
                    if name in value:
                        found += rule(value[name], before.get(name, MISSING), f"{path}.{name}")
                return found
            for name, item in value.items():
                inner = fields.get(name) if name in node.properties else others
                if inner is not None:
                    found += inner(item, before.get(name, MISSING), f"{path}.{name}")
        elif type(value) is list and items:
            matched = _matched_items(node, old)
            for index, item in enumerate(value):
                found += items(item, matched(item), f"{path}[{index}]")
        return found

    return check


def _matched_items(node: Node, old: Any) -> Callable[[Any], Any]:
    """Finds the former state of a list item: only lists with keys have one."""
    if node.list_type != "map" or type(old) is not list:
        return lambda _: MISSING

    def key(item: Any) -> Any:
        return tuple(item.get(k, node.key_defaults.get(k)) for k in node.map_keys)

    before = {key(item): item for item in old if type(item) is dict}
    return lambda item: before.get(key(item), MISSING)
