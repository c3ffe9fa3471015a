"""CustomResourceDefinitions: checked, and turned into a `Kind`.

The schema must be structural (every place has a type, nothing is referred to, defaults are valid):
a schema that a real API server refuses is refused here too, with the place and the reason.
"""

import re
from collections.abc import Iterator
from typing import Any

from clusterops.apiserver.causes import Cause
from clusterops.apiserver.cel_syntax import CelError
from clusterops.apiserver.columns import NAME, Column, age_column, from_path
from clusterops.apiserver.kind import CrdError, Kind
from clusterops.apiserver.metadata import LABEL, LABEL_1035, SUBDOMAIN, name_problem
from clusterops.apiserver.pruning import DefaultCompiler, PruneCompiler
from clusterops.apiserver.schema import Schema
from clusterops.apiserver.structure import build
from clusterops.apiserver.validation import CheckCompiler

Raw = dict[str, Any]

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_VALUE_WORDS = frozenset(
    {
        "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength",
        "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "enum", "maxProperties",
        "minProperties", "required", "format", "allOf", "anyOf", "oneOf", "not",
    }
)  # fmt: skip
_WORDS = _VALUE_WORDS | {
    "type", "description", "title", "example", "externalDocs", "properties", "items", "nullable",
    "additionalProperties", "default", "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-int-or-string", "x-kubernetes-embedded-resource", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-validations",
}  # fmt: skip
_BELOW = ("allOf", "anyOf", "oneOf", "not")


def kind_from_crd(crd: Raw) -> Kind:
    """The kind that the storage version of a CustomResourceDefinition defines.

    Only that version is served. Raises CrdError with every reason why its names, schema, rules or
    columns cannot be.
    """
    spec = crd.get("spec") or {}
    reasons = [str(cause) for cause in check_crd(crd)]
    if reasons:
        raise CrdError(reasons)
    names = spec["names"]
    version = next(v for v in spec["versions"] if v.get("storage"))
    raw = version["schema"]["openAPIV3Schema"]
    subresources = version.get("subresources") or {}
    return Kind(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        kind=names["kind"],
        list_kind=names.get("listKind") or names["kind"] + "List",
        namespaced=spec["scope"] == "Namespaced",
        schema=Schema(raw),
        columns=_columns(version),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=frozenset({"status"} if "status" in subresources else ()),
        selectable_fields=tuple(
            field["jsonPath"].removeprefix(".") for field in version.get("selectableFields") or ()
        ),
        description=raw.get("description", ""),
        crd_name=crd["metadata"]["name"],
    )


def accepted_status(crd: Raw, now: str) -> Raw:
    """The status of a CRD that is served from `now` (RFC 3339) on."""
    spec = crd["spec"]
    conditions = [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]
    return {
        "acceptedNames": spec["names"],
        "conditions": [
            {
                "type": type_,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": now,
            }
            for type_, reason, message in conditions
        ],
        "storedVersions": [v["name"] for v in spec["versions"] if v.get("storage")],
    }


def finish_crd(crd: Raw) -> None:
    """Names that follow from the kind."""
    names = (crd.get("spec") or {}).get("names")
    if isinstance(names, dict) and isinstance(names.get("kind"), str):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", names["kind"] + "List")


def check_crd(crd: Raw, old: Raw | None = None) -> list[Cause]:
    """Everything for which a CRD is refused; `old` to see that its identity stays."""
    spec = crd.get("spec")
    if not isinstance(spec, dict):
        return [_wrong("spec", "is missing")]
    causes = list(_check_names(crd, spec))
    versions = spec.get("versions") or []
    if sum(1 for v in versions if v.get("storage")) != 1:
        causes.append(
            _wrong("spec.versions", "must have exactly one version marked as storage version")
        )
    for index, version in enumerate(versions):
        causes += _check_version(version, f"spec.versions[{index}]")
    if old is not None:
        before = old["spec"]
        for field in ("group", "scope"):
            if before.get(field) != spec.get(field):
                causes.append(_wrong(f"spec.{field}", "field is immutable"))
    return causes


