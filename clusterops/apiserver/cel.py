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
from clusterops.apiserver.structure import Node

Variables = Mapping[str, Any]
Evaluate = Callable[[Variables], Any]
Typed = tuple[Evaluate, Node | None]
Scope = Mapping[str, Node | None]

_INT_LIMIT = 2**63


class EvaluationError(Exception):
    """An expression met a value it cannot work on, such as a missing field."""


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
            lambda v: first(v) if _boolean(condition(v)) else second(v),
            operands[1][1] or operands[2][1],
        )
    if operator in ("&&", "||"):
        return _logic(parts[0], parts[1], decisive=operator == "||"), None
    if operator == "unary !":
        return (lambda v: not _boolean(parts[0](v))), None
    if operator == "unary -":
        return (lambda v: -_number(parts[0](v))), None
    apply, (left, right) = _BINARY[operator], parts
    return (lambda v: apply(left(v), right(v))), None


def _logic(left: Evaluate, right: Evaluate, *, decisive: bool) -> Evaluate:
    """`&&` and `||` ignore an error on one side when the other side decides."""

    def evaluate(variables: Variables) -> bool:
        try:
            if _boolean(left(variables)) is decisive:
                return decisive
        except EvaluationError:
            if _boolean(right(variables)) is decisive:
                return decisive
            raise
        return _boolean(right(variables))

    return evaluate


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise EvaluationError("no such overload: a condition must be a bool")
    return value


def _number(value: Any) -> Any:
    if type(value) not in (int, float):
        raise EvaluationError("no such overload: a number is needed")
    return value


def _same_order(left: Any, right: Any) -> None:
    numbers = (int, float)
    if (type(left) in numbers and type(right) in numbers) or (
        type(left) is type(right) and type(left) in (str, bool)
    ):
        return
    raise EvaluationError("no such overload: values of different types have no order")


def _less(left: Any, right: Any) -> bool:
    _same_order(left, right)
    return bool(left < right)


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def _add(left: Any, right: Any) -> Any:
    if type(left) is type(right) and type(left) in (str, list):
        return left + right
    return _bounded(_number(left) + _number(right))


def _bounded(result: Any) -> Any:
    if type(result) is int and not -_INT_LIMIT <= result < _INT_LIMIT:
        raise EvaluationError("integer overflow")
    return result


def _divide(left: Any, right: Any) -> Any:
    if type(left) is int and type(right) is int:
        if right == 0:
            raise EvaluationError("division by zero")
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if _number(right) == 0:
        raise EvaluationError("division by zero")
    return _number(left) / right


def _modulus(left: Any, right: Any) -> int:
    if type(left) is not int or type(right) is not int:
        raise EvaluationError("no such overload: % needs integers")
    if right == 0:
        raise EvaluationError("modulus by zero")
    return int(left - right * _divide(left, right))


def _contained(left: Any, right: Any) -> bool:
    if type(right) is dict:
        return left in right
    if type(right) is list:
        return any(_equal(left, item) for item in right)
    raise EvaluationError("no such overload: `in` needs a list or a map")


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _less,
    "<=": lambda left, right: not _less(right, left),
    ">": lambda left, right: _less(right, left),
    ">=": lambda left, right: not _less(left, right),
    "in": _contained,
    "+": _add,
    "-": lambda left, right: _bounded(_number(left) - _number(right)),
    "*": lambda left, right: _bounded(_number(left) * _number(right)),
    "/": _divide,
    "%": _modulus,
}


def _call(call: Call, scope: Scope) -> Typed:
    name, target, arguments = call.function, call.target, call.arguments
    if name == "has" and target is None:
        return _has(arguments, scope)
    if name in _MACROS and target is not None:
        return _macro(call, scope)
    parts = [_compile(part, scope)[0] for part in (*([target] if target else ()), *arguments)]
    method = target is not None
    if method and name in _METHODS and len(arguments) == 1:
        return _method(name, parts[0], parts[1], arguments[0]), None
    if name == "size" and len(parts) == 1:
        return (lambda v: _size(parts[0](v))), None
    if not method and name in _CONVERSIONS and len(parts) == 1:
        convert = _CONVERSIONS[name]
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


def _method(name: str, text: Evaluate, argument: Evaluate, source: Expression) -> Evaluate:
    if name == "matches" and isinstance(source, Literal):
        try:
            search = re.compile(str(source.value)).search
        except re.error as error:
            raise CelError(f"invalid regular expression {source.value!r}: {error}") from None
        return lambda v: search(_text(text(v))) is not None
    apply = _METHODS[name]
    return lambda v: apply(_text(text(v)), _text(argument(v)))


def _text(value: Any) -> str:
    if type(value) is not str:
        raise EvaluationError("no such overload: a string is needed")
    return value


def _matches(text: str, pattern: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error as error:
        raise EvaluationError(f"invalid regular expression: {error}") from None


_METHODS: dict[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": str.__contains__,
    "matches": _matches,
}


def _size(value: Any) -> int:
    if type(value) not in (str, list, dict):
        raise EvaluationError("no such overload: size() needs a string, list or map")
    return len(value)


def _to_int(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise EvaluationError(f"type conversion error: int({value!r})") from None


def _to_double(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise EvaluationError(f"type conversion error: double({value!r})") from None


def _to_string(value: Any) -> str:
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in (str, int, float):
        return str(value)
    raise EvaluationError("no such overload: string() needs a scalar")


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "int": _to_int,
    "double": _to_double,
    "string": _to_string,
}
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
        return _boolean(body({**variables, variable: item}))

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
