"""Kinds for tests of the API server: a CRD with every feature that ours use, and built-in kinds."""

import copy
from typing import Any

from clusterops.apiserver.kinds import Kind, builtin_kinds, kind_from_crd

WIDGET_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.io"},
    "spec": {
        "group": "example.io",
        "scope": "Namespaced",
        "names": {
            "plural": "widgets",
            "singular": "widget",
            "kind": "Widget",
            "shortNames": ["wg"],
            "categories": ["all"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {
                        "name": "Ready",
                        "type": "string",
                        "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
                    },
                    {
                        "name": "Owner",
                        "type": "string",
                        "jsonPath": ".spec.owner",
                        "priority": 1,
                    },
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "description": "Something with a size.",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["owner"],
                                "x-kubernetes-validations": [
                                    {
                                        "rule": "!has(self.minSize) || self.minSize <= self.size",
                                        "message": "minSize must not exceed size",
                                    },
                                    {
                                        "rule": "self.owner == oldSelf.owner",
                                        "message": "owner is immutable",
                                        "fieldPath": ".owner",
                                    },
                                ],
                                "properties": {
                                    "owner": {"type": "string", "minLength": 1, "maxLength": 20},
                                    "size": {"type": "integer", "minimum": 1, "default": 1},
                                    "minSize": {"type": "integer", "nullable": True},
                                    "port": {"x-kubernetes-int-or-string": True},
                                    "colour": {"type": "string", "enum": ["red", "green"]},
                                    "labels": {
                                        "type": "object",
                                        "additionalProperties": {"type": "string"},
                                    },
                                    "tags": {
                                        "type": "array",
                                        "items": {"type": "string"},
                                        "x-kubernetes-list-type": "set",
                                    },
                                    "parts": {
                                        "type": "array",
                                        "maxItems": 5,
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["name"],
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {
                                                "name": {"type": "string"},
                                                "count": {"type": "integer", "default": 1},
                                            },
                                        },
                                    },
                                    "args": {"type": "array", "items": {"type": "string"}},
                                    "free": {
                                        "type": "object",
                                        "x-kubernetes-preserve-unknown-fields": True,
                                    },
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "phase": {"type": "string"},
                                    "conditions": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["type"],
                                        "items": {
                                            "type": "object",
                                            "required": ["type", "status"],
                                            "properties": {
                                                "type": {"type": "string"},
                                                "status": {"type": "string"},
                                            },
                                        },
                                    },
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}


def widget_crd() -> dict[str, Any]:
    """A copy of the CRD, to be changed."""
    return copy.deepcopy(WIDGET_CRD)


def widget_kind() -> Kind:
    """The kind that the CRD defines."""
    return kind_from_crd(widget_crd())


def widget(**spec: Any) -> dict[str, Any]:
    """A valid widget with these fields in its spec."""
    return {
        "apiVersion": "example.io/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"owner": "me", **spec},
    }


def builtin(kind: str) -> Kind:
    """A built-in kind by name."""
    return next(k for k in builtin_kinds() if k.kind == kind)


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod as a user writes it."""
    listed = list(containers) or [{"name": "main", "image": "busybox:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": listed, **spec},
    }
