"""What the cluster knows about this node's GPUs: jobs that ended, and repairs that were made.

Read through the API like anybody else; nobody sends the daemon anything. Each fact has a number made
of its identity, so it counts once however often it is read.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from clusterops.api import names
from clusterops.kube.client import Client
from clusterops.kube.reflector import Reflector
from clusterops.kube.store import Key, Store
from health.actions import Action
from health.events import ActionTaken, Ending, JobEnded, Source, Verified, What
from health.watch_state import Seen

LONGEST_AGO_SECONDS = 86_400.0

Tell = Callable[[Seen], None]


class PodEnd(NamedTuple):
    """How far a job's pod on this node is."""

    uid: str
    job: str
    how: Ending | None
    """None while it runs."""
    ended_at: float | None
    """Wall time in seconds, when the pod says it."""


class Repair(NamedTuple):
    """The operator's remediation of this node."""

    incident: str
    boot: str
    rung: str
    state: str


def pod_end(pod: dict[str, Any]) -> PodEnd:
    """What matters of a pod."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    job = f"{metadata.get('namespace', '')}/{labels.get(names.LABEL_JOB, metadata['name'])}"
    phase = status.get("phase")
    how = None
    if metadata.get("deletionTimestamp"):
        how = Ending.EVICTED
    elif phase == "Succeeded":
        how = Ending.COMPLETED
    elif phase == "Failed":
        how = Ending.FAILED
    return PodEnd(str(metadata.get("uid", "")), job, how, _finished(status))


def repair(health: dict[str, Any]) -> Repair | None:
    """The remediation in a NodeHealth, None when there is none."""
    wanted = (health.get("spec") or {}).get("remediation")
    if not isinstance(wanted, dict):
        return None
    return Repair(
        str(wanted.get("incident", "")),
        str(wanted.get("bootId") or ""),
        str(wanted.get("rung", "")),
        str(wanted.get("state", "")),
    )


def repaired(found: Repair) -> list[What]:
    """The facts that a state of the remediation means."""
    if found.rung not in (Action.RESET_GPU, Action.REBOOT_NODE, Action.HARDWARE_TICKET):
        return []
    action = Action(found.rung)
    if found.state == "Failed":
        return [ActionTaken(action, succeeded=False, incident=found.incident)]
    if found.state == "Done":
        return [Verified()]
    return []


def number_of(*identity: str) -> int:
    """A number for the ledger that is the same whenever the same fact is read."""
    digest = hashlib.blake2s("\0".join(identity).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class ClusterSource:
    """Follows this node's pods and its NodeHealth."""

    def __init__(self, client: Client, node: str, tell: Tell, *, wall_of_boot: float) -> None:
        """`wall_of_boot` is the wall time of uptime 0, in seconds."""
        self._tell = tell
        self._wall_of_boot = wall_of_boot
        self.generation: int | None = None
        self._pods: Store[PodEnd] = Store()
        self._health: Store[tuple[Repair | None, int | None]] = Store()
        self._pod_watch: Reflector[PodEnd] = Reflector(
            client, names.PODS, self._pods, pod_end, self._pod_changed,
            field_selector=f"spec.nodeName={node}", label_selector=names.LABEL_JOB,
        )  # fmt: skip
        self._health_watch: Reflector[tuple[Repair | None, int | None]] = Reflector(
            client, names.NODE_HEALTHS, self._health,
            lambda obj: (repair(obj), obj["metadata"].get("generation")), self._health_changed,
            field_selector=f"metadata.name={node}",
        )  # fmt: skip
        self._running: dict[Key, PodEnd] = {}

    async def run(self) -> None:
        """Follows until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pod_watch.run())
            tasks.create_task(self._health_watch.run())

    def _pod_changed(self, key: Key) -> None:
        pod = self._pods.get(key)
        before = self._running.pop(key, None)
        if pod is not None and pod.how is None:
            self._running[key] = pod
            return
        if pod is None:
            if before is None:
                return
            pod = before._replace(how=Ending.EVICTED)  # deleted between two looks
        assert pod.how is not None
        uptime = time.monotonic()
        if pod.ended_at is not None:
            ended = pod.ended_at - self._wall_of_boot
            # A clock that was set between, or a pod of an earlier boot, gives no usable moment.
            if 0.0 < uptime - ended < LONGEST_AGO_SECONDS:
                uptime = max(0.0, ended)
        number = number_of("pod", pod.uid)
        self._tell(Seen(JobEnded(pod.job, pod.how), uptime, Source.CLUSTER, number))

    def _health_changed(self, key: Key) -> None:
        held = self._health.get(key)
        if held is None:
            return
        found, self.generation = held
        if found is None:
            return
        for what in repaired(found):
            number = number_of("repair", *found)
            self._tell(Seen(what, time.monotonic(), Source.CLUSTER, number))


def _finished(status: dict[str, Any]) -> float | None:
    moments = []
    for container in status.get("containerStatuses") or ():
        ended = ((container.get("state") or {}).get("terminated") or {}).get("finishedAt")
        try:
            moments.append(datetime.fromisoformat(str(ended)).timestamp())
        except (ValueError, OverflowError):
            continue
    return max(moments, default=None)