def _wrong(field: str, text: str) -> Cause:
    return Cause(field, "FieldValueInvalid", text)


def _check_names(crd: Raw, spec: Raw) -> Iterator[Cause]:
    names = spec.get("names") or {}
    group, plural, kind = spec.get("group"), names.get("plural"), names.get("kind")
    if not isinstance(group, str) or name_problem(group, SUBDOMAIN) or "." not in group:
        yield _wrong("spec.group", "should be a domain with at least one dot")
    if not isinstance(plural, str) or name_problem(plural, LABEL_1035):
        yield _wrong("spec.names.plural", "must be a lower case DNS-1035 label")
    if not isinstance(kind, str) or name_problem(kind.lower(), LABEL_1035):
        yield _wrong("spec.names.kind", "may have mixed case, but should otherwise be a DNS label")
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        yield _wrong("spec.scope", 'must be "Cluster" or "Namespaced"')
    expected = f"{plural}.{group}"
    if (crd.get("metadata") or {}).get("name") != expected:
        yield _wrong(
            "metadata.name", f'must be spec.names.plural+"."+spec.group, that is "{expected}"'
        )
    for name in names.get("shortNames") or ():
        if name_problem(name, LABEL_1035):
            yield _wrong("spec.names.shortNames", f"{name!r} must be a lower case DNS-1035 label")


def _check_version(version: Raw, path: str) -> Iterator[Cause]:
    if not isinstance(version.get("name"), str) or name_problem(version["name"], LABEL):
        yield _wrong(f"{path}.name", "must be a lower case DNS label")
    if version.get("storage") and not version.get("served", True):
        yield _wrong(f"{path}.served", "the storage version is the one this server serves")
    raw = (version.get("schema") or {}).get("openAPIV3Schema")
    where = f"{path}.schema.openAPIV3Schema"
    if not isinstance(raw, dict):
        yield Cause(where, "FieldValueRequired", "Required value: schemas are required")
        return
    if raw.get("type") != "object":
        yield _wrong(f"{where}.type", "must be object at the root")
        return
    structural = list(_check_structural(raw, where, top=True))
    yield from structural
    if not structural:
        try:
            Schema(raw)
        except (CelError, re.error) as error:
            yield _wrong(where, str(error))
        else:
            yield from _check_defaults(raw, where)
    try:
        _columns(version)
    except (ValueError, KeyError) as error:
        yield _wrong(f"{path}.additionalPrinterColumns", str(error))


def _check_structural(raw: Raw, path: str, *, top: bool = False) -> Iterator[Cause]:
    """The rules of structural schemas for one place and all below it."""
    unknown = sorted(set(raw) - _WORDS)
    if unknown:
        yield _wrong(path, f"{', '.join(unknown)} must not be used in a structural schema")
    yield from _check_type(raw, path)
    for word in ("exclusiveMinimum", "exclusiveMaximum", "nullable", "uniqueItems"):
        if not isinstance(raw.get(word, False), bool):
            yield _wrong(f"{path}.{word}", "must be true or false")
    if raw.get("uniqueItems") is True:
        yield Cause(
            f"{path}.uniqueItems", "FieldValueForbidden", "uniqueItems cannot be set to true"
        )
    yield from _check_list(raw, path)
    if "properties" in raw and raw.get("additionalProperties"):
        yield Cause(
            path,
            "FieldValueForbidden",
            "properties and additionalProperties are mutually exclusive",
        )
    for word in _BELOW:
        yield from _check_value_part(raw.get(word), f"{path}.{word}")
    for name, below in (raw.get("properties") or {}).items():
        if top and name == "metadata":
            continue
        yield from _check_structural(below, f"{path}.properties[{name}]")
    if isinstance(raw.get("additionalProperties"), dict):
        yield from _check_structural(raw["additionalProperties"], f"{path}.additionalProperties")
    if isinstance(raw.get("items"), dict):
        yield from _check_structural(raw["items"], f"{path}.items")


