"""What every object of the API has that decisions read: metadata and conditions."""

from datetime import datetime

import msgspec


class Wire(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the projections: immutable, camelCase on the wire."""


class Owner(Wire, frozen=True):
    """One entry of ownerReferences."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Wire, frozen=True):
    """The part of an object's metadata that decisions read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None
    owner_references: tuple[Owner, ...] | None = None

    @property
    def deleting(self) -> bool:
        """True once a deletion has been asked for."""
        return self.deletion_timestamp is not None

    @property
    def owner_uid(self) -> str:
        """The uid of the controlling owner; empty when there is none."""
        owners = self.owner_references or ()
        return next((owner.uid for owner in owners if owner.controller), "")

    def label(self, key: str) -> str:
        """The value of a label, empty when absent."""
        return (self.labels or {}).get(key, "")

    def annotation(self, key: str) -> str:
        """The value of an annotation, empty when absent."""
        return (self.annotations or {}).get(key, "")


class Condition(Wire, frozen=True):
    """A standard condition."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int | None = None

    @property
    def true(self) -> bool:
        return self.status == "True"
