"""Who set which field: `metadata.managedFields`, server-side apply, and its conflicts."""

from typing import Any

from clusterops.apiserver.kinds import Kind


def apply(
    kind: Kind,
    live: dict[str, Any] | None,
    applied: dict[str, Any],
    manager: str,
    *,
    force: bool,
    now: str,
    subresource: str = "",
) -> dict[str, Any]:
    """The object after `manager` applied `applied` (pruned) to `live` (None: it is created).

    Returns a new object with its `managedFields`; the caller defaults and validates it. `now` is an
    RFC 3339 time to the second. Raises PatchError: 409 Conflict with a cause for each field that
    another manager owns with another value (unless `force`), 400 for `managedFields` in the body.
    """
    raise NotImplementedError


def track_update(
    kind: Kind,
    old: dict[str, Any] | None,
    new: dict[str, Any],
    manager: str,
    *,
    now: str,
    subresource: str = "",
) -> None:
    """Move the fields that differ between `old` and `new` to `manager`, operation Update, in `new`.

    `new` is whole, defaulted and validated; its `metadata.managedFields` is replaced. A client may
    send `managedFields` of its own (as kubectl's migration does) and an empty list to forget all.
    """
    raise NotImplementedError
