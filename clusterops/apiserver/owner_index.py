"""Who owns whom: live objects by uid, and dependents by their owner's uid."""

from collections.abc import Iterable, Iterator

from clusterops.apiserver.ring import DELETED, Event
from clusterops.apiserver.stored import Key, Stored

Place = tuple[str, Key]  # resource, and namespace and name


class OwnerIndex:
    """Follows committed events; answers from memory."""

    def __init__(self) -> None:
        self._live: dict[str, Stored] = {}
        # Dicts serve as sets that keep their order.
        self._dependents: dict[str, dict[Place, None]] = {}

    def load(self, objects: Iterable[Stored]) -> None:
        """Index what is there at the start."""
        for stored in objects:
            self._add(stored)

    def observe(self, event: Event) -> None:
        """Follow one committed event."""
        current, previous = event.current, event.previous
        if previous is not None and previous.owners:
            self._remove_dependent(previous)
        if event.type == DELETED:
            self._live.pop(current.uid, None)
        else:
            self._add(current)

    def _add(self, stored: Stored) -> None:
        self._live[stored.uid] = stored
        for owner in stored.owners:
            self._dependents.setdefault(owner, {})[stored.resource, stored.key] = None

    def _remove_dependent(self, stored: Stored) -> None:
        for owner in stored.owners:
            known = self._dependents.get(owner)
            if known is not None:
                known.pop((stored.resource, stored.key), None)
                if not known:
                    del self._dependents[owner]

    def live(self, uid: str) -> Stored | None:
        """The object with that uid."""
        return self._live.get(uid)

    def has_dependents(self, uid: str) -> bool:
        """Whether anything names `uid` as an owner."""
        return uid in self._dependents

    def dependents(self, uid: str) -> Iterator[Place]:
        """Where the objects are that name `uid` as an owner."""
        yield from tuple(self._dependents.get(uid, ()))
