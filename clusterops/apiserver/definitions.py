"""CustomResourceDefinitions: checked when they are written, served from the moment they are stored."""

from collections.abc import Callable

from clusterops.apiserver.causes import INVALID, Cause
from clusterops.apiserver.crd import accepted_status, check_crd, finish_crd, kind_from_crd
from clusterops.apiserver.kind import CrdError, Kind
from clusterops.apiserver.strategy import BuiltinStrategy, JsonObject

RESOURCE = "customresourcedefinitions.apiextensions.k8s.io"
# Keeps a definition until the objects of its kind are gone.
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


class DefinitionStrategy(BuiltinStrategy):
    """A definition that can be served is served at once, and says so in its conditions.

    `now` gives the time as text.
    """

    def __init__(self, kind: Kind, now: Callable[[], str]) -> None:
        super().__init__(kind)
        self.counts_generation = True
        self.returns_deleted = True
        self._now = now

    def prepare_create(self, obj: JsonObject) -> None:
        """Established, with its clean-up finalizer."""
        finalizers = obj["metadata"].get("finalizers")
        if not isinstance(finalizers, list):
            finalizers = []
        if CLEANUP_FINALIZER not in finalizers:
            obj["metadata"]["finalizers"] = [*finalizers, CLEANUP_FINALIZER]
        obj.pop("status", None)
        self._accept(obj)

    def prepare_update(self, new: JsonObject, live: JsonObject) -> None:
        """Accepted names follow the specification, conditions keep their times."""
        super().prepare_update(new, live)
        self._accept(new)
        known = (live.get("status") or {}).get("conditions")
        if known and "status" in new:
            new["status"]["conditions"] = known

    def validate(self, obj: JsonObject) -> list[Cause]:
        """Every reason why it cannot be served, found by making its kind."""
        try:
            kind_from_crd(obj)
        except CrdError as error:
            return [_cause(reason) for reason in error.reasons]
        return []

    def _accept(self, obj: JsonObject) -> None:
        """Set the status; one that will be refused has none."""
        finish_crd(obj)
        if not check_crd(obj):
            obj["status"] = accepted_status(obj, self._now())


def _cause(reason: str) -> Cause:
    """Reasons are `field: what is wrong`; one without a field is about the specification."""
    field, separator, message = reason.partition(": ")
    if separator and " " not in field:
        return Cause(field, INVALID, message)
    return Cause("spec", INVALID, reason)
