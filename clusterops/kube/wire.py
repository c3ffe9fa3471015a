"""From the bytes of a list or a watch to objects.

A watch answer is one JSON document a line. The bytes arrive cut anywhere and a connection may break
within a line: a last line without its end is dropped, never guessed at.

What an object is decoded into is the reader's choice, its *shape*: a plain dict, or a msgspec
Struct with a field `metadata: ObjectMeta`, which names the fields the reader wants; the others are
skipped without being built, several times faster and smaller.
"""

from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from clusterops.kube.errors import Unreachable, from_status
from clusterops.kube.store import Key

MAX_LINE_BYTES = 64 * 1024 * 1024
"""An API server refuses objects over a few MiB; a line this long is no Kubernetes."""


class OwnerReference(msgspec.Struct, frozen=True):
    """Who an object belongs to, as in `metadata.ownerReferences`."""

    kind: str
    name: str
    uid: str
    controller: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of an object; `managedFields` are left out. Times are as on the wire."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class Page(NamedTuple):
    """One page of a list. `continue_token` is "" on the last; `undecodable` items were left out."""

    items: list[Any]
    resource_version: str
    continue_token: str
    undecodable: list["Undecodable"]


class Undecodable(NamedTuple):
    """An object that does not fit the reader's shape, and why."""

    key: Key
    resource_version: str
    error: str


class WatchEvent(NamedTuple):
    """One change. `type` is ADDED, MODIFIED, DELETED or BOOKMARK.

    `object` is None for a bookmark; an `Undecodable` for an object that does not fit the shape.
    """

    type: str
    key: Key
    resource_version: str
    object: Any


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _Frame(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Names(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct):
    metadata: _Names


_list_decoder = msgspec.json.Decoder(_List)
_frame_decoder = msgspec.json.Decoder(_Frame)
_head_decoder = msgspec.json.Decoder(_Head)


def key_and_version(obj: Any) -> tuple[Key, str]:
    """(namespace, name) and resourceVersion of a dict or of a Struct with `metadata: ObjectMeta`."""
    if isinstance(obj, dict):
        metadata = obj["metadata"]
        key = (metadata.get("namespace") or "", metadata["name"])
        return key, metadata.get("resourceVersion") or ""
    meta: ObjectMeta = obj.metadata
    return (meta.namespace, meta.name), meta.resource_version


def decode_list(body: bytes, shape: type | None) -> Page:
    """The items of a list answer in the given shape."""
    try:
        listing = _list_decoder.decode(body)
    except msgspec.DecodeError as error:
        raise Unreachable(f"the answer to a list is no Kubernetes list: {error}") from error
    decoder = _decoder(shape)
    items: list[Any] = []
    undecodable: list[Undecodable] = []
    for raw in listing.items or ():
        try:
            items.append(decoder.decode(raw))
        except msgspec.ValidationError as error:
            undecodable.append(_undecodable(raw, error))
    meta = listing.metadata
    return Page(items, meta.resource_version, meta.continue_ or "", undecodable)


async def events(
    pieces: AsyncIterator[bytes], shape: type | None = None
) -> AsyncIterator[WatchEvent]:
    """The events of a watch answer.

    Raises what an ERROR event stands for (mostly Gone), and Unreachable for a line that is no JSON.
    """
    decoder = _decoder(shape)
    rest = b""
    async for piece in pieces:
        lines = (rest + piece).split(b"\n") if rest else piece.split(b"\n")
        rest = lines.pop()
        if len(rest) > MAX_LINE_BYTES:
            raise Unreachable(f"a watch sent a line of more than {MAX_LINE_BYTES} bytes")
        for line in lines:
            if line and not line.isspace():
                yield _event(line, decoder)


def _event(line: bytes, decoder: msgspec.json.Decoder[Any]) -> WatchEvent:
    try:
        frame = _frame_decoder.decode(line)
        if frame.type == "BOOKMARK":
            version = _head_decoder.decode(frame.object).metadata.resource_version
            return WatchEvent("BOOKMARK", ("", ""), version, None)
        if frame.type == "ERROR":
            status = msgspec.json.decode(frame.object, type=dict[str, Any])
            raise from_status(int(status.get("code") or 500), status)
        try:
            obj = decoder.decode(frame.object)
        except msgspec.ValidationError as error:
            broken = _undecodable(frame.object, error)
            return WatchEvent(frame.type, broken.key, broken.resource_version, broken)
        key, version = key_and_version(obj)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise Unreachable(f"a watch sent a line that is no event: {error}") from error
    return WatchEvent(frame.type, key, version, obj)


def _undecodable(raw: msgspec.Raw, error: msgspec.ValidationError) -> Undecodable:
    head = _head_decoder.decode(raw).metadata
    return Undecodable((head.namespace, head.name), head.resource_version, str(error))


@lru_cache(maxsize=64)
def _decoder(shape: type | None) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape or dict[str, Any])
