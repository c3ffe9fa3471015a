"""Which form of an answer a client takes: the object itself, a Table, or metadata only."""

from functools import lru_cache
from typing import NamedTuple

from clusterops.apiserver.refusals import not_acceptable

OBJECT, TABLE, PARTIAL = "Object", "Table", "PartialObjectMetadata"
JSON = "application/json"
OFFERED = (JSON,)

# Clients with generated types accept protobuf beside JSON, or before it; they all read JSON.
_READ_AS_JSON = frozenset({JSON, "application/vnd.kubernetes.protobuf", "*/*", "application/*", ""})


class Form(NamedTuple):
    """The form of an answer; `version` is that of meta.k8s.io in Tables and partial metadata."""

    name: str
    version: str = "v1"


PLAIN = Form(OBJECT)


@lru_cache(maxsize=256)
def negotiate(accept: bytes) -> Form:
    """The first form of an Accept header that is made here. Raises 406 when there is none."""
    for entry in accept.decode("latin-1").split(","):
        media, *parameters = (part.strip() for part in entry.split(";"))
        if media.lower() not in _READ_AS_JSON:
            continue
        wanted = dict(part.partition("=")[::2] for part in parameters)
        form = wanted.get("as", "")
        if not form:
            return PLAIN
        if wanted.get("g") != "meta.k8s.io" or wanted.get("v") not in ("v1", "v1beta1"):
            continue
        name = form.removesuffix("List")
        if name in (TABLE, PARTIAL):
            return Form(name, wanted["v"])
    raise not_acceptable(OFFERED)
