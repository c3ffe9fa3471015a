"""What a kind is: its names, its schema, its columns and what may be done with it."""

from dataclasses import dataclass
from functools import cached_property

from clusterops.apiserver.columns import Column
from clusterops.apiserver.schema import Schema

ALL_VERBS = (
    "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
)  # fmt: skip
CREATE_ONLY = ("create",)


@dataclass(frozen=True, eq=False)
class Kind:
    """One version of one resource, ready to serve.

    `subresources` is among status, log, binding, eviction. A kind whose `verbs` lack `list` is
    answered and never stored (the review kinds). `selectable_fields` are the dotted paths that a
    field selector may name besides metadata.name and metadata.namespace. `crd_name` is the name
    of the CustomResourceDefinition that a kind comes from, empty for built-in ones.
    """

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    list_kind: str
    namespaced: bool
    schema: Schema
    columns: tuple[Column, ...] = ()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    verbs: tuple[str, ...] = ALL_VERBS
    selectable_fields: tuple[str, ...] = ()
    builtin: bool = False
    description: str = ""
    crd_name: str = ""

    @cached_property
    def api_version(self) -> str:
        """What objects of this kind carry as `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def group_resource(self) -> str:
        """`trainingjobs.clusterops.io`, or `pods` in the core group: as in error messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def root_path(self) -> str:
        """`/apis/GROUP/VERSION`, or `/api/VERSION` in the core group."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @cached_property
    def stored(self) -> bool:
        """Whether objects of this kind are kept; reviews are only answered."""
        return "list" in self.verbs


class CrdError(ValueError):
    """A CustomResourceDefinition that cannot be served; `reasons` says each thing wrong with it."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons
