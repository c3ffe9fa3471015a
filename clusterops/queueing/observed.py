"""What the API server is known to hold of Kueue's kinds, and the snapshot to decide on.

Own writes count at once: until the watch brings them back, the object the server returned for a
write stands in for the older one in the store, so no decision is made twice.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from clusterops.api import names
from clusterops.kube.client import Client
from clusterops.kube.reflector import Reflector
from clusterops.kube.store import Key, Store
from clusterops.scheduling import parse, snapshot
from clusterops.scheduling.objects import (
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Workload,
)
from clusterops.scheduling.snapshot import Snapshot

Json = dict[str, Any]
T = TypeVar("T")


class Seen(msgspec.Struct, frozen=True):
    """A Workload as read: the raw object, and what decisions read of it."""

    raw: Json
    workload: Workload

    @property
    def status(self) -> Json:
        status = self.raw.get("status")
        return status if isinstance(status, dict) else {}


class SeenQueue(msgspec.Struct, frozen=True):
    """A ClusterQueue or LocalQueue as read; `parsed` says what decisions read of it."""

    raw: Json
    parsed: Any


class PriorityClass(msgspec.Struct, frozen=True):
    """A WorkloadPriorityClass: its name and value."""

    name: str
    value: int


def see(raw: Json) -> Seen:
    """A Workload as this room keeps it."""
    return Seen(raw, parse.workload(raw))


class Observed:
    """The stores, their reflectors, and own writes that have not come back yet."""

    def __init__(
        self,
        client: Client,
        *,
        workload_changed: Callable[[Key], None],
        configuration_changed: Callable[[], None],
    ) -> None:
        """Calls `workload_changed` with the key of a Workload, `configuration_changed` for all else.

        Changes that no decision reads, such as of a queue's status, are not told.
        """
        self.workloads: Store[Seen] = Store()
        self.cluster_queues: Store[SeenQueue] = Store()
        self.local_queues: Store[SeenQueue] = Store()
        self.cohorts: Store[Cohort] = Store()
        self.flavors: Store[ResourceFlavor] = Store()
        self.classes: Store[PriorityClass] = Store()
        self.checks: Store[bool] = Store()
        self.namespaces: Store[dict[str, str]] = Store()
        self._written: dict[Key, Seen] = {}

        self._configuration: Snapshot | None = None
        self._configuration_changed = configuration_changed

        def change_of_workload(key: Key) -> None:
            self._settle(key)
            workload_changed(key)

        def reflect(
            resource: names.ResourceType,
            store: Store[T],
            project: Callable[[Any], T],
            on_change: Callable[[Key], None] | None = None,
        ) -> Reflector[T]:
            return Reflector(client, resource, store, project, on_change)

        self._reflectors: tuple[Reflector[Any], ...] = (
            reflect(names.CLUSTER_QUEUES, self.cluster_queues, _cluster_queue),
            reflect(names.LOCAL_QUEUES, self.local_queues, _local_queue),
            reflect(names.COHORTS, self.cohorts, parse.cohort),
            reflect(names.RESOURCE_FLAVORS, self.flavors, parse.resource_flavor),
            reflect(names.WORKLOAD_PRIORITY_CLASSES, self.classes, _priority_class),
            reflect(names.ADMISSION_CHECKS, self.checks, _check_is_active),
            reflect(names.NAMESPACES, self.namespaces, _labels),
            reflect(names.WORKLOADS, self.workloads, see, change_of_workload),
        )
        self.cluster_queues.subscribe(self._on_configuration)
        self.local_queues.subscribe(self._on_configuration)
        self.cohorts.subscribe(self._on_configuration)
        self.flavors.subscribe(self._on_configuration)
        self.checks.subscribe(self._on_configuration)
        self.namespaces.subscribe(self._on_configuration)

    def _on_configuration(self, _: Key, before: object, after: object) -> None:
        """Tells a change of configuration, unless only what nobody reads has changed."""
        if _essence(before) != _essence(after):
            self._configuration = None
            self._configuration_changed()

    async def run(self) -> None:
        """Watches until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"watch {reflector.resource.plural}")

    async def wait_synced(self, timeout_seconds: float) -> None:
        """Waits until everything was listed once; raises TimeoutError naming the kind."""
        for reflector in self._reflectors:
            await reflector.wait_synced(timeout_seconds)

    def workload(self, key: Key) -> Seen | None:
        """The newest known state of a Workload; None when it is gone."""
        stored = self.workloads.get(key)
        return stored if stored is None else self._written.get(key, stored)

    def all_workloads(self) -> Iterable[Seen]:
        """The newest known state of every Workload."""
        for key in self.workloads:
            seen = self.workload(key)
            if seen is not None:
                yield seen

    def written(self, raw: Json) -> Seen:
        """Notes what the server returned for an own write."""
        seen = see(raw)
        key = seen.workload.key
        self._written[key] = seen
        self._settle(key)
        return seen

    def _settle(self, key: Key) -> None:
        """Forgets an own write once the watch has caught up with it."""
        written = self._written.get(key)
        if written is None:
            return
        stored = self.workloads.get(key)
        if (
            stored is None
            or stored.workload.uid != written.workload.uid
            or _version(stored.raw) >= _version(written.raw)
        ):
            del self._written[key]

    def snapshot(self) -> Snapshot:
        """Everything a decision reads, as of now."""
        return self._build([seen.workload for seen in self.all_workloads()])

    def configuration(self) -> Snapshot:
        """A snapshot without workloads: queues, quota, flavors. Kept until one of them changes."""
        if self._configuration is None:
            self._configuration = self._build([])
        return self._configuration

    def _build(self, workloads: list[Workload]) -> Snapshot:
        return snapshot.build(
            cluster_queues=[seen.parsed for seen in self.cluster_queues.values()],
            cohorts=self.cohorts.values(),
            flavors=self.flavors.values(),
            local_queues=[seen.parsed for seen in self.local_queues.values()],
            workloads=workloads,
            checks={name: active for (_, name), active in self.checks.items()},
            namespaces={name: labels for (_, name), labels in self.namespaces.items()},
        )


def _essence(value: object) -> object:
    """What decisions read of a stored object."""
    return value.parsed if isinstance(value, SeenQueue) else value


def _version(raw: Json) -> int:
    """The resourceVersion as a number: API servers since 1.35, and ours, promise an order."""
    text = str(raw["metadata"].get("resourceVersion") or "0")
    return int(text) if text.isdigit() else 0


def _cluster_queue(raw: Json) -> SeenQueue:
    parsed: ClusterQueue = parse.cluster_queue(raw)
    return SeenQueue(raw, parsed)


def _local_queue(raw: Json) -> SeenQueue:
    parsed: LocalQueue = parse.local_queue(raw)
    return SeenQueue(raw, parsed)


def _priority_class(raw: Json) -> PriorityClass:
    return PriorityClass(raw["metadata"]["name"], int(raw.get("value") or 0))


def _check_is_active(raw: Json) -> bool:
    conditions = (raw.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Active" and each["status"] == "True" for each in conditions)


def _labels(raw: Json) -> dict[str, str]:
    return dict(raw["metadata"].get("labels") or {})
