"""What of a collection a list, a watch or a deletion means: namespace and selectors."""

from typing import Any

from clusterops.apiserver.kind import Kind
from clusterops.apiserver.request import Target
from clusterops.apiserver.selectors import FieldSelector, LabelSelector, parse_fields, parse_labels
from clusterops.apiserver.state import Collection
from clusterops.apiserver.stored import Stored, decode, labels_of


class Selection:
    """A choice of objects. `identity` is equal for equal choices."""

    def __init__(
        self,
        namespace: str | None,
        labels: LabelSelector | None,
        fields: FieldSelector | None,
        identity: tuple[Any, ...],
    ) -> None:
        self.namespace = namespace
        self.identity = identity
        self._labels = labels
        self._fields = fields
        # Selectors on names alone, which kubectl uses to watch one object, need no decoding.
        self.name = fields.name if fields is not None else None
        self._impossible = False
        if fields is not None and fields.namespace is not None:
            self._impossible = namespace is not None and fields.namespace != namespace
            self.namespace = fields.namespace

    @property
    def selective(self) -> bool:
        """Whether an object may move in or out of the choice while it exists."""
        return self._labels is not None or self._fields is not None

    def matches(self, stored: Stored) -> bool:
        """Whether the object is chosen."""
        if self.namespace is not None and stored.namespace != self.namespace:
            return False
        if self.name is not None and stored.name != self.name:
            return False
        if self._impossible:
            return False
        if self._labels is not None and not self._labels.matches(labels_of(stored.body)):
            return False
        return self._fields is None or self._fields.matches(decode(stored.body))

    def lookup(self, collection: Collection) -> list[Stored]:
        """The chosen objects when `name` is given: at most one in each namespace."""
        if self.name is None:
            return [stored for stored in collection.scan(self.namespace) if self.matches(stored)]
        if self.namespace is not None:
            found = collection.objects.get((self.namespace, self.name))
            return [found] if found is not None and self.matches(found) else []
        return [stored for stored in collection.scan() if self.matches(stored)]


def selection_of(target: Target, query: dict[str, str]) -> Selection:
    """The choice that a path and a query make. Raises 400 for selectors that cannot be read."""
    label_text, field_text = query.get("labelSelector", ""), query.get("fieldSelector", "")
    return selection(target.kind, target.namespace, label_text, field_text)


def selection(kind: Kind, namespace: str | None, labels: str, fields: str) -> Selection:
    """The choice of two selector texts within a namespace (None: all)."""
    return Selection(
        namespace if kind.namespaced else None,
        parse_labels(labels),
        parse_fields(fields, kind),
        (namespace, labels, fields),
    )
