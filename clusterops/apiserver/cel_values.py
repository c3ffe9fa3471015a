"""What the operators and functions of CEL do with values; types are strict, as CEL has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_INT_LIMIT = 2**63


class EvaluationError(Exception):
    """An expression met a value it cannot work on, such as a missing field."""


def boolean(value: Any) -> bool:
    """A condition; nothing else counts as true or false."""
    if type(value) is not bool:
        raise EvaluationError("no such overload: a condition must be a bool")
    return value


def number(value: Any) -> Any:
    """An operand of arithmetic."""
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


def equal(left: Any, right: Any) -> bool:
    """Equality across types; true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def _add(left: Any, right: Any) -> Any:
    if type(left) is type(right) and type(left) in (str, list):
        return left + right
    return _bounded(number(left) + number(right))


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
    if number(right) == 0:
        raise EvaluationError("division by zero")
    return number(left) / right


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
        return any(equal(left, item) for item in right)
    raise EvaluationError("no such overload: `in` needs a list or a map")


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    "<": _less,
    "<=": lambda left, right: not _less(right, left),
    ">": lambda left, right: _less(right, left),
    ">=": lambda left, right: not _less(left, right),
    "in": _contained,
    "+": _add,
    "-": lambda left, right: _bounded(number(left) - number(right)),
    "*": lambda left, right: _bounded(number(left) * number(right)),
    "/": _divide,
    "%": _modulus,
}


def text(value: Any) -> str:
    """An operand of a method of strings."""
    if type(value) is not str:
        raise EvaluationError("no such overload: a string is needed")
    return value


def _matches(value: str, pattern: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error as error:
        raise EvaluationError(f"invalid regular expression: {error}") from None


METHODS: dict[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": str.__contains__,
    "matches": _matches,
}


def size(value: Any) -> int:
    """Characters, items or keys."""
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


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "int": _to_int,
    "double": _to_double,
    "string": _to_string,
}
