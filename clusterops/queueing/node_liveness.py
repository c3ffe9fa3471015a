"""Says of a node whose agent has fallen silent that nothing is known of it any more.

In a cluster the node controller does this. Without it the Node of an agent that died, or that was not
started again, would stay Ready for ever: pods would be bound to it and wait there, and a job that has
a rank on it would never be told that the node is lost.

An agent renews its Lease. How long one has been silent is counted on this process's own clock, and only
while the API server answers: when it was away, nobody could renew. Nodes without a Lease, which nobody
has promised to keep fresh, are left alone.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from clusterops.api import names
from clusterops.kube.client import Client
from clusterops.kube.errors import Conflict, KubeError, NotFound
from clusterops.queueing import transitions

log = logging.getLogger(__name__)

Json = dict[str, Any]

LEASE_NAMESPACE = "kube-node-lease"
POLL_SECONDS = 5.0
DEFAULT_LEASE_SECONDS = 40.0
REASON = "NodeStatusUnknown"
MESSAGE = "the node agent has stopped renewing its lease"


class Silence:
    """How long each lease has not been renewed, by what polls saw. Pure but for its memory."""

    def __init__(self, longest_gap_seconds: float = 2 * POLL_SECONDS) -> None:
        """Between two polls at most `longest_gap_seconds` are counted: a longer gap means that the
        server was away, or this process.
        """
        self._longest_gap = longest_gap_seconds
        self._polled_at: float | None = None
        self._seen: dict[str, tuple[str, float]] = {}

    def poll(self, renewed: Mapping[str, str], now: float) -> dict[str, float]:
        """Takes the renewal times of all leases as they are; seconds of silence by lease."""
        before = self._polled_at
        passed = 0.0 if before is None else min(now - before, self._longest_gap)
        self._polled_at = now
        now_seen = {}
        for name, stamp in renewed.items():
            last, silent = self._seen.get(name, (None, 0.0))
            now_seen[name] = (stamp, silent + passed if last == stamp else 0.0)
        self._seen = now_seen
        return {name: silent for name, (_, silent) in now_seen.items()}


class NodeLiveness:
    """Polls the leases of nodes and writes Ready=Unknown. `run` works until cancelled."""

    def __init__(
        self,
        client: Client,
        clock: Callable[[], float],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """`clock` gives wall time in epoch seconds, for conditions."""
        self._client = client
        self._clock = clock
        self._monotonic = monotonic
        self._poll_seconds = poll_seconds
        self._silence = Silence(2 * poll_seconds)

    async def run(self) -> None:
        """Looks every few seconds until cancelled."""
        while True:
            try:
                await self.look()
            except KubeError as error:
                log.warning("cannot look at the nodes' leases: %s", error)
            await asyncio.sleep(self._poll_seconds)

    async def look(self) -> None:
        """Polls once, and writes what follows. Raises KubeError."""
        leases, _ = await self._client.list(names.LEASES, LEASE_NAMESPACE)
        specs = {lease["metadata"]["name"]: lease.get("spec") or {} for lease in leases}
        renewed = {name: str(spec.get("renewTime") or "") for name, spec in specs.items()}
        for name, silent in self._silence.poll(renewed, self._monotonic()).items():
            lasts = float(specs[name].get("leaseDurationSeconds") or DEFAULT_LEASE_SECONDS)
            if silent >= lasts:
                await self._give_up(name, silent)

    async def _give_up(self, name: str, silent: float) -> None:
        try:
            node = await self._client.get(names.NODES, None, name)
            status = unknown(node.get("status") or {}, self._clock())
            if status is None:
                return
            await self._client.write_status(names.NODES, node, status)
        except (NotFound, Conflict):
            return  # gone, or written this very moment: the next look tells
        log.warning("node %s: no sign of its agent for %.0f s", name, silent)


def unknown(status: Mapping[str, Any], now: float) -> Json | None:
    """A node's status with Ready=Unknown since `now`, in epoch seconds; None unless it says Ready."""
    if not transitions.is_true(status, "Ready"):
        return None
    said = {"status": "Unknown", "reason": REASON, "message": MESSAGE}
    said["lastTransitionTime"] = transitions.timestamp(now)
    conditions = [
        {**condition, **said} if condition["type"] == "Ready" else condition
        for condition in status["conditions"]
    ]
    return {**status, "conditions": conditions}
