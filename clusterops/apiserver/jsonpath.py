"""The simple JSONPath of printer columns, compiled to a function.

Fields (`.spec.a`, `['a']`, escaped dots), indexes (`[0]`, `[-1]`), all items (`[*]`) and filters on
equality or order (`[?(@.type=="Ready")]`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Step = Callable[[Any], Iterable[Any]]

_PART = re.compile(
    r"""
      \.(?P<field>(?:\\.|[^.\[\\])+)
    | \[(?P<index>-?\d+)\]
    | \[(?P<all>\*)\]
    | \[(?P<quoted>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")\]
    | \[\?\(\s*@(?P<path>(?:\.(?:\\.|[^.\[\]\\=!<>\s])+)+)
        \s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<operand>'[^']*'|"[^"]*"|true|false|-?\d+(?:\.\d+)?))?
        \s*\)\]
    """,
    re.VERBOSE,
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def compile_path(text: str) -> Callable[[Any], Any]:
    """A function that gives the first match of the path in an object, None without one.

    Raises ValueError for a path outside the supported form.
    """
    steps = list(_steps(text))
    names = [name for name, _ in steps]
    if all(name is not None for name in names):
        return _field_reader([name for name in names if name is not None])

    def read(obj: Any) -> Any:
        found: Iterable[Any] = (obj,)
        for _, step in steps:
            found = [item for value in found for item in step(value)]
        return next(iter(found), None)

    return read


def _field_reader(names: list[str]) -> Callable[[Any], Any]:
    """The common case, fields only, without building lists."""

    def read(obj: Any) -> Any:
        for name in names:
            if type(obj) is not dict:
                return None
            obj = obj.get(name)
        return obj

    return read


def _steps(text: str) -> Iterator[tuple[str | None, Step]]:
    """Each step with the name of the field it reads, None for other steps."""
    if not text.startswith((".", "[")):
        raise ValueError(f"JSON path {text!r} must start with a dot")
    position = 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None:
            raise ValueError(f"JSON path {text!r} is not supported from {text[position:]!r} on")
        position = match.end()
        yield _step(match)


def _step(match: re.Match[str]) -> tuple[str | None, Step]:
    if (field := match["field"]) is not None:
        name = re.sub(r"\\(.)", r"\1", field)
        return name, _field(name)
    if (quoted := match["quoted"]) is not None:
        name = re.sub(r"\\(.)", r"\1", quoted[1:-1])
        return name, _field(name)
    if match["all"]:
        return None, _every
    if (index := match["index"]) is not None:
        return None, _index(int(index))
    return None, _filter(match["path"], match["operator"], match["operand"])


def _field(name: str) -> Step:
    return lambda value: (value[name],) if type(value) is dict and name in value else ()


def _every(value: Any) -> Iterable[Any]:
    if type(value) is dict:
        return value.values()
    return value if type(value) is list else ()


def _index(index: int) -> Step:
    def step(value: Any) -> Iterable[Any]:
        if type(value) is list and -len(value) <= index < len(value):
            return (value[index],)
        return ()

    return step


def _filter(path: str, operator: str | None, operand: str | None) -> Step:
    read = compile_path(path)
    if operator is None or operand is None:
        return lambda value: [item for item in _every(value) if read(item) is not None]
    compare, wanted = _COMPARE[operator], _constant(operand)

    def holds(item: Any) -> bool:
        found = read(item)
        try:
            return found is not None and compare(found, wanted)
        except TypeError:
            return False

    return lambda value: [item for item in _every(value) if holds(item)]


def _constant(text: str) -> Any:
    if text[0] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    return float(text) if "." in text else int(text)
