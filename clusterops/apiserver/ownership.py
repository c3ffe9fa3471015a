"""The entries of `managedFields`: who owns which fields, through which kind of write.

An owner is a manager with an operation and a subresource; the same name with another operation is
another owner.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from clusterops.apiserver.field_set import Fields, difference, union

APPLY, UPDATE = "Apply", "Update"
# A crowd of one-off clients must not make objects grow without bound; the oldest are folded into
# one, as real API servers do.
UPDATE_ENTRIES_LIMIT = 10
ANCIENT = "ancient-changes"


class Entry(NamedTuple):
    """One entry: the fields that one owner has set, and when it last changed them."""

    manager: str
    operation: str
    subresource: str
    api_version: str
    time: str
    fields: Fields

    @property
    def owner(self) -> tuple[str, str, str]:
        """What tells owners apart."""
        return self.manager, self.operation, self.subresource

    def without(self, gone: Fields) -> Entry:
        """The entry with some fields taken away."""
        remaining = difference(self.fields, gone)
        return self if remaining == self.fields else self._replace(fields=remaining)

    def encoded(self) -> dict[str, Any]:
        """The entry as objects carry it."""
        entry = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields,
        }
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry


def read(obj: dict[str, Any] | None) -> list[Entry]:
    """The entries of an object; what cannot be read is left out, as nobody can own it."""
    meta = (obj or {}).get("metadata")
    found = meta.get("managedFields") if isinstance(meta, dict) else None
    entries = []
    for raw in found if isinstance(found, list) else ():
        fields = raw.get("fieldsV1") if isinstance(raw, dict) else None
        if isinstance(fields, dict) and raw.get("operation") in (APPLY, UPDATE):
            entries.append(
                Entry(
                    manager=str(raw.get("manager", "")),
                    operation=raw["operation"],
                    subresource=str(raw.get("subresource", "")),
                    api_version=str(raw.get("apiVersion", "")),
                    time=str(raw.get("time", "")),
                    fields=fields,
                )
            )
    return entries


def write(obj: dict[str, Any], entries: list[Entry], now: str) -> None:
    """Put entries into an object: appliers first, then by time, empty ones left out."""
    kept = [entry for entry in entries if entry.fields]
    updates = sorted((e for e in kept if e.operation == UPDATE), key=lambda e: (e.time, e.manager))
    if len(updates) > UPDATE_ENTRIES_LIMIT:
        updates = _folded(updates, now)
    applies = sorted((e for e in kept if e.operation == APPLY), key=lambda e: (e.time, e.manager))
    meta = obj["metadata"]
    if kept:
        meta["managedFields"] = [entry.encoded() for entry in (*applies, *updates)]
    else:
        meta.pop("managedFields", None)


def _folded(updates: list[Entry], now: str) -> list[Entry]:
    surplus = len(updates) - UPDATE_ENTRIES_LIMIT + 1
    old, recent = updates[:surplus], updates[surplus:]
    fields: Fields = {}
    for entry in old:
        fields = union(fields, entry.fields)
    time = old[-1].time or now
    return [Entry(ANCIENT, UPDATE, "", old[-1].api_version, time, fields), *recent]
