"""The schema of a kind, compiled once: prune, default and validate plain dicts in place."""

from typing import Any

from clusterops.apiserver.causes import Cause


class Schema:
    """A structural schema of whole objects, `metadata` included."""

    def prune(self, obj: dict[str, Any]) -> list[str]:
        """Remove unknown fields; their paths as Kubernetes words them (`spec.tasks[0].x`)."""
        raise NotImplementedError

    def default(self, obj: dict[str, Any]) -> None:
        """Drop nulls that the schema does not allow, then fill in defaults."""
        raise NotImplementedError

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None = None) -> list[Cause]:
        """Everything wrong with `obj`; rules on transitions see `old`. Empty when valid.

        A built-in kind answers 400 instead of 422 when a cause is TYPE_INVALID.
        """
        raise NotImplementedError
