"""What a write does with the parts of an object that every kind has: type, name, metadata."""

from datetime import datetime
from typing import NamedTuple

from clusterops.apiserver.kind import Kind
from clusterops.apiserver.refusals import bad_request, cannot_decode, strict_decoding
from clusterops.apiserver.strategy import JsonObject

STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"


class WriteOptions(NamedTuple):
    """What the query of a write asks for. `validation` is Strict, Warn or Ignore."""

    manager: str = "unknown"
    validation: str = WARN
    dry_run: bool = False


class Outcome(NamedTuple):
    """The answer to a write: status code, encoded object, texts for Warning headers."""

    status: int
    body: bytes
    warnings: list[str]


_IDENTITY = frozenset({"name", "namespace", "uid", "resourceVersion"})
_STATUS_PARTS = frozenset({"apiVersion", "kind", "metadata", "status"})
# What only the server sets.
_SYSTEM_METADATA = (
    "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds",
)  # fmt: skip


def keep_system_metadata(new: JsonObject, live: JsonObject) -> None:
    """Put back what only the server sets; a client that sends no managedFields leaves them be."""
    new.pop("selfLink", None)
    for name in _SYSTEM_METADATA:
        if name in live:
            new[name] = live[name]
        else:
            new.pop(name, None)
    if new.get("managedFields") is None and "managedFields" in live:
        new["managedFields"] = live["managedFields"]


def as_text(moment: datetime) -> str:
    """RFC 3339 to the second."""
    return f"{moment.isoformat(timespec='seconds')[:19]}Z"


def is_finished(obj: JsonObject) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if obj.get("kind") == "Namespace" and (obj.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def check_type(kind: Kind, obj: JsonObject) -> None:
    """Fill in a missing apiVersion and kind. Raises 400 when they are another's."""
    version = obj.setdefault("apiVersion", kind.api_version)
    if obj.setdefault("kind", kind.kind) != kind.kind or not version:
        raise bad_request(
            f'the object provided is unrecognized: expected kind "{kind.kind}", got '
            f'"{obj.get("kind")}"'
        )
    if version != kind.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({kind.api_version})"
        )


def metadata_of(kind: Kind, obj: JsonObject) -> JsonObject:
    """The object's metadata, made when missing. Raises 400 when it is no object."""
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = obj["metadata"] = {}
    if not isinstance(metadata, dict):
        raise cannot_decode(kind, "json: cannot unmarshal metadata into an object")
    return metadata


def check_namespace(kind: Kind, namespace: str, metadata: JsonObject) -> None:
    """The namespace of the path is the object's. Raises 400 when the object says otherwise."""
    if not kind.namespaced:
        metadata.pop("namespace", None)
        return
    if (metadata.get("namespace") or namespace) != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata["namespace"] = namespace


def refuse_unknown(kind: Kind, unknown: list[str], options: WriteOptions) -> None:
    """Raises 400 for unknown fields under strict validation."""
    if unknown and options.validation == STRICT:
        raise strict_decoding(kind, unknown_fields(unknown))


def unknown_fields(paths: list[str]) -> list[str]:
    """What is said about fields that the schema does not know."""
    return [f'unknown field "{path}"' for path in paths]


def warnings_of(unknown: list[str], options: WriteOptions) -> list[str]:
    """Warnings about fields that were dropped."""
    if options.validation == IGNORE:
        return []
    return unknown_fields(unknown)


def restrict(applied: JsonObject, subresource: str) -> None:
    """An apply owns nothing of what its endpoint ignores."""
    if subresource != "status":
        applied.pop("status", None)
        return
    for name in [name for name in applied if name not in _STATUS_PARTS]:
        del applied[name]
    metadata = applied["metadata"]
    for name in [name for name in metadata if name not in _IDENTITY]:
        del metadata[name]
