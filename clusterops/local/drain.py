"""Takes running pods off the nodes of this machine before it goes down, and lets them back after.

The same as `kubectl drain`: no new pods, then each pod is deleted with its own grace, in which the
training library saves. The operator sees pods that were taken away and queues the jobs again, at no
cost to their retry budget. A node that a person cordoned stays cordoned.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any

from clusterops.api import names
from clusterops.kube import errors
from clusterops.kube.client import Client

POLL_SECONDS = 0.1
KILL_SECONDS = 6.0
ENDED = ("Succeeded", "Failed")


async def drain(
    client: Client, nodes: Sequence[str], *, deadline_seconds: float, hurry: asyncio.Event
) -> None:
    """Cordons `nodes` and ends their pods; after the deadline, or once `hurry` is set, those left
    are ended at once.
    """
    for node in nodes:
        await _cordon(client, node)
    # The last two seconds of the window are for those that did not heed their notice.
    for pod in await _running(client, nodes):
        await _delete(client, pod, max(1, int(deadline_seconds) - 2))
    if await _gone(client, nodes, deadline_seconds, hurry):
        return
    for pod in await _running(client, nodes):
        await _delete(client, pod, 1)
    if not await _gone(client, nodes, KILL_SECONDS, asyncio.Event()):
        # Their agents do not answer: the objects go now, the processes when an agent comes back.
        for pod in await _running(client, nodes):
            await _delete(client, pod, 0)


async def _gone(
    client: Client, nodes: Sequence[str], seconds: float, give_up: asyncio.Event
) -> bool:
    """Waits until no pod runs on `nodes`; False when time was up or `give_up` was set."""
    deadline = time.monotonic() + seconds
    while await _running(client, nodes):
        if give_up.is_set() or time.monotonic() > deadline:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await give_up.wait()
    return True


async def undrain(client: Client, nodes: Sequence[str]) -> None:
    """Lets the nodes that `drain` cordoned take pods again."""
    for node in nodes:
        with contextlib.suppress(errors.NotFound):
            current = await client.get(names.NODES, None, node)
            if names.ANNOTATION_DRAINED in (current["metadata"].get("annotations") or {}):
                change = {
                    "metadata": {"annotations": {names.ANNOTATION_DRAINED: None}},
                    "spec": {"unschedulable": None},
                }
                await client.patch(names.NODES, None, node, change)


async def _cordon(client: Client, node: str) -> None:
    with contextlib.suppress(errors.NotFound):
        current = await client.get(names.NODES, None, node)
        if (current.get("spec") or {}).get("unschedulable"):
            return
        change = {
            "metadata": {"annotations": {names.ANNOTATION_DRAINED: "down"}},
            "spec": {"unschedulable": True},
        }
        await client.patch(names.NODES, None, node, change)


async def _running(client: Client, nodes: Sequence[str]) -> list[dict[str, Any]]:
    pods, _ = await client.list(names.PODS)
    return [
        pod
        for pod in pods
        if (pod.get("spec") or {}).get("nodeName") in nodes
        and (pod.get("status") or {}).get("phase") not in ENDED
    ]


async def _delete(client: Client, pod: dict[str, Any], grace_seconds: int) -> None:
    metadata = pod["metadata"]
    with contextlib.suppress(errors.NotFound, errors.Conflict):
        await client.delete(
            names.PODS,
            metadata["namespace"],
            metadata["name"],
            uid=metadata["uid"],
            grace_period_seconds=grace_seconds,
        )
