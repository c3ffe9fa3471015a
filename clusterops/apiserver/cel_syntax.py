"""Reads the expressions of `x-kubernetes-validations` (CEL) into a small syntax tree.

Only the syntax that the evaluator in `cel` gives a meaning to is accepted; the rest is refused with
its position, when a CustomResourceDefinition is created.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


class CelError(ValueError):
    """An expression that cannot be used; the text says what and where."""


@dataclass(frozen=True)
class Literal:
    """A constant: int, float, str, bool or None."""

    value: Any


@dataclass(frozen=True)
class Name:
    """A variable: `self`, `oldSelf`, or the variable of a macro."""

    name: str


@dataclass(frozen=True)
class Select:
    """`operand.field`."""

    operand: Expression
    field: str


@dataclass(frozen=True)
class Index:
    """`operand[index]`."""

    operand: Expression
    index: Expression


@dataclass(frozen=True)
class Call:
    """`function(arguments)`, or `target.function(arguments)`."""

    function: str
    target: Expression | None
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Operation:
    """A unary or binary operator, or `?:` with three operands."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class ListOf:
    """`[a, b]`."""

    items: tuple[Expression, ...]


Expression = Literal | Name | Select | Index | Call | Operation | ListOf

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<float>\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    | (?P<int>0[xX][0-9a-fA-F]+|\d+)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<string>r?"(?:[^"\\]|\\.)*"|r?'(?:[^'\\]|\\.)*')
    | (?P<operator>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]])
    )""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?"}
_BINARY = (
    ("||",),
    ("&&",),
    ("==", "!=", "<", "<=", ">", ">=", "in"),
    ("+", "-"),
    ("*", "/", "%"),
)
# Trees are walked by recursion, so that neither depth nor length may grow without bound.
_DEPTH_LIMIT = 30
_STEPS_LIMIT = 150


def parse(text: str) -> Expression:
    """The tree of an expression. Raises CelError."""
    return _Parser(text).parse()


def _tokens(text: str) -> list[tuple[str, str, int]]:
    found, position = [], 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            at = position + len(text[position:]) - len(text[position:].lstrip())
            raise CelError(f"syntax error at position {at}: unexpected {text[at]!r}")
        kind = match.lastgroup or ""
        token = match.group(kind)
        # r"..." reads as the name r and then a string, so that the name rule must not win.
        if kind == "name" and token == "r" and text[match.end() : match.end() + 1] in ("'", '"'):
            raw = re.compile(r"\"[^\"]*\"|'[^']*'").match(text, match.end())
            if raw is None:
                raise CelError(f"syntax error at position {match.end()}: unterminated string")
            found.append(("string", "r" + raw.group(), match.start("name")))
            position = raw.end()
            continue
        found.append((kind, token, match.start(kind)))
        position = match.end()
    found.append(("end", "", len(text)))
    return found


def _unquote(token: str) -> str:
    if token.startswith("r"):
        return token[2:-1]

    def replace(match: re.Match[str]) -> str:
        letter = match.group(1)
        if letter not in _ESCAPES:
            raise CelError(f"unsupported escape \\{letter} in {token}")
        return _ESCAPES[letter]

    return re.sub(r"\\(.)", replace, token[1:-1])


class _Parser:
    """Recursive descent, one method a level of precedence."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._steps = 0

    def parse(self) -> Expression:
        tree = self._ternary()
        kind, token, position = self._tokens[self._at]
        if kind != "end":
            raise CelError(f"syntax error at position {position}: unexpected {token!r}")
        return tree

    def _take(self, *tokens: str) -> str | None:
        kind, token, _ = self._tokens[self._at]
        if token in tokens and kind in ("operator", "name"):
            self._at += 1
            self._steps += 1
            if self._steps > _STEPS_LIMIT:
                raise CelError(f"the expression has more than {_STEPS_LIMIT} operators")
            return token
        return None

    def _need(self, token: str) -> None:
        if self._take(token) is None:
            _, found, position = self._tokens[self._at]
            raise CelError(
                f"syntax error at position {position}: expected {token!r}, found {found!r}"
                if found
                else f"syntax error: expected {token!r} at the end"
            )

    def _ternary(self) -> Expression:
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            raise CelError(f"the expression is nested more than {_DEPTH_LIMIT} levels deep")
        condition = self._binary(0)
        if self._take("?"):
            first = self._ternary()
            self._need(":")
            condition = Operation("?:", (condition, first, self._ternary()))
        self._depth -= 1
        return condition

    def _binary(self, level: int) -> Expression:
        if level == len(_BINARY):
            return self._unary()
        left = self._binary(level + 1)
        while operator := self._take(*_BINARY[level]):
            left = Operation(operator, (left, self._binary(level + 1)))
        return left

    def _unary(self) -> Expression:
        operators = []
        while operator := self._take("!", "-"):
            operators.append(operator)
        operand = self._member()
        for operator in reversed(operators):
            if operator == "-" and isinstance(operand, Literal):
                operand = Literal(-operand.value)
            else:
                operand = Operation(f"unary {operator}", (operand,))
        return operand

    def _member(self) -> Expression:
        tree = self._primary()
        while True:
            if self._take("."):
                kind, name, position = self._tokens[self._at]
                if kind != "name":
                    raise CelError(f"syntax error at position {position}: expected a field name")
                self._at += 1
                if self._take("("):
                    tree = Call(name, tree, self._arguments(")"))
                else:
                    tree = Select(tree, _unescaped_field(name))
            elif self._take("["):
                tree = Index(tree, self._ternary())
                self._need("]")
            else:
                return tree

    def _arguments(self, closing: str) -> tuple[Expression, ...]:
        arguments: list[Expression] = []
        if self._take(closing):
            return ()
        while True:
            arguments.append(self._ternary())
            if self._take(closing):
                return tuple(arguments)
            self._need(",")

    def _primary(self) -> Expression:
        kind, token, position = self._tokens[self._at]
        self._at += 1
        if kind == "int":
            return Literal(int(token, 0))
        if kind == "float":
            return Literal(float(token))
        if kind == "string":
            return Literal(_unquote(token))
        if kind == "name":
            if token in ("true", "false", "null"):
                return Literal({"true": True, "false": False, "null": None}[token])
            if self._take("("):
                return Call(token, None, self._arguments(")"))
            return Name(token)
        if token == "(":
            tree = self._ternary()
            self._need(")")
            return tree
        if token == "[":
            return ListOf(self._arguments("]"))
        found = repr(token) if token else "the end"
        raise CelError(f"syntax error at position {position}: unexpected {found}")


def _unescaped_field(name: str) -> str:
    """Kubernetes escapes what CEL cannot spell in a field name: `__dot__`, `__dash__`, `__slash__`."""
    for escaped, plain in (("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")):
        name = name.replace(escaped, plain)
    return re.sub(r"^__([a-z]+)__$", r"\1", name).replace("__underscores__", "__")
