"""The few protobuf bodies that kubectl sends even when the server speaks JSON only.

Each message is described by a small table of field numbers; unknown fields are skipped, as
protobuf wants it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from clusterops.apiserver.causes import Refused

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"

# Field number -> (name, how its value is read): text, bool, int, port, int-or-text, bytes, a
# message, `[` a list of it, `{` a map from text to it.
Message = dict[int, tuple[str, Any]]

_OWNER: Message = {
    5: ("apiVersion", "text"),
    1: ("kind", "text"),
    3: ("name", "text"),
    4: ("uid", "text"),
    6: ("controller", "bool"),
    7: ("blockOwnerDeletion", "bool"),
}
_META: Message = {
    1: ("name", "text"),
    2: ("generateName", "text"),
    3: ("namespace", "text"),
    5: ("uid", "text"),
    6: ("resourceVersion", "text"),
    10: ("deletionGracePeriodSeconds", "int"),
    11: ("labels", "{text"),
    12: ("annotations", "{text"),
    13: ("ownerReferences", ("[", _OWNER)),
    14: ("finalizers", "[text"),
}
_DELETE_OPTIONS: Message = {
    1: ("gracePeriodSeconds", "int"),
    2: ("preconditions", {1: ("uid", "text"), 2: ("resourceVersion", "text")}),
    3: ("orphanDependents", "bool"),
    4: ("propagationPolicy", "text"),
    5: ("dryRun", "[text"),
}
_RESOURCE_ATTRIBUTES: Message = {
    1: ("namespace", "text"),
    2: ("verb", "text"),
    3: ("group", "text"),
    4: ("version", "text"),
    5: ("resource", "text"),
    6: ("subresource", "text"),
    7: ("name", "text"),
}
_NON_RESOURCE_ATTRIBUTES: Message = {1: ("path", "text"), 2: ("verb", "text")}
_SERVICE_PORT: Message = {
    1: ("name", "text"),
    2: ("protocol", "text"),
    3: ("port", "int"),
    4: ("targetPort", "int-or-text"),
    5: ("nodePort", "port"),
    6: ("appProtocol", "text"),
}
_SERVICE_SPEC: Message = {
    1: ("ports", ("[", _SERVICE_PORT)),
    2: ("selector", "{text"),
    3: ("clusterIP", "text"),
    4: ("type", "text"),
    5: ("externalIPs", "[text"),
    7: ("sessionAffinity", "text"),
    10: ("externalName", "text"),
    18: ("clusterIPs", "[text"),
}
_MESSAGES: dict[tuple[str, str], Message] = {
    ("v1", "DeleteOptions"): _DELETE_OPTIONS,
    ("meta.k8s.io/v1", "DeleteOptions"): _DELETE_OPTIONS,
    ("v1", "Namespace"): {1: ("metadata", _META), 2: ("spec", {1: ("finalizers", "[text")})},
    ("v1", "ConfigMap"): {
        1: ("metadata", _META),
        2: ("data", "{text"),
        3: ("binaryData", "{bytes"),
        4: ("immutable", "bool"),
    },
    ("v1", "Secret"): {
        1: ("metadata", _META),
        2: ("data", "{bytes"),
        3: ("type", "text"),
        4: ("stringData", "{text"),
        5: ("immutable", "bool"),
    },
    ("v1", "Service"): {1: ("metadata", _META), 2: ("spec", _SERVICE_SPEC)},
    ("v1", "ServiceAccount"): {1: ("metadata", _META)},
    ("policy/v1", "Eviction"): {1: ("metadata", _META), 2: ("deleteOptions", _DELETE_OPTIONS)},
    ("authentication.k8s.io/v1", "SelfSubjectReview"): {1: ("metadata", _META)},
    ("authentication.k8s.io/v1", "TokenReview"): {
        1: ("metadata", _META),
        2: ("spec", {1: ("token", "text"), 2: ("audiences", "[text")}),
    },
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): {
        1: ("metadata", _META),
        2: (
            "spec",
            {
                1: ("resourceAttributes", _RESOURCE_ATTRIBUTES),
                2: ("nonResourceAttributes", _NON_RESOURCE_ATTRIBUTES),
            },
        ),
    },
    ("authorization.k8s.io/v1", "SubjectAccessReview"): {
        1: ("metadata", _META),
        2: (
            "spec",
            {
                1: ("resourceAttributes", _RESOURCE_ATTRIBUTES),
                2: ("nonResourceAttributes", _NON_RESOURCE_ATTRIBUTES),
                3: ("user", "text"),
                4: ("groups", "[text"),
                6: ("uid", "text"),
            },
        ),
    },
}


def decode(body: bytes) -> dict[str, Any]:
    """The JSON form of an enveloped message.

    Raises Refused 415 for kinds that are not read here, 400 when malformed.
    """
    if not body.startswith(_MAGIC):
        raise _malformed("it does not begin with the Kubernetes protobuf envelope")
    api_version, kind, raw = "", "", b""
    for number, value in _fields(body[len(_MAGIC) :]):
        if number == 1 and isinstance(value, bytes):
            names = {n: _text(v) for n, v in _fields(value) if isinstance(v, bytes)}
            api_version, kind = names.get(1, ""), names.get(2, "")
        elif number == 2 and isinstance(value, bytes):
            raw = value
    message = _MESSAGES.get((api_version, kind))
    if message is None and kind == "DeleteOptions":
        message = _DELETE_OPTIONS  # clients send it under any group's version
    if message is None:
        raise Refused(
            415,
            "UnsupportedMediaType",
            f"protobuf bodies of {api_version} {kind} are not supported; send application/json",
        )
    return {"apiVersion": api_version, "kind": kind, **_read(raw, message)}


def _malformed(detail: str) -> Refused:
    return Refused(400, "BadRequest", f"the protobuf body cannot be read: {detail}")


def _varint(encoded: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(encoded) or shift > 63:
            raise _malformed("a number is cut off")
        byte = encoded[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at


def _fields(encoded: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values: numbers for varints, bytes for everything with a length."""
    at = 0
    while at < len(encoded):
        tag, at = _varint(encoded, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, at = _varint(encoded, at)
            yield number, value
            continue
        if wire_type == 2:
            length, at = _varint(encoded, at)
        elif wire_type in (1, 5):
            length = 8 if wire_type == 1 else 4
        else:
            raise _malformed(f"wire type {wire_type} is unknown")
        if at + length > len(encoded):
            raise _malformed("a field is cut off")
        yield number, encoded[at : at + length]
        at += length


def _read(encoded: bytes, message: Message) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for number, value in _fields(encoded):
        if number not in message:
            continue
        name, shape = message[number]
        if isinstance(shape, str) and shape.startswith("{"):
            entry = dict(_fields(_bytes(value)))
            key = _text(_bytes(entry.get(1, b"")))
            result.setdefault(name, {})[key] = _scalar(entry.get(2, b""), shape[1:])
        elif isinstance(shape, str) and shape.startswith("["):
            result.setdefault(name, []).append(_scalar(value, shape[1:]))
        elif isinstance(shape, tuple):
            result.setdefault(name, []).append(_read(_bytes(value), shape[1]))
        elif isinstance(shape, dict):
            result[name] = _read(_bytes(value), shape)
        else:
            result[name] = _scalar(value, shape)
    # Protobuf writes out texts and ports that are not set; JSON leaves them out.
    return {name: value for name, value in result.items() if value not in ("", None)}


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise _malformed("a number stands where a message should")
    return value


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise _malformed("a text is not UTF-8") from None


def _scalar(value: int | bytes, shape: str) -> Any:
    if shape == "text":
        return _text(_bytes(value))
    if shape == "int-or-text":
        fields = dict(_fields(_bytes(value)))
        is_text = fields.get(1, 0) == 1
        return _scalar(
            fields.get(3, b"") if is_text else fields.get(2, 0), "text" if is_text else "int"
        )
    if shape == "bytes":
        return base64.b64encode(_bytes(value)).decode()
    if not isinstance(value, int):
        raise _malformed("a length stands where a number should")
    if shape == "bool":
        return bool(value)
    if shape == "port":
        return value or None
    return value - 2**64 if value >= 2**63 else value
