"""Words of the command line to values, without pydantic.

typer (0.29) builds a pydantic adapter for every option it reads, given or not, which costs each
command, and each completion, half a second of imports. Our options are text, numbers, paths, choices
and lists of them: those are converted here, with the same checks. An option of any other type, or of
a typer that keeps them elsewhere, stays with typer.
"""

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

Converter = Callable[[Any], Any]


class _Converted:
    """What typer asks for the value of one option. `convert` raises ValueError with the reason."""

    def __init__(self, convert: Converter) -> None:
        self._convert = convert

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of an option from its word or words; None when it was not given."""
        several = param.multiple or param.nargs == -1
        try:
            if several:
                return [self._convert(word) for word in value or ()]
            return None if value is None else self._convert(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from error


def lighten(command: Any) -> None:
    """Converts the options of a typer command here, those that can be."""
    # The help option is made when it is first asked for, and kept.
    context = command.context_class(command, **command.context_settings)
    for param in command.get_params(context):
        descriptor = getattr(param, "type_descriptor", None)
        if descriptor is None or not hasattr(param, "_runtime_param"):
            continue
        convert = converter(descriptor.annotation, descriptor.parameter_info)
        if convert is not None:
            param._runtime_param = _Converted(convert)


def converter(annotation: Any, info: Any) -> Converter | None:
    """How to convert one word to a type; None for a type that is not ours to convert."""
    if get_origin(annotation) is list:
        return converter(get_args(annotation)[0], info)
    if not isinstance(annotation, type):
        return None
    if issubclass(annotation, Enum):
        return _choice(annotation)
    if annotation in (int, float):
        return _number(annotation, getattr(info, "min", None), getattr(info, "max", None))
    if annotation is Path:
        plain = not any(getattr(info, check, False) for check in _PATH_CHECKS)
        return Path if plain else None
    known: dict[type, Converter] = {str: str, bool: _flag}
    return known.get(annotation)


_PATH_CHECKS = ("exists", "writable", "executable", "resolve_path", "path_type")


def _flag(value: Any) -> bool:
    """Flags come as what they are; there are no words for them."""
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")  # noqa: TRY004 a wrong value to a person
    return value


def _choice(kind: type[Enum]) -> Converter:
    def convert(word: Any) -> Any:
        for member in kind:
            if word in (member, member.value):
                return member
        raise ValueError(f"{word!r} is not one of {', '.join(str(each.value) for each in kind)}")

    return convert


def _number(kind: Callable[[Any], Any], least: float | None, most: float | None) -> Converter:
    wanted = "a whole number" if kind is int else "a number"

    def convert(word: Any) -> Any:
        try:
            value = kind(word)
        except ValueError:
            raise ValueError(f"{word!r} is not {wanted}") from None
        if (least is not None and not value >= least) or (most is not None and not value <= most):
            above = f" from {least:g}" if least is not None else ""
            below = f" up to {most:g}" if most is not None else ""
            raise ValueError(f"{word} is not {wanted}{above}{below}")
        return value

    return convert