def _check_type(raw: Raw, path: str) -> Iterator[Cause]:
    free = raw.get("x-kubernetes-preserve-unknown-fields")
    type_ = raw.get("type")
    if type_ is None:
        if not (raw.get("x-kubernetes-int-or-string") or free):
            yield Cause(
                f"{path}.type",
                "FieldValueRequired",
                "must not be empty for specified object fields",
            )
    elif type_ not in _TYPES:
        yield _wrong(f"{path}.type", f"{type_!r} is none of {', '.join(_TYPES)}")
    elif raw.get("x-kubernetes-int-or-string"):
        yield _wrong(f"{path}.type", "must be empty when x-kubernetes-int-or-string is set")


def _check_list(raw: Raw, path: str) -> Iterator[Cause]:
    items, list_type = raw.get("items"), raw.get("x-kubernetes-list-type")
    if raw.get("type") == "array" and not isinstance(items, dict):
        yield Cause(f"{path}.items", "FieldValueRequired", "must be specified")
        return
    if list_type not in (None, "atomic", "set", "map"):
        yield _wrong(f"{path}.x-kubernetes-list-type", "must be one of atomic, map, set")
    keys = raw.get("x-kubernetes-list-map-keys") or []
    if (list_type == "map") != bool(keys):
        yield _wrong(
            f"{path}.x-kubernetes-list-map-keys", "go together with x-kubernetes-list-type map"
        )
    if not isinstance(items, dict):
        return
    for key in keys:
        field = (items.get("properties") or {}).get(key)
        if field is None:
            yield _wrong(f"{path}.x-kubernetes-list-map-keys", f"{key!r} is no field of the items")
        elif key not in (items.get("required") or ()) and "default" not in field:
            yield _wrong(
                f"{path}.items.properties[{key}]", "a key must be required or have a default"
            )


def _check_value_part(part: Any, path: str) -> Iterator[Cause]:
    """Parts of allOf and its like constrain values only; types stand outside."""
    for index, below in enumerate(part if isinstance(part, list) else [part] if part else []):
        if not isinstance(below, dict):
            yield _wrong(f"{path}[{index}]", "must be a schema")
            continue
        for word in ("description", "default", "additionalProperties", "nullable"):
            if word in below:
                yield Cause(
                    f"{path}[{index}].{word}",
                    "FieldValueForbidden",
                    "must be empty to be structural",
                )


def _check_defaults(raw: Raw, path: str) -> Iterator[Cause]:
    """A default must be valid, and must not hold anything that would be pruned."""
    if "default" in raw:
        node = build({**raw, "x-kubernetes-validations": []})
        holder = {"default": raw["default"]}
        pruner, defaulter = PruneCompiler().compile(node), DefaultCompiler().compile(node)
        unknown = pruner(holder["default"]) if pruner else None
        if unknown:
            yield _wrong(f"{path}.default", f"holds unknown fields: {', '.join(unknown)}")
        if defaulter:
            defaulter(holder["default"])
        check = CheckCompiler().compile(node)
        for below, make in (check(holder["default"]) if check else None) or ():
            yield make(f"{path}.default{below}")
    for name, below in (raw.get("properties") or {}).items():
        yield from _check_defaults(below, f"{path}.properties[{name}]")
    for word in ("items", "additionalProperties"):
        if isinstance(raw.get(word), dict):
            yield from _check_defaults(raw[word], f"{path}.{word}")


def _columns(version: Raw) -> tuple[Column, ...]:
    described = version.get("additionalPrinterColumns")
    if not described:
        return (NAME, age_column())
    return (
        NAME,
        *(
            from_path(
                column["name"],
                column["type"],
                column["jsonPath"],
                priority=column.get("priority", 0),
                format_=column.get("format", ""),
                description=column.get("description", ""),
            )
            for column in described
        ),
    )
