"""From a model's refusal to sentences: every broken rule with its field, in words, with a suggestion.

`problems` is the one way by which the command line, the operator and the tests ask whether an object
is right. It returns all problems at once, never the first alone.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from clusterops.api.spelling import closest, slip_of
from clusterops.api.text import listed, shortened
from clusterops.api.wire import Path, WireModel


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule. `rule` is a word for programs, `suggestion` the word that was meant."""

    path: Path
    rule: str
    message: str
    suggestion: str | None = None

    @property
    def field(self) -> str:
        """The place as people write it: `spec.template.spec.containers[0].name`."""
        return field_of(self.path)

    def __str__(self) -> str:
        meant = f' (did you mean "{self.suggestion}"?)' if self.suggestion else ""
        return f"{self.field}: {self.message}{meant}" if self.path else self.message + meant


def problems(model: type[WireModel], wire: Any) -> tuple[Problem, ...]:
    """Everything that is wrong with a decoded object of the kind; empty when it is right."""
    found: list[Problem] = []
    try:
        model.from_wire(wire)
    except ValidationError as refusal:
        found += [_problem(model, error) for error in refusal.errors(include_url=False)]
    if isinstance(wire, Mapping):
        # A model stops at its fields' own faults; those that span fields belong in the same answer.
        found += [
            Problem(fault.path, "spanning", fault.message) for fault in model.spanning_faults(wire)
        ]
        found += _slips(model, wire, ())
    misspelt = [(*problem.path[:-1], problem.suggestion) for problem in found if problem.suggestion]
    return tuple(
        problem
        for problem in dict.fromkeys(found)
        if problem.rule != "required" or problem.path not in misspelt
    )


def _slips(model: type[BaseModel], wire: Any, path: Path) -> Iterator[Problem]:
    """Unknown fields, where a kind keeps such, that are a known field misspelt."""
    if isinstance(wire, list):
        for position, item in enumerate(wire):
            yield from _slips(model, item, (*path, position))
    if not isinstance(wire, Mapping):
        return
    fields = {info.alias or name: info for name, info in model.model_fields.items()}
    for name, value in wire.items():
        if name in fields:
            inner = _model_within(fields[name].annotation)
            if inner is not None:
                yield from _slips(inner, value, (*path, name))
        elif model.model_config.get("extra") == "allow":
            meant = slip_of(str(name), list(fields))
            if meant is not None:
                yield Problem((*path, name), "unknown_field", "unknown field", meant)


def field_of(path: Sequence[str | int]) -> str:
    """A path in the usual notation; keys with dots or slashes are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part and all(letter.isalnum() or letter in "_-$" for letter in part):
            text += f".{part}" if text else part
        else:
            text += f"[{json.dumps(shortened(part))}]"
    return text


def _problem(model: type[BaseModel], error: ErrorDetails) -> Problem:
    path = _wire_path(error["loc"])
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        known = _fields_at(model, path[:-1])
        return Problem(path, "unknown_field", "unknown field", closest(str(path[-1]), known))
    if kind in ("literal_error", "enum"):
        choices = _choices(context)
        meant = closest(given, choices) if isinstance(given, str) else None
        expected = f"must be {listed(choices)}, not {_shown(given)}"
        return Problem(path, "choice", expected, meant)
    return Problem(path, _RULES.get(kind, kind), _sentence(kind, given, context, error["msg"]))


_RULES = {"missing": "required", "spanning": "spanning"}

_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object with fields",
    "model_type": "an object with fields",
    "model_attributes_type": "an object with fields",
    "datetime_type": "a time such as 2026-11-30T19:00:00Z",
    "datetime_parsing": "a time such as 2026-11-30T19:00:00Z",
    "datetime_from_date_parsing": "a time such as 2026-11-30T19:00:00Z",
    "timezone_aware": "a time with its offset, such as 2026-11-30T19:00:00Z",
}


def _sentence(kind: str, given: Any, context: Mapping[str, Any], original: str) -> str:
    if kind == "missing":
        return "is required"
    if kind in _WANTED:
        return f"must be {_WANTED[kind]}, not {_shown(given)}"
    bound = next((context[key] for key in ("ge", "gt", "le", "lt") if key in context), None)
    if kind == "greater_than_equal":
        return f"must be at least {bound}, not {_shown(given)}"
    if kind == "less_than_equal":
        return f"must be at most {bound}, not {_shown(given)}"
    if kind == "greater_than":
        return f"must be more than {bound}, not {_shown(given)}"
    if kind == "string_too_long":
        return f"must have at most {context['max_length']} characters, not {len(given)}"
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "string_pattern_mismatch":
        if context["pattern"] == "^/":
            return f"must begin with /, not {_shown(given)}"
        return f"must match {context['pattern']}, not {_shown(given)}"
    if kind == "too_long":
        return f"must have at most {context['max_length']} entries, not {context['actual_length']}"
    if kind in ("pattern", "quantity"):
        return f"{original}, not {_shown(given)}"
    return original[:1].lower() + original[1:]


def _shown(value: Any) -> str:
    """A value as the manifest would show it, short and harmless."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    try:
        return shortened(json.dumps(value, ensure_ascii=False), 60)
    except TypeError:
        return shortened(str(value), 60)


def _choices(context: Mapping[str, Any]) -> list[str]:
    # pydantic hands the choices over as one sentence: 'A', 'B' or 'C'.
    parts = str(context.get("expected", "")).replace(" or ", ", ").split(", ")
    return [part.strip("'") for part in parts if part.strip("'")]


def _wire_path(location: tuple[str | int, ...]) -> Path:
    """The location without the marks that pydantic adds for a key or the branch of a union."""
    return tuple(
        part
        for part in location
        if isinstance(part, int)
        or not (part.startswith(("function-", "enum", "[")) or part == "str")
    )


def _fields_at(model: type[BaseModel], path: Path) -> list[str]:
    """The fields that the object at this place may have; empty where it is not one of ours."""
    here: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, int):
            continue
        if here is None:
            return []
        field = next((f for f in here.model_fields.values() if f.alias == part), None)
        here = _model_within(field.annotation) if field is not None else None
    return [] if here is None else [f.alias or name for name, f in here.model_fields.items()]


def _model_within(annotation: Any) -> type[BaseModel] | None:
    """The model inside an annotation such as `tuple[Gpu, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return None
    return next((m for m in map(_model_within, get_args(annotation)) if m is not None), None)
