"""OpenAPI: version 3 for validation and `explain`, and the few bytes of version 2 that kubectl needs.

A document names, for each kind, its paths with the operations that kubectl looks for, and the
schemas reachable from it. PATCH does not offer strategic merge: where it does, kubectl computes
patches from the schema instead of from its own types, which know more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from clusterops.apiserver.discovery import Document, document
from clusterops.apiserver.kind import Kind
from clusterops.apiserver.structure import REF_PREFIX

# An empty OpenAPI v2 document in protobuf: the field `swagger`, "2.0".
_V2_BODY = b"\x0a\x03\x32\x2e\x30"
_V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
_DESCRIPTIONS = {
    "apiVersion": "Group and version of the schema that this object follows.",
    "kind": "The kind of this object.",
    "metadata": "Names, labels, versions and owners, as every object has them.",
}


class OpenApi:
    """The OpenAPI documents of a set of kinds; made anew when the set changes."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds: dict[str, list[Kind]] = {}
        for kind in kinds:
            self._kinds.setdefault(kind.root_path.removeprefix("/"), []).append(kind)
        self._made: dict[str, Document] = {}

    def v2(self) -> Document:
        """`/openapi/v2`."""
        return document(_V2_BODY, _V2_TYPE)

    def index(self) -> Document:
        """`/openapi/v3`: paths of the documents, each with a hash of its content."""
        paths = {}
        for path in sorted(self._kinds):
            made = self.document(path)
            assert made is not None
            tag = made.etag.strip('"')
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={tag}"}
        return document({"paths": paths})

    def document(self, path: str) -> Document | None:
        """`/openapi/v3/PATH`, PATH being api/v1 or apis/GROUP/VERSION (without the query)."""
        kinds = self._kinds.get(path)
        if kinds is None:
            return None
        if path not in self._made:
            self._made[path] = document(_content(kinds))
        return self._made[path]


def _content(kinds: list[Kind]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for kind in kinds:
        paths |= _paths(kind)
        schemas[_schema_name(kind)] = _kind_schema(kind)
        for name in _referenced(schemas[_schema_name(kind)]):
            _collect(name, kind.schema.definitions, schemas)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.32.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _schema_name(kind: Kind) -> str:
    """`io.clusterops.v1alpha1.TrainingJob`: the group backwards, as clients expect it."""
    if kind.builtin:
        return kind.kind
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def _group_version_kind(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "kind": kind.kind, "version": kind.version}


def _kind_schema(kind: Kind) -> dict[str, Any]:
    raw = kind.schema.raw
    properties = dict(raw["properties"])
    for name in ("apiVersion", "kind"):
        properties[name] = {"type": "string", "description": _DESCRIPTIONS[name]}
    properties["metadata"] = {
        "allOf": [{"$ref": f"{REF_PREFIX}ObjectMeta"}],
        "default": {},
        "description": _DESCRIPTIONS["metadata"],
    }
    schema = {
        **raw,
        "properties": properties,
        "x-kubernetes-group-version-kind": [_group_version_kind(kind)],
    }
    if kind.description:
        schema["description"] = kind.description
    return schema


def _paths(kind: Kind) -> dict[str, Any]:
    middle = "/namespaces/{namespace}" if kind.namespaced else ""
    collection = f"{kind.root_path}{middle}/{kind.plural}"
    content = {"schema": {"$ref": f"{REF_PREFIX}{_schema_name(kind)}"}}
    if not kind.stored:
        return {collection: {"post": _operation(kind, "post", content)}}
    return {
        collection: {
            "get": _operation(kind, "list", content),
            "post": _operation(kind, "post", content),
        },
        collection + "/{name}": {
            "get": _operation(kind, "get", content),
            "put": _operation(kind, "put", content),
            "patch": _operation(kind, "patch", content),
            "delete": _operation(kind, "delete", content),
        },
    }


def _operation(kind: Kind, action: str, content: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{action}{kind.kind}",
        "responses": {"200": {"description": "OK", "content": {"application/json": content}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _group_version_kind(kind),
    }
    if action in ("post", "put", "patch"):
        operation["parameters"] = [
            {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for name in ("dryRun", "fieldManager", "fieldValidation")
        ]
        types = _PATCHES if action == "patch" else ("application/json",)
        body = {} if action == "patch" else content
        operation["requestBody"] = {"content": dict.fromkeys(types, body), "required": True}
    return operation


def _referenced(schema: Any) -> Iterator[str]:
    """The names of the definitions that a schema refers to."""
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield reference.removeprefix(REF_PREFIX)
        for value in schema.values():
            yield from _referenced(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _referenced(value)


def _collect(name: str, definitions: dict[str, Any], schemas: dict[str, Any]) -> None:
    if name in schemas:
        return
    schemas[name] = definitions[name]
    for further in _referenced(definitions[name]):
        _collect(further, definitions, schemas)
