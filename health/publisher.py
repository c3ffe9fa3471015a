"""Writes the daemon's own half of its node's NodeHealth: when it changes, and as a sign of life."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from clusterops.api import names
from clusterops.kube.client import Client
from clusterops.kube.errors import AlreadyExists, KubeError, NotFound

HEARTBEAT_SECONDS = 60.0
RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 30.0

log = logging.getLogger(__name__)

Status = dict[str, Any]


class Publisher:
    """Keeps the status equal to what `current` says."""

    def __init__(self, client: Client, node: str, current: Callable[[], Status]) -> None:
        """`current` gives the status of now, `heartbeatAt` and all."""
        self._client = client
        self._node = node
        self._current = current
        self._changed = asyncio.Event()
        self._written: Status = {}
        self._write_by = 0.0
        self.writes = 0
        self.failures_in_a_row = 0

    def changed(self) -> None:
        """Says that the status may have changed."""
        self._changed.set()

    def say_again(self, within_seconds: float) -> None:
        """Has the status written within so many seconds though nothing may have changed: somebody
        wants to know that it is still so.
        """
        self._write_by = min(self._write_by, time.monotonic() + within_seconds)
        self._changed.set()

    async def run(self) -> None:
        """Writes until cancelled. Failures are tried again; the newest status is written then."""
        while True:
            try:
                async with asyncio.timeout(max(0.0, self._write_by - time.monotonic())):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            asked = self._write_by
            status = self._current()
            if time.monotonic() < self._write_by and _without_time(status) == self._written:
                continue
            try:
                await self.write(status)
            except KubeError as error:
                self.failures_in_a_row += 1
                if self.failures_in_a_row in (1, 10, 100):
                    log.warning("NodeHealth %s cannot be written: %s", self._node, error)
                self._changed.set()
                delay = RETRY_SECONDS * 2 ** min(self.failures_in_a_row, 8)
                await asyncio.sleep(min(delay, LONGEST_RETRY_SECONDS))
                continue
            self.failures_in_a_row = 0
            self._written = _without_time(status)
            if self._write_by == asked:  # nobody asked for another one while it was written
                self._write_by = time.monotonic() + HEARTBEAT_SECONDS

    async def write(self, status: Status) -> None:
        """One write; the object is made when it is not there. Raises KubeError."""
        try:
            await self._put(status)
        except NotFound:
            await self._create()
            await self._put(status)
        self.writes += 1

    async def _put(self, status: Status) -> None:
        await self._client.update_status(
            names.NODE_HEALTHS, None, self._node, lambda obj: _merged(obj, status)
        )

    async def _create(self) -> None:
        obj = {
            "apiVersion": names.NODE_HEALTHS.api_version,
            "kind": names.NODE_HEALTHS.kind,
            "metadata": {"name": self._node},
            "spec": {},
        }
        try:
            await self._client.create(names.NODE_HEALTHS, obj)
        except AlreadyExists:
            log.debug("NodeHealth %s was made meanwhile", self._node)


def _merged(obj: Status, status: Status) -> Status:
    """The new status with the transition times of conditions that have not changed."""
    before = {each.get("type"): each for each in (obj.get("status") or {}).get("conditions") or ()}
    conditions = []
    for each in status["conditions"]:
        old = before.get(each["type"])
        if old is not None and old.get("status") == each["status"]:
            each = {**each, "lastTransitionTime": old.get("lastTransitionTime")}
        conditions.append(each)
    return {
        **status,
        "conditions": conditions,
        "observedGeneration": obj["metadata"].get("generation", 0),
    }


def _without_time(status: Status) -> Status:
    conditions = [
        {name: value for name, value in each.items() if name != "lastTransitionTime"}
        for each in status["conditions"]
    ]
    kept = {name: value for name, value in status.items() if name != "heartbeatAt"}
    return {**kept, "conditions": conditions}
