"""The three patches of the Kubernetes API: merge, JSON, strategic merge. Targets stay unchanged."""

from typing import Any

from clusterops.apiserver.causes import Refused
from clusterops.apiserver.kinds import Kind


class PatchError(Refused):
    """A patch that cannot be applied: 400 malformed, 415 of a wrong type, 422 does not fit."""


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: objects are merged, null removes, everything else replaces."""
    raise NotImplementedError


def json_patch(target: Any, patch: Any) -> Any:
    """RFC 6902. Raises PatchError 422 when an operation does not fit or a test fails, 400 when malformed."""
    raise NotImplementedError


def strategic_merge_patch(
    kind: Kind, target: dict[str, Any], patch: dict[str, Any]
) -> dict[str, Any]:
    """Merge with the list keys of a built-in kind and the `$` directives.

    Raises PatchError 415 for custom resources, 400 for a malformed directive.
    """
    raise NotImplementedError
