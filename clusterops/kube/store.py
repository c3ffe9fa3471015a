"""What the server is known to hold, projected to what its readers need, with indexes.

One writer (a reflector) and any number of readers in one event loop. Values are replaced, never
changed in place, so a reader may keep one for as long as it likes.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

Key = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is ""."""

IndexFunction = Callable[[T], Iterable[Hashable]]
Listener = Callable[[Key, T | None, T | None], None]


class Change(NamedTuple):
    """Which keys a relist found added, changed or gone, in that order."""

    added: list[Key]
    changed: list[Key]
    removed: list[Key]


class _Entry(NamedTuple, Generic[T]):
    value: T
    resource_version: str
    index_values: tuple[tuple[Hashable, ...], ...]


class Store(Generic[T]):
    """Objects by (namespace, name), and by the values that named index functions give for them.

    >>> pods = Store[Pod]({"node": lambda pod: [pod.node] if pod.node else []})
    >>> pods.by_index("node", "worker-1")
    """

    def __init__(self, indexes: Mapping[str, IndexFunction[T]] | None = None) -> None:
        self._functions: dict[str, IndexFunction[T]] = dict(indexes or {})
        self._entries: dict[Key, _Entry[T]] = {}
        # A dict as an ordered set: iteration must not depend on hashes.
        self._buckets: dict[str, dict[Hashable, dict[Key, None]]] = {
            name: {} for name in self._functions
        }
        self._listeners: list[Listener[T]] = []

    # Reading

    def get(self, key: Key) -> T | None:
        """The object, or None when the server has none of that name."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._entries))

    def keys(self) -> list[Key]:
        """All keys, oldest arrival first; a copy."""
        return list(self._entries)

    def values(self) -> list[T]:
        """All objects, oldest arrival first; a copy."""
        return [entry.value for entry in self._entries.values()]

    def items(self) -> list[tuple[Key, T]]:
        """All keys with their objects, oldest arrival first; a copy."""
        return [(key, entry.value) for key, entry in self._entries.items()]

    def resource_version(self, key: Key) -> str | None:
        """The resourceVersion of the stored object."""
        entry = self._entries.get(key)
        return None if entry is None else entry.resource_version

    def keys_by_index(self, index: str, value: Hashable) -> list[Key]:
        """Keys of the objects for which the index function yields `value`; KeyError if no such index."""
        return list(self._buckets[index].get(value, ()))

    def by_index(self, index: str, value: Hashable) -> list[T]:
        """Objects for which the index function yields `value`; KeyError if no such index."""
        return [self._entries[key].value for key in self._buckets[index].get(value, ())]

    def index_values(self, index: str) -> list[Hashable]:
        """Every value of the index that at least one object has."""
        return list(self._buckets[index])

    def subscribe(self, listener: Listener[T]) -> None:
        """Calls `listener(key, before, after)` after each change; None stands for absent.

        Needed where a key alone is not enough: the owner of a deleted pod is only in `before`.
        """
        self._listeners.append(listener)

    # Writing, for the reflector

    def put(self, key: Key, value: T, resource_version: str = "") -> None:
        """Adds or replaces one object."""
        # Index functions run first: if one raises, nothing has changed yet.
        index_values = tuple(
            tuple(dict.fromkeys(function(value))) for function in self._functions.values()
        )
        before = self._entries.get(key)
        self._entries[key] = _Entry(value, resource_version, index_values)
        if before is None or before.index_values != index_values:
            if before is not None:
                self._unindex(key, before)
            for buckets, values in zip(self._buckets.values(), index_values, strict=True):
                for index_value in values:
                    buckets.setdefault(index_value, {})[key] = None
        self._tell(key, None if before is None else before.value, value)

    def remove(self, key: Key) -> T | None:
        """Removes one object and returns it; None when there was none."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self._unindex(key, entry)
        self._tell(key, entry.value, None)
        return entry.value

    def replace(self, objects: Mapping[Key, tuple[T, str]]) -> Change:
        """Makes the content exactly `objects` (key -> object, resourceVersion), telling differences.

        An object whose resourceVersion is the stored one is left as it is and not reported.
        """
        change = Change([], [], [])
        for key in [key for key in self._entries if key not in objects]:
            self.remove(key)
            change.removed.append(key)
        for key, (value, version) in objects.items():
            before = self._entries.get(key)
            if before is not None and version and before.resource_version == version:
                continue
            (change.added if before is None else change.changed).append(key)
            self.put(key, value, version)
        return change

    def _unindex(self, key: Key, entry: _Entry[T]) -> None:
        for buckets, values in zip(self._buckets.values(), entry.index_values, strict=True):
            for index_value in values:
                bucket = buckets[index_value]
                del bucket[key]
                if not bucket:
                    del buckets[index_value]

    def _tell(self, key: Key, before: T | None, after: T | None) -> None:
        for listener in self._listeners:
            listener(key, before, after)
