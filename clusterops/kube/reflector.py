"""Keeps a Store equal to what the server holds: list, then watch, and list again when in doubt.

The loop: list in pages and replace the store's content; watch from the list's version and apply each
event; when the watch ends or breaks, watch again from the last version seen; when that version is
too old (410), or the server's order of events cannot be trusted, list again and tell only the
differences. A full list every `relist_seconds` bounds how long an event that some proxy swallowed
can stay unnoticed.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from clusterops.kube.client import Client
from clusterops.kube.errors import Gone, KubeError, Retryable, printable
from clusterops.kube.store import Key, Store
from clusterops.kube.transport import ResourceType
from clusterops.kube.wire import Undecodable, WatchEvent, key_and_version

T = TypeVar("T")

log = logging.getLogger(__name__)


class ReflectorTiming(NamedTuple):
    """All in seconds. A watch lasts 1 to 2 times `watch`, silence 1 to 1.2 times, by chance.

    The spread keeps many reflectors from coming back at the same instant. Servers send a bookmark
    about once a minute, so 75 s without a byte mean that the connection is dead.
    """

    watch: float = 300.0
    silence: float = 75.0
    relist: float = 1800.0
    base_backoff: float = 0.5
    max_backoff: float = 30.0


class ReflectorState(NamedTuple):
    """A snapshot for health and metrics; `seconds_since_contact` is None before the first answer."""

    synced: bool
    objects: int
    lists: int
    events: int
    duplicates: int
    failures_in_a_row: int
    undecodable: int
    seconds_since_contact: float | None
    last_error: str


class _OutOfOrder(Exception):
    """An event older than one already seen: what else is missing cannot be known."""


class Reflector(Generic[T]):
    """Watches one kind and keeps `store` equal to the server's objects.

    An object that `project` refuses (ValueError, KeyError, TypeError, AttributeError) is left out,
    or stays as it was; it is logged, counted, and never stops the others.
    """

    def __init__(
        self,
        client: Client,
        resource: ResourceType,
        store: Store[T],
        project: Callable[[Any], T],
        on_change: Callable[[Key], None] | None = None,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        shape: type | None = None,
        page_size: int = 500,
        timing: ReflectorTiming | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`project` turns an object (a dict without managedFields, or a `shape`) into what is kept.

        `on_change(key)` is called after the store has changed, also for objects that went away.
        """
        self.resource = resource
        self.store = store
        self._client = client
        self._project = project
        self._on_change = on_change
        self._selection: dict[str, Any] = {
            "namespace": namespace,
            "label_selector": label_selector,
            "field_selector": field_selector,
            "shape": shape,
        }
        self._page_size = page_size
        self._timing = timing or ReflectorTiming()
        self._rng = rng or random.Random()
        self._synced = asyncio.Event()
        self._version = ""  # the newest seen; "" = list before watching
        self._relist_at = 0.0
        self._contact_at: float | None = None
        self._last_error = ""
        self._failures = 0
        self._lists = 0
        self._events = 0
        self._duplicates = 0
        self._undecodable: dict[Key, str] = {}  # -> resourceVersion already complained about

    @property
    def synced(self) -> bool:
        """Whether the store has held the server's whole content at least once."""
        return self._synced.is_set()

    async def wait_synced(self, timeout_seconds: float) -> None:
        """Waits for the first complete list; raises TimeoutError with the last error."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._synced.wait()
        except TimeoutError:
            raise TimeoutError(
                f"{self.resource.plural} were not listed within {timeout_seconds:g} s"
                + (f": {self._last_error}" if self._last_error else "")
            ) from None

    async def run(self) -> None:
        """Works until cancelled; failures are retried with back-off and shown in `state`.

        Errors of `on_change` and of the store's listeners are bugs and end it.
        """
        while True:
            retry_after = 0.0
            try:
                if not self._version or _now() >= self._relist_at:
                    await self._list()
                if await self._watch():
                    continue
                self._last_error = "the server ended a watch at once"
            except Gone as error:
                self._version = ""
                self._last_error = str(error)
            except _OutOfOrder as error:
                self._version = ""
                self._last_error = str(error)
                log.warning("%s: %s; listing again", self.resource.plural, error)
            except KubeError as error:
                self._last_error = str(error)
                if isinstance(error, Retryable):
                    retry_after = error.retry_after_seconds or 0.0
                log.log(
                    logging.WARNING if self._failures else logging.INFO,
                    "%s: %s",
                    self.resource.plural,
                    error,
                )
            self._failures += 1
            await asyncio.sleep(max(self._backoff(), retry_after))

    def state(self) -> ReflectorState:
        """How it is doing now."""
        return ReflectorState(
            synced=self.synced,
            objects=len(self.store),
            lists=self._lists,
            events=self._events,
            duplicates=self._duplicates,
            failures_in_a_row=self._failures,
            undecodable=len(self._undecodable),
            seconds_since_contact=None if self._contact_at is None else _now() - self._contact_at,
            last_error=self._last_error,
        )

    # Listing

    async def _list(self) -> None:
        try:
            objects, version = await self._read_all(self._page_size)
        except Gone:
            # The token grew too old between two pages; without pages there is none.
            objects, version = await self._read_all(0)
        change = self.store.replace(objects)
        self._version = version
        self._relist_at = _now() + self._timing.relist * (1.0 + 0.2 * self._rng.random())
        self._lists += 1
        self._synced.set()
        if self._on_change is not None:
            for keys in change:
                for key in keys:
                    self._on_change(key)

    async def _read_all(self, page_size: int) -> tuple[dict[Key, tuple[T, str]], str]:
        objects: dict[Key, tuple[T, str]] = {}
        self._undecodable = {}
        token = ""
        while True:
            page = await self._client.list_page(
                self.resource, **self._selection, limit=page_size, continue_token=token
            )
            self._contact_at = _now()
            for obj in page.items:
                key, version = key_and_version(obj)
                self._collect(objects, key, version, obj)
            for broken in page.undecodable:
                self._collect(objects, broken.key, broken.resource_version, broken)
            token = page.continue_token
            if not token:
                return objects, page.resource_version

    def _collect(self, objects: dict[Key, tuple[T, str]], key: Key, version: str, obj: Any) -> None:
        projected = self._projected(key, version, obj)
        if projected is not None:
            objects[key] = (projected.value, version)
            return
        before = self.store.get(key)
        if before is not None:  # it exists, only its new state cannot be read
            objects[key] = (before, self.store.resource_version(key) or "")

    # Watching

    async def _watch(self) -> bool:
        """Applies events until the server ends the watch; False if it did so at once, with none."""
        started = _now()
        seconds = min(
            self._timing.watch * (1.0 + self._rng.random()), max(1.0, self._relist_at - started)
        )
        silence = self._timing.silence * (1.0 + 0.2 * self._rng.random())
        heard = False
        async with self._client.watch(
            self.resource,
            **self._selection,
            resource_version=self._version,
            timeout_seconds=seconds,
            silence_seconds=silence,
        ) as events:
            self._contact_at = _now()
            async for event in events:
                heard = True
                self._failures = 0
                self._contact_at = _now()
                self._apply(event)
        if heard or _now() - started >= 1.0:
            self._failures = 0
            return True
        return False

    def _apply(self, event: WatchEvent) -> None:
        self._events += 1
        version = event.resource_version
        if event.type != "BOOKMARK":
            if self._is_known(event):
                self._duplicates += 1
            elif _older(version, self._version):
                raise _OutOfOrder(
                    f"{event.type} of {printable('/'.join(event.key))} has version {version}, "
                    f"but {self._version} had already come"
                )
            else:
                self._store(event)
        # A known event moves the version too: a deletion that overtook its own addition is new.
        if version and not _older(version, self._version):
            self._version = version

    def _is_known(self, event: WatchEvent) -> bool:
        """Whether the store is at this event or past it already."""
        held = self.store.resource_version(event.key)
        if event.type == "DELETED":
            return held is None or _older(event.resource_version, held)
        return held is not None and (
            held == event.resource_version or _older(event.resource_version, held)
        )

    def _store(self, event: WatchEvent) -> None:
        key = event.key
        if event.type == "DELETED":
            self._undecodable.pop(key, None)
            self.store.remove(key)
        else:
            projected = self._projected(key, event.resource_version, event.object)
            if projected is None:
                return
            self._undecodable.pop(key, None)
            self.store.put(key, projected.value, event.resource_version)
        if self._on_change is not None:
            self._on_change(key)

    # Helpers

    def _projected(self, key: Key, version: str, obj: Any) -> "_Projected[T] | None":
        """What is kept of an object; None, logged and counted, when it cannot be read."""
        if isinstance(obj, Undecodable):
            reason = obj.error
        else:
            if isinstance(obj, dict):
                obj["metadata"].pop("managedFields", None)
            try:
                return _Projected(self._project(obj))
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                reason = f"{type(error).__name__}: {error}"
        if self._undecodable.get(key) != version:
            log.warning(
                "%s %s at version %s cannot be read and is left as it was: %s",
                self.resource.kind,
                printable("/".join(key)),
                version,
                printable(reason),
            )
        self._undecodable[key] = version
        return None

    def _backoff(self) -> float:
        full = self._timing.base_backoff * 2.0 ** min(self._failures - 1, 30)
        return min(full, self._timing.max_backoff) * (0.5 + 0.5 * self._rng.random())


class _Projected(NamedTuple, Generic[T]):
    value: T


def _older(version: str, than: str) -> bool:
    """Whether one resourceVersion comes before another; False when they cannot be compared.

    They are decimal numbers of any length that grow with every write.
    """
    if not (version.isdecimal() and than.isdecimal()):
        return False
    return (len(version), version) < (len(than), than)


def _now() -> float:
    return asyncio.get_running_loop().time()
