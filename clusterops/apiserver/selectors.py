"""Label and field selectors."""

from typing import Any

from clusterops.apiserver.kinds import Kind


class LabelSelector:
    """Requirements on labels, all of which must hold."""

    def matches(self, labels: dict[str, str] | None) -> bool:
        """Whether labels satisfy every requirement."""
        raise NotImplementedError


class FieldSelector:
    """Requirements on fields, all of which must hold."""

    name: str | None  # metadata.name when it must equal one value, for a shortcut
    namespace: str | None

    def matches(self, obj: dict[str, Any]) -> bool:
        """Whether the decoded object satisfies every requirement."""
        raise NotImplementedError


def parse_labels(text: str) -> LabelSelector | None:
    """None for an empty text (everything). Raises Refused 400 with Kubernetes' message."""
    raise NotImplementedError


def parse_fields(text: str, kind: Kind) -> FieldSelector | None:
    """None for an empty text. Raises Refused 400 for a field that the kind cannot be selected by."""
    raise NotImplementedError
