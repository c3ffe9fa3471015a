"""Tables: what `kubectl get` prints, made by the server.

Objects come and go as encoded bytes. A row needs the object decoded once; what it repeats of the
object (metadata, or the whole) is carried over as the bytes it was.
"""

from collections.abc import Iterable

import msgspec

from clusterops.apiserver.kind import Kind

INCLUDE = ("Metadata", "None", "Object")


class _MetadataOnly(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_decode_metadata = msgspec.json.Decoder(_MetadataOnly).decode
_decode = msgspec.json.Decoder().decode
_encoder = msgspec.json.Encoder()


def render(
    kind: Kind,
    bodies: Iterable[bytes],
    *,
    now: float,
    include: str = "Metadata",
    resource_version: str = "",
    continue_token: str = "",
    remaining: int | None = None,
    with_columns: bool = True,
    version: str = "v1",
) -> bytes:
    """An encoded `Table` of the objects in `bodies` (encoded JSON).

    `include` is Metadata, Object or None (the query parameter includeObject); `now` is seconds
    since the epoch; `with_columns` is off in all but the first event of a watch.
    """
    meta: dict[str, object] = {}
    if resource_version:
        meta["resourceVersion"] = resource_version
    if continue_token:
        meta["continue"] = continue_token
    if remaining is not None:
        meta["remainingItemCount"] = remaining
    columns = [column.definition() for column in kind.columns] if with_columns else []
    head = (
        b'{"kind":"Table","apiVersion":"meta.k8s.io/%b","metadata":%b,"columnDefinitions":%b,"rows":['
        % (
            version.encode(),
            _encoder.encode(meta),
            _encoder.encode(columns),
        )
    )
    return head + b",".join(_rows(kind, bodies, now, include, version)) + b"]}"


def _rows(
    kind: Kind, bodies: Iterable[bytes], now: float, include: str, version: str
) -> Iterable[bytes]:
    cells = [column.cell for column in kind.columns]
    encode, buffer = _encoder.encode_into, bytearray()
    for body in bodies:
        obj = _decode(body)
        encode([cell(obj, now) for cell in cells], buffer)
        if include == "None":
            yield b'{"cells":%b,"object":null}' % bytes(buffer)
        elif include == "Object":
            yield b'{"cells":%b,"object":%b}' % (bytes(buffer), body)
        else:
            yield b'{"cells":%b,"object":%b}' % (bytes(buffer), _partial(body, version))


def _partial(body: bytes, version: str) -> bytes:
    raw = bytes(_decode_metadata(body).metadata)
    return b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%b","metadata":%b}' % (
        version.encode(),
        raw,
    )


def partial_metadata(bodies: Iterable[bytes], version: str = "v1") -> list[bytes]:
    """The objects reduced to encoded PartialObjectMetadata (`as=PartialObjectMetadata`)."""
    return [_partial(body, version) for body in bodies]
