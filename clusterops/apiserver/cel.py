"""Evaluates the rules of `x-kubernetes-validations`: the part of CEL that schemas of CRDs use.

An expression is compiled to a closure against the schema node it stands on, so that a misspelt
field or a function outside this subset is refused when the CRD is created, not when an object is.
Supported: fields, indexes, `has`, comparison, arithmetic, `&& || ! ?: in`, list literals, `size`,
`string`, `int`, `double`, `startsWith`, `endsWith`, `contains`, `matches`, and the macros `all`,
`exists`, `exists_one`, `filter`, `map`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from clusterops.apiserver.cel_syntax import (
    Call,
    CelError,
    Expression,
    Index,
    ListOf,
    Literal,
    Name,
    Operation,
    Select,
    parse,
)
from clusterops.apiserver.cel_values import (
    BINARY,
    CONVERSIONS,
    METHODS,
    EvaluationError,
    boolean,
    number,
    size,
    text,
)
from clusterops.apiserver.structure import Node

Variables = Mapping[str, Any]
Evaluate = Callable[[Variables], Any]
Typed = tuple[Evaluate, Node | None]
Scope = Mapping[str, Node | None]


class Program:
    """A compiled expression. `uses_old` tells whether it compares with `oldSelf`."""

    def __init__(self, text: str, node: Node) -> None:
        tree = parse(text)
        self.text = text
        self.uses_old = _mentions(tree, "oldSelf")
        self._evaluate, _ = _compile(tree, {"self": node, "oldSelf": node})

    def __call__(self, value: Any, old: Any = None) -> Any:
        """The result for one value. Raises EvaluationError."""
        return self._evaluate({"self": value, "oldSelf": old})


def _mentions(tree: Expression, name: str) -> bool:
    match tree:
        case Name(found):
            return found == name
        case Select(operand, _):
            return _mentions(operand, name)
        case Index(operand, index):
            return _mentions(operand, name) or _mentions(index, name)
        case Call(_, target, arguments):
            return any(
                _mentions(part, name) for part in (*arguments, *([target] if target else ()))
            )
        case Operation(_, parts) | ListOf(parts):
            return any(_mentions(part, name) for part in parts)
        case Literal():
            return False


def _compile(tree: Expression, scope: Scope) -> Typed:
    match tree:
        case Literal(value):
            return (lambda _: value), None
        case Name(name):
            if name not in scope:
                raise CelError(f"undeclared reference to '{name}'")
            return (lambda variables: variables[name]), scope[name]
        case Select(operand, field):
            return _select(operand, field, scope)
        case Index(operand, index):
            return _index(operand, index, scope)
        case ListOf(items):
            parts = [_compile(item, scope)[0] for item in items]
            return (lambda variables: [part(variables) for part in parts]), None
        case Operation(operator, operands):
            return _operation(operator, [_compile(part, scope) for part in operands])
        case Call():
            return _call(tree, scope)


def _field_node(node: Node | None, field: str) -> Node | None:
    """The node of a field; refuses fields that a closed schema does not have."""
    if node is None or node.preserve:
        return node.properties.get(field) if node else None
    if node.type and node.type != "object":
        raise CelError(f"type '{node.type}' does not support field selection: '{field}'")
    child = node.child(field)
    if child is None and not (node.embedded and field in ("apiVersion", "kind", "metadata")):
        raise CelError(f"undefined field '{field}'")
    return child


def _select(operand: Expression, field: str, scope: Scope) -> Typed:
    inner, node = _compile(operand, scope)
    child = _field_node(node, field)

    def evaluate(variables: Variables) -> Any:
        value = inner(variables)
        if type(value) is not dict or field not in value:
            raise EvaluationError(f"no such key: {field}")
        return value[field]

    return evaluate, child


def _index(operand: Expression, index: Expression, scope: Scope) -> Typed:
    inner, node = _compile(operand, scope)
    position, _ = _compile(index, scope)
    child = None if node is None else node.items or node.additional

    def evaluate(variables: Variables) -> Any:
        value, key = inner(variables), position(variables)
        if type(value) is list:
            if type(key) is int and 0 <= key < len(value):
                return value[key]
            raise EvaluationError(f"index out of bounds: {key}")
        if type(value) is dict and key in value:
            return value[key]
        raise EvaluationError(f"no such key: {key}")

    return evaluate, child


def _operation(operator: str, operands: list[Typed]) -> Typed:
    parts = [evaluate for evaluate, _ in operands]
    if operator == "?:":
        condition, first, second = parts
        return (
            lambda v: first(v) if boolean(condition(v)) else second(v),
            operands[1][1] or operands[2][1],
        )
    if operator in ("&&", "||"):
        return _logic(parts[0], parts[1], decisive=operator == "||"), None
    if operator == "unary !":
        return (lambda v: not boolean(parts[0](v))), None
    if operator == "unary -":
        return (lambda v: -number(parts[0](v))), None
    apply, (left, right) = BINARY[operator], parts
    return (lambda v: apply(left(v), right(v))), None


def _logic(left: Evaluate, right: Evaluate, *, decisive: bool) -> Evaluate:
    """`&&` and `||` ignore an error on one side when the other side decides."""

    def evaluate(variables: Variables) -> bool:
        try:
            if boolean(left(variables)) is decisive:
                return decisive
        except EvaluationError:
            if boolean(right(variables)) is decisive:
                return decisive
            raise
        return boolean(right(variables))

    return evaluate


def _call(call: Call, scope: Scope) -> Typed:
    name, target, arguments = call.function, call.target, call.arguments
    if name == "has" and target is None:
        return _has(arguments, scope)
    if name in _MACROS and target is not None:
        return _macro(call, scope)
    parts = [_compile(part, scope)[0] for part in (*([target] if target else ()), *arguments)]
    method = target is not None
    if method and name in METHODS and len(arguments) == 1:
        return _method(name, parts[0], parts[1], arguments[0]), None
    if name == "size" and len(parts) == 1:
        return (lambda v: size(parts[0](v))), None
    if not method and name in CONVERSIONS and len(parts) == 1:
        convert = CONVERSIONS[name]
        return (lambda v: convert(parts[0](v))), None
    raise CelError(
        f"{name}() with {len(arguments)} argument(s) is not supported by this server's CEL subset"
    )


def _has(arguments: tuple[Expression, ...], scope: Scope) -> Typed:
    if len(arguments) != 1 or not isinstance(arguments[0], Select):
        raise CelError("invalid argument to has() macro")
    select = arguments[0]
    inner, node = _compile(select.operand, scope)
    _field_node(node, select.field)

    def evaluate(variables: Variables) -> bool:
        value = inner(variables)
        return type(value) is dict and select.field in value

    return evaluate, None


def _method(name: str, target: Evaluate, argument: Evaluate, source: Expression) -> Evaluate:
    if name == "matches" and isinstance(source, Literal):
        try:
            search = re.compile(str(source.value)).search
        except re.error as error:
            raise CelError(f"invalid regular expression {source.value!r}: {error}") from None
        return lambda v: search(text(target(v))) is not None
    apply = METHODS[name]
    return lambda v: apply(text(target(v)), text(argument(v)))


_MACROS = ("all", "exists", "exists_one", "filter", "map")


def _macro(call: Call, scope: Scope) -> Typed:
    assert call.target is not None
    name, arguments = call.function, call.arguments
    if len(arguments) != 2 or not isinstance(arguments[0], Name):
        raise CelError(f"{name}() needs a variable and an expression")
    variable = arguments[0].name
    source, node = _compile(call.target, scope)
    element = node.items if node is not None else None
    body, result = _compile(arguments[1], {**scope, variable: element})

    def items(variables: Variables) -> list[Any]:
        value = source(variables)
        if type(value) is dict:
            return list(value)
        if type(value) is list:
            return value
        raise EvaluationError(f"no such overload: {name}() needs a list or a map")

    def test(variables: Variables, item: Any) -> bool:
        return boolean(body({**variables, variable: item}))

    if name == "filter":
        return (lambda v: [item for item in items(v) if test(v, item)]), node
    if name == "map":
        return (
            lambda v: [body({**v, variable: item}) for item in items(v)],
            Node(type="array", items=result) if result is not None else None,
        )
    if name == "exists_one":
        return (lambda v: sum(test(v, item) for item in items(v)) == 1), None
    return _quantifier(items, test, decisive=name == "exists"), None


def _quantifier(
    items: Callable[[Variables], list[Any]],
    test: Callable[[Variables, Any], bool],
    *,
    decisive: bool,
) -> Evaluate:
    """`exists` and `all`: as with `||` and `&&`, a deciding item outweighs errors in others."""

    def evaluate(variables: Variables) -> bool:
        failed: EvaluationError | None = None
        for item in items(variables):
            try:
                if test(variables, item) is decisive:
                    return decisive
            except EvaluationError as error:
                failed = error
        if failed is not None:
            raise failed
        return not decisive

    return evaluate
