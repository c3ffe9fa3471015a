"""The checker of structural schemas: each rule of apiextensions/v1 is noticed."""

import copy

import pytest

from clusterops.api.structural import violations

LIST_MAP = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string"}, "value": {"type": "object"}},
    },
}


def with_field(field: dict) -> dict:
    return {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"x": field}}},
    }


GOOD = [
    {"type": "string", "enum": ["a"], "default": "a"},
    {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "nullable": True},
    {"x-kubernetes-int-or-string": True, "default": "50%"},
    {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
    {"x-kubernetes-preserve-unknown-fields": True},
    {"type": "object", "additionalProperties": {"type": "string"}, "default": {"any": "thing"}},
    {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    {"type": "object", "default": {}, "properties": {"y": {"type": "integer", "default": 1}}},
    LIST_MAP,
]
BAD = [
    ({}, "type is required"),
    ({"type": "date"}, "unknown"),
    ({"type": "string", "const": "a"}, "const"),
    ({"$ref": "#/x", "type": "object"}, "$ref"),
    ({"type": "integer", "exclusiveMinimum": 3}, "true or false"),
    ({"type": "integer", "exclusiveMinimum": True}, "needs its bound"),
    ({"type": "integer", "minimum": "1"}, "number"),
    ({"type": "string", "maxLength": -1}, "maxLength"),
    ({"type": "string", "nullable": "yes"}, "nullable"),
    ({"type": "string", "enum": []}, "enum"),
    ({"type": "array"}, "items"),
    ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, "uniqueItems"),
    ({"type": "object", "additionalProperties": False}, "additionalProperties"),
    (
        {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
        "exclude each other",
    ),
    ({"type": "object", "required": ["y"]}, "unknown properties"),
    ({"type": "string", "x-kubernetes-int-or-string": True}, "absent"),
    ({"type": "object", "x-kubernetes-preserve-unknown-fields": False}, "only be true"),
    ({"type": "string", "x-kubernetes-embedded-resource": True}, "type object"),
    ({"type": "string", "x-kubernetes-list-type": "set"}, "type array"),
    ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"}, "unknown"),
    ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-map-keys": ["a"]}, "needs"),
    ({"type": "string", "default": 1}, "not of type"),
    ({"type": "integer", "default": True}, "not of type"),
    ({"type": "integer", "default": 0, "minimum": 1}, "out of bounds"),
    ({"type": "string", "default": "b", "enum": ["a"]}, "not in enum"),
    ({"type": "string", "default": None}, "nullable"),
    ({"type": "object", "default": {"z": 1}, "properties": {}}, "unknown field z"),
    (
        {"type": "object", "default": {"y": "1"}, "properties": {"y": {"type": "integer"}}},
        "not of type",
    ),
    ({"type": "object", "x-kubernetes-validations": [{"message": "x"}]}, "needs a rule"),
    ({"type": "object", "x-kubernetes-validations": [{"rule": "true"}]}, "needs a message"),
    ({"type": "string", "anyOf": [{"type": "string"}]}, "outside of the junctor"),
    ({"type": "object", "not": {"properties": {"y": {}}}}, "outside of the junctor"),
]


@pytest.mark.parametrize("field", GOOD)
def test_a_structural_field_passes(field: dict) -> None:
    assert violations(with_field(field)) == []


@pytest.mark.parametrize(("field", "rule"), BAD)
def test_a_breach_is_named_with_its_place(field: dict, rule: str) -> None:
    found = violations(with_field(field))
    assert any(rule in violation.rule for violation in found), found
    assert all(violation.place.startswith("spec.x") for violation in found)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda field: field.pop("x-kubernetes-list-map-keys"), "needs x-kubernetes-list-map-keys"),
        (lambda field: field["items"]["properties"].pop("type"), "no property"),
        (lambda field: field["items"].pop("required"), "required or have a default"),
        (lambda field: field.update({"x-kubernetes-list-map-keys": ["value"]}), "scalar"),
        (lambda field: field["items"]["properties"]["type"].update(nullable=True), "nullable"),
        (lambda field: field.update(items={"type": "string"}), "must be objects"),
    ],
)
def test_a_keyed_list_that_cannot_be_keyed_is_named(change, rule: str) -> None:
    field = copy.deepcopy(LIST_MAP)
    change(field)
    assert any(rule in violation.rule for violation in violations(with_field(field)))


def test_the_root_is_an_object_and_metadata_is_the_servers() -> None:
    assert violations({"type": "string"})
    labels = {"type": "object", "properties": {"labels": {"type": "object"}}}
    found = violations({"type": "object", "properties": {"metadata": labels}})
    assert [violation.place for violation in found] == ["metadata"]


def test_faults_deep_inside_are_found() -> None:
    deep = {"type": "array", "items": {"type": "object", "additionalProperties": {"const": 1}}}
    assert {violation.place for violation in violations(with_field(deep))} == {"spec.x[]{}"}
