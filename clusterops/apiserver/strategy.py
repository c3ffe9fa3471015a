"""What is special about writing some built-in kinds.

A strategy fixes what clients may not set, before an object is defaulted and validated; the defaults
and checks themselves belong to the kind's schema. Custom resources have the plain strategy.
"""

from typing import Any

from clusterops.apiserver.causes import Cause
from clusterops.apiserver.kind import Kind

JsonObject = dict[str, Any]


class Strategy:
    """How objects of one kind are written; this one fits custom resources."""

    def __init__(self, kind: Kind) -> None:
        self.has_status = "status" in kind.subresources
        # Whether changes of the specification are counted in metadata.generation.
        self.counts_generation = not kind.builtin
        # Whether an update without resourceVersion overwrites whatever is there.
        self.unconditional_update = kind.builtin
        # Whether an update of an object that does not exist creates it.
        self.creates_on_update = False
        # Whether a deletion answers with the object instead of a Status.
        self.returns_deleted = False

    def prepare_create(self, obj: JsonObject) -> None:
        """Before a new object is defaulted: its status is not the client's to set."""
        if self.has_status:
            obj.pop("status", None)

    def prepare_update(self, new: JsonObject, live: JsonObject) -> None:
        """Before an update through the main endpoint is validated: the status stays."""
        if self.has_status:
            _keep(new, live, "status")

    def prepare_status(self, new: JsonObject, live: JsonObject) -> JsonObject:
        """The object after an update through /status: everything else stays."""
        result = {name: value for name, value in live.items() if name != "status"}
        if "status" in new:
            result["status"] = new["status"]
        result["metadata"] = dict(live["metadata"])
        if "managedFields" in new["metadata"]:
            result["metadata"]["managedFields"] = new["metadata"]["managedFields"]
        return result

    def validate(self, obj: JsonObject) -> list[Cause]:  # noqa: ARG002  (for others to use)
        """Causes beyond the schema for which an object is refused."""
        return []

    def specification_changed(self, new: JsonObject, live: JsonObject) -> bool:
        """Whether the generation goes up: anything but metadata, and status where it is apart."""
        ignored = ("metadata", "status") if self.has_status else ("metadata",)
        names = (set(new) | set(live)) - set(ignored)
        return any(new.get(name) != live.get(name) for name in names)


def _keep(new: JsonObject, live: JsonObject, name: str) -> None:
    if name in live:
        new[name] = live[name]
    else:
        new.pop(name, None)


class BuiltinStrategy(Strategy):
    """Built-in kinds: their status endpoint takes changes of labels and the like, too."""

    def prepare_status(self, new: JsonObject, live: JsonObject) -> JsonObject:
        """Everything outside metadata and status stays."""
        result = {name: value for name, value in live.items() if name not in ("status", "metadata")}
        result["metadata"] = new["metadata"]
        if "status" in new:
            result["status"] = new["status"]
        return result


class UpsertStrategy(BuiltinStrategy):
    """Leases and events: an update creates what is missing."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.creates_on_update = True


class NodeStrategy(BuiltinStrategy):
    """A node registers itself with its status."""

    def prepare_create(self, obj: JsonObject) -> None:
        """The status is kept."""


class ReturnedStrategy(BuiltinStrategy):
    """Services and service accounts: a deletion answers with the object."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.returns_deleted = True


class NamespaceStrategy(BuiltinStrategy):
    """A namespace keeps the finalizer that makes the server empty it first."""

    def prepare_create(self, obj: JsonObject) -> None:
        """Active, with the finalizer."""
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}

    def prepare_update(self, new: JsonObject, live: JsonObject) -> None:
        """Clients change metadata only."""
        super().prepare_update(new, live)
        _keep(new, live, "spec")


class PodStrategy(BuiltinStrategy):
    """A pod's specification has generations; its status endpoint leaves the owners alone."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.counts_generation = True
        self.returns_deleted = True

    def prepare_status(self, new: JsonObject, live: JsonObject) -> JsonObject:
        """As other built-in kinds, but the owners stay, too."""
        result = super().prepare_status(new, live)
        _keep(result["metadata"], live["metadata"], "ownerReferences")
        return result


_SPECIAL: dict[str, type[Strategy]] = {
    "events": UpsertStrategy,
    "leases.coordination.k8s.io": UpsertStrategy,
    "namespaces": NamespaceStrategy,
    "nodes": NodeStrategy,
    "pods": PodStrategy,
    "serviceaccounts": ReturnedStrategy,
    "services": ReturnedStrategy,
}


def builtin_strategy(kind: Kind) -> Strategy:
    """The strategy of a kind other than CustomResourceDefinition."""
    if not kind.builtin:
        return Strategy(kind)
    return _SPECIAL.get(kind.group_resource, BuiltinStrategy)(kind)
