"""Schemas of the built-in kinds, made from a compact file of names and types.

The file is generated from the models of the `kubernetes` package (tests/support/apiserver_models.py);
a type is spelled `string`, `[Container` (list of), `{quantity` (map to), with `!` when required.
"""

import functools
from pathlib import Path
from typing import Any

import msgspec

from clusterops.apiserver import builtin_semantics as semantics
from clusterops.apiserver.structure import REF_PREFIX

_TYPES_FILE = Path(__file__).with_name("builtin_types.json")
_SCALARS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "integer": {"type": "integer", "format": "int64"},
    "boolean": {"type": "boolean"},
    "number": {"type": "number"},
    "time": {"type": "string", "format": "date-time"},
    "bytes": {"type": "string", "format": "byte"},
    "quantity": {"type": "string", "format": "quantity"},
    "int-or-string": {"x-kubernetes-int-or-string": True},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
}


@functools.cache
def definitions() -> dict[str, dict[str, Any]]:
    """OpenAPI schemas of all built-in types by name (`Pod`, `PodSpec`, ...); treat as constant."""
    types = msgspec.json.decode(_TYPES_FILE.read_bytes(), type=dict[str, dict[str, str]])
    return {name: _definition(name, fields) for name, fields in types.items()}


def _definition(name: str, fields: dict[str, str]) -> dict[str, Any]:
    properties = {field: _spelled(spelling.rstrip("!")) for field, spelling in fields.items()}
    for field, (keys, merge_key, strategy) in semantics.MAP_LISTS.get(name, {}).items():
        properties[field]["x-kubernetes-list-type"] = "map"
        properties[field]["x-kubernetes-list-map-keys"] = list(keys)
        if merge_key:
            properties[field]["x-kubernetes-patch-merge-key"] = merge_key
            properties[field]["x-kubernetes-patch-strategy"] = strategy
    for field, default in semantics.DEFAULTS.get(name, {}).items():
        properties[field]["default"] = default
    for field in fields:
        if (name, field) in semantics.SET_LISTS:
            properties[field]["x-kubernetes-list-type"] = "set"
            properties[field]["x-kubernetes-patch-strategy"] = "merge"
        if (name, field) in semantics.ENUMS:
            properties[field]["enum"] = list(semantics.ENUMS[name, field])
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if name in semantics.REQUIRED:
        schema["required"] = list(semantics.REQUIRED[name])
    if name in semantics.ATOMIC_TYPES:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _spelled(spelling: str) -> dict[str, Any]:
    if spelling.startswith("["):
        return {"type": "array", "items": _spelled(spelling[1:])}
    if spelling.startswith("{"):
        return {"type": "object", "additionalProperties": _spelled(spelling[1:])}
    if spelling in _SCALARS:
        return dict(_SCALARS[spelling])
    return {"$ref": f"{REF_PREFIX}{spelling}"}
