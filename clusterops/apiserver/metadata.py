"""What `metadata` looks like, and which names, labels and annotations are allowed in it."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from clusterops.apiserver.causes import Cause, invalid, required, too_long

_STRING_MAP = {"type": "object", "additionalProperties": {"type": "string"}}
_TIME = {"type": "string", "format": "date-time"}

# ObjectMeta as every kind has it. Owner references and finalizers have keys, so that several
# owners can each keep their own.
OBJECT_META: dict[str, Any] = {
    "type": "object",
    "description": "What every object has: names, labels, versions and owners.",
    "properties": {
        "annotations": _STRING_MAP,
        "creationTimestamp": _TIME,
        "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
        "deletionTimestamp": _TIME,
        "finalizers": {
            "type": "array",
            "items": {"type": "string"},
            "x-kubernetes-list-type": "set",
            "x-kubernetes-patch-strategy": "merge",
        },
        "generateName": {"type": "string"},
        "generation": {"type": "integer", "format": "int64"},
        "labels": _STRING_MAP,
        "managedFields": {
            "type": "array",
            "items": {"$ref": "#/components/schemas/ManagedFieldsEntry"},
        },
        "name": {"type": "string"},
        "namespace": {"type": "string"},
        "ownerReferences": {
            "type": "array",
            "items": {"$ref": "#/components/schemas/OwnerReference"},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "x-kubernetes-patch-merge-key": "uid",
            "x-kubernetes-patch-strategy": "merge",
        },
        "resourceVersion": {"type": "string"},
        "selfLink": {"type": "string"},
        "uid": {"type": "string"},
    },
}
METADATA_DEFINITIONS: dict[str, dict[str, Any]] = {
    "ObjectMeta": OBJECT_META,
    "ManagedFieldsEntry": {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "fieldsType": {"type": "string"},
            "fieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "manager": {"type": "string"},
            "operation": {"type": "string"},
            "subresource": {"type": "string"},
            "time": _TIME,
        },
    },
    "OwnerReference": {
        "type": "object",
        "required": ["apiVersion", "kind", "name", "uid"],
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "apiVersion": {"type": "string"},
            "blockOwnerDeletion": {"type": "boolean"},
            "controller": {"type": "boolean"},
            "kind": {"type": "string"},
            "name": {"type": "string"},
            "uid": {"type": "string"},
        },
    },
}

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"

_IS_LABEL = re.compile(_LABEL).fullmatch
_IS_LABEL_1035 = re.compile(_LABEL_1035).fullmatch
_IS_SUBDOMAIN = re.compile(_SUBDOMAIN).fullmatch
_IS_QUALIFIED = re.compile(_QUALIFIED).fullmatch
_IS_VALUE = re.compile(_VALUE).fullmatch

LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{_LABEL}')"
)
LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{_LABEL_1035}')"
)
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_SUBDOMAIN}')"
)
_NAME_PART_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{_QUALIFIED}')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    f"or '12345', regex used for validation is '{_VALUE}')"
)
_ANNOTATIONS_LIMIT = 256 * 1024

SUBDOMAIN, LABEL, LABEL_1035, PATH_SEGMENT = "subdomain", "label", "label-1035", "path-segment"


def name_problem(name: str, rule: str) -> str:
    """Why `name` breaks `rule` (one of the four constants above); empty when it does not."""
    if rule == PATH_SEGMENT:
        if name in (".", ".."):
            return f"may not be '{name}'"
        return next((f"may not contain '{c}'" for c in "/%" if c in name), "")
    if rule == SUBDOMAIN:
        if len(name) > 253:
            return "must be no more than 253 bytes"
        return "" if _IS_SUBDOMAIN(name) else SUBDOMAIN_RULE
    if len(name) > 63:
        return "must be no more than 63 bytes"
    if rule == LABEL:
        return "" if _IS_LABEL(name) else LABEL_RULE
    return "" if _IS_LABEL_1035(name) else LABEL_1035_RULE


def label_key_problem(key: str) -> str:
    """Why `key` is no qualified name (`prefix/name`); empty when it is."""
    prefix, slash, name = key.rpartition("/")
    if slash:
        if "/" in prefix:
            return (
                "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and "
                "must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  "
                f"or '123-abc', regex used for validation is '{_QUALIFIED}') with an optional DNS "
                "subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )
        if not prefix:
            return "prefix part must be non-empty"
        if problem := name_problem(prefix, SUBDOMAIN):
            return f"prefix part {problem}"
    if not name:
        return "name part must be non-empty"
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    return "" if _IS_QUALIFIED(name) else _NAME_PART_RULE


def label_value_problem(value: str) -> str:
    """Why `value` is no label value; empty when it is."""
    if len(value) > 63:
        return "must be no more than 63 bytes"
    return "" if _IS_VALUE(value) else _VALUE_RULE


def validate_labels(labels: dict[str, str], path: str = "metadata.labels") -> list[Cause]:
    """The causes for which labels are refused."""
    causes = []
    for key, value in labels.items():
        if problem := label_key_problem(key):
            causes.append(invalid(path, key, problem))
        if problem := label_value_problem(value):
            causes.append(invalid(path, value, problem))
    return causes


def validate_metadata(
    meta: dict[str, Any],
    rule: str,
    path: str = "metadata",
    *,
    known: Mapping[str, Any] = MappingProxyType({}),
) -> list[Cause]:
    """Names, labels, annotations, finalizers and owners of one (possibly embedded) metadata.

    Types are checked before by the schema; an embedded object need not have a name (`rule` "").
    `known` is metadata that passed: parts of it that are in `meta` themselves are not checked again.
    """
    causes: list[Cause] = []
    name, prefix = meta.get("name", ""), meta.get("generateName", "")
    if rule and (not name or name is not known.get("name")):
        if not name and not prefix:
            causes.append(required(f"{path}.name", "name or generateName is required"))
        elif name and (problem := name_problem(name, rule)):
            causes.append(invalid(f"{path}.name", name, problem))
        elif not name and (problem := name_problem(prefix.rstrip("-.") or prefix, rule)):
            causes.append(invalid(f"{path}.generateName", prefix, problem))
    labels = meta.get("labels")
    if labels and labels is not known.get("labels"):
        causes += validate_labels(labels, f"{path}.labels")
    annotations = meta.get("annotations")
    if annotations and annotations is not known.get("annotations"):
        causes += _validate_annotations(annotations, f"{path}.annotations")
    finalizers = meta.get("finalizers")
    if finalizers and finalizers is not known.get("finalizers"):
        for finalizer in finalizers:
            if problem := label_key_problem(finalizer):
                causes.append(invalid(f"{path}.finalizers", finalizer, problem))
    owners = meta.get("ownerReferences")
    if owners and owners is not known.get("ownerReferences"):
        causes += _validate_owners(owners, f"{path}.ownerReferences")
    return causes


def _validate_annotations(annotations: dict[str, str], path: str) -> list[Cause]:
    causes = []
    size = 0
    for key, value in annotations.items():
        # Keys are qualified names too, whatever their case.
        if problem := label_key_problem(key.lower()):
            causes.append(invalid(path, key, problem))
        size += len(key) + len(value)
    if size > _ANNOTATIONS_LIMIT:
        causes.append(too_long(path, _ANNOTATIONS_LIMIT))
    return causes


def _validate_owners(owners: list[dict[str, Any]], path: str) -> list[Cause]:
    causes = []
    for index, owner in enumerate(owners):
        for name, text in (
            ("apiVersion", "version must not be empty"),
            ("kind", "kind must not be empty"),
            ("name", "name must not be empty"),
            ("uid", "uid must not be empty"),
        ):
            if not owner.get(name):
                causes.append(invalid(f"{path}[{index}].{name}", owner.get(name, ""), text))
    controllers = [o for o in owners if o.get("controller")]
    if len(controllers) > 1:
        causes.append(
            invalid(
                path,
                owners,
                'Only one reference can have Controller set to true. Found "true" in references '
                f"for {controllers[0].get('kind')}/{controllers[0].get('name')} and "
                f"{controllers[1].get('kind')}/{controllers[1].get('name')}",
            )
        )
    return causes
