"""Tables: what `kubectl get` prints, made by the server."""

from collections.abc import Iterable

from clusterops.apiserver.kinds import Kind


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
    raise NotImplementedError


def partial_metadata(bodies: Iterable[bytes]) -> list[bytes]:
    """The objects reduced to encoded PartialObjectMetadata (`as=PartialObjectMetadata`)."""
    raise NotImplementedError
