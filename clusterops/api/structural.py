"""Whether an OpenAPI schema is structural, as apiextensions/v1 demands of a CRD.

Every violation is returned with its place. A real API server refuses a CRD that breaks one of these
rules; the generator is tested against them, and so is every CRD that we ship.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

SCALARS = ("string", "integer", "number", "boolean")
TYPES = (*SCALARS, "object", "array")
FORBIDDEN = (
    "$ref", "$defs", "definitions", "dependencies", "deprecated", "discriminator", "id", "const",
    "patternProperties", "propertyNames", "prefixItems", "readOnly", "writeOnly", "xml",
    "additionalItems", "unevaluatedProperties", "if", "then", "else", "contains", "examples",
)  # fmt: skip
JUNCTORS = ("allOf", "anyOf", "oneOf")
# What describes the value itself must stand outside of the junctors.
OUTSIDE_JUNCTORS = ("description", "type", "default", "additionalProperties", "nullable", "title")
NUMERIC_BOUNDS = ("minimum", "maximum", "multipleOf")
COUNT_BOUNDS = (
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
)  # fmt: skip
EXCLUSIVE_BOUNDS = ("exclusiveMinimum", "exclusiveMaximum")
INT_OR_STRING = "x-kubernetes-int-or-string"
EMBEDDED = "x-kubernetes-embedded-resource"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
RULES = "x-kubernetes-validations"


class Violation(NamedTuple):
    """One broken rule and where: `spec.replicas`, empty at the root."""

    place: str
    rule: str

    def __str__(self) -> str:
        return f"{self.place or '(root)'}: {self.rule}"


def violations(schema: Mapping[str, Any]) -> list[Violation]:
    """Every way in which the schema of a whole object is not structural."""
    found = [Violation("", "type must be object")] if schema.get("type") != "object" else []
    metadata = schema.get("properties", {}).get("metadata", {})
    restricted = [
        name for name in metadata.get("properties", {}) if name not in ("name", "generateName")
    ]
    if restricted:
        found.append(Violation("metadata", "only name and generateName may be restricted"))
    return found + list(_walk("", schema))


def _walk(place: str, schema: Mapping[str, Any]) -> Iterator[Violation]:
    for rule in (*_shape(schema), *_bounds(schema), *_lists(schema), *_rules(schema)):
        yield Violation(place, rule)
    if "default" in schema:
        yield from (Violation(place, rule) for rule in default_faults(schema, schema["default"]))
    for junctor in JUNCTORS:
        for position, branch in enumerate(schema.get(junctor, ())):
            yield from _junctor(f"{place}.{junctor}[{position}]".lstrip("."), branch, schema)
    if "not" in schema:
        yield from _junctor(f"{place}.not".lstrip("."), schema["not"], schema)
    for name, child in schema.get("properties", {}).items():
        yield from _walk(f"{place}.{name}".lstrip("."), child)
    if isinstance(schema.get("items"), Mapping):
        yield from _walk(f"{place}[]", schema["items"])
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from _walk(f"{place}{{}}", schema["additionalProperties"])


def _shape(schema: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{word} is not allowed" for word in FORBIDDEN if word in schema)
    yield from _type(schema)
    for extension in (PRESERVE, INT_OR_STRING, EMBEDDED):
        if extension in schema and schema[extension] is not True:
            yield f"{extension} may only be true"
    if "properties" in schema and "additionalProperties" in schema:
        yield "properties and additionalProperties exclude each other"
    if schema.get("additionalProperties") is False:
        yield "additionalProperties must not be false"
    if "nullable" in schema and not isinstance(schema["nullable"], bool):
        yield "nullable must be true or false"
    if "enum" in schema and not schema["enum"]:
        yield "enum must not be empty"
    known = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in known]
    if missing and not schema.get(PRESERVE):
        yield f"required names unknown properties: {', '.join(missing)}"


def _type(schema: Mapping[str, Any]) -> Iterator[str]:
    kind = schema.get("type")
    if schema.get(INT_OR_STRING):
        if kind is not None:
            yield f"type must be absent beside {INT_OR_STRING}"
    elif kind is None:
        if not schema.get(PRESERVE):
            yield "type is required"
    elif kind not in TYPES:
        yield f"type {kind!r} is unknown"
    if schema.get(EMBEDDED) and kind != "object":
        yield f"{EMBEDDED} needs type object"
    if kind == "array" and not isinstance(schema.get("items"), Mapping):
        yield "items with one schema is required"


def _bounds(schema: Mapping[str, Any]) -> Iterator[str]:
    for word in EXCLUSIVE_BOUNDS:
        if word in schema and not isinstance(schema[word], bool):
            yield f"{word} must be true or false, beside a bound"
        elif schema.get(word) and word.removeprefix("exclusive").lower() not in schema:
            yield f"{word} needs its bound"
    for word in NUMERIC_BOUNDS:
        if word in schema and (
            isinstance(schema[word], bool) or not isinstance(schema[word], int | float)
        ):
            yield f"{word} must be a number"
    for word in COUNT_BOUNDS:
        if word in schema and (not isinstance(schema[word], int) or schema[word] < 0):
            yield f"{word} must be a whole number from 0"
    if schema.get("uniqueItems"):
        yield "uniqueItems must not be true: x-kubernetes-list-type set instead"


def _lists(schema: Mapping[str, Any]) -> Iterator[str]:
    kind, keys = schema.get(LIST_TYPE), schema.get(LIST_KEYS)
    if kind is None:
        if keys is not None:
            yield f"{LIST_KEYS} needs {LIST_TYPE} map"
        return
    if schema.get("type") != "array":
        yield f"{LIST_TYPE} needs type array"
    if kind not in ("atomic", "set", "map"):
        yield f"{LIST_TYPE} {kind!r} is unknown"
    items = schema.get("items", {})
    if kind == "set" and items.get("nullable"):
        yield "items of a set must not be nullable"
    if kind == "map":
        yield from _map_keys(keys or (), items)


def _map_keys(keys: Sequence[str], items: Mapping[str, Any]) -> Iterator[str]:
    if not keys:
        yield f"{LIST_TYPE} map needs {LIST_KEYS}"
    if items.get("type") != "object":
        yield "items of a map must be objects"
    for key in keys:
        field = items.get("properties", {}).get(key)
        if field is None:
            yield f"list map key {key} is no property of the items"
        elif field.get("type") not in SCALARS:
            yield f"list map key {key} must be a scalar"
        elif key not in items.get("required", ()) and "default" not in field:
            yield f"list map key {key} must be required or have a default"
        elif field.get("nullable"):
            yield f"list map key {key} must not be nullable"


def _rules(schema: Mapping[str, Any]) -> Iterator[str]:
    for rule in schema.get(RULES, ()):
        if not isinstance(rule, Mapping) or not rule.get("rule"):
            yield f"an entry of {RULES} needs a rule"
        elif not rule.get("message"):
            yield f"{rule['rule']!r} needs a message"


def _junctor(
    place: str, branch: Mapping[str, Any], parent: Mapping[str, Any]
) -> Iterator[Violation]:
    described = [word for word in OUTSIDE_JUNCTORS if word in branch]
    if parent.get(INT_OR_STRING):
        # The one exception: the two branches of int-or-string name their type.
        described = [word for word in described if word != "type"]
    yield from (Violation(place, f"{word} must stand outside of the junctor") for word in described)
    for name, child in branch.get("properties", {}).items():
        outside = parent.get("properties", {}).get(name)
        if outside is None:
            yield Violation(place, f"property {name} must also stand outside of the junctor")
        else:
            yield from _junctor(f"{place}.{name}", child, outside)


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def default_faults(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Why a value cannot be the default under a schema: wrong type, out of bounds, unknown fields."""
    if value is None:
        return [] if schema.get("nullable") else ["default null needs nullable"]
    if schema.get(INT_OR_STRING):
        return [] if isinstance(value, int | str) else ["default must be a number or text"]
    wanted = _PYTHON_TYPES.get(schema.get("type", ""), (object,))
    if not isinstance(value, wanted) or (
        isinstance(value, bool) and schema.get("type") != "boolean"
    ):
        return [f"default {value!r} is not of type {schema.get('type')}"]
    faults = []
    if "enum" in schema and value not in schema["enum"]:
        faults.append(f"default {value!r} is not in enum")
    if isinstance(value, int | float) and not (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
    ):
        faults.append(f"default {value!r} is out of bounds")
    if (
        isinstance(value, dict)
        and "additionalProperties" not in schema
        and not schema.get(PRESERVE)
    ):
        properties = schema.get("properties", {})
        faults += [
            f"default holds the unknown field {name}" for name in value if name not in properties
        ]
        for name in value:
            faults += (
                default_faults(properties.get(name, {}), value[name]) if name in properties else []
            )
    return faults
