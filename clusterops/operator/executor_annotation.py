"""Orders for an agent that is not ours, as an annotation on its Node: a site's own way to reset and reboot.

The operator writes its wish {key, action, gpus, incident, bootId, expires}; the agent carries it out and
writes an answer {key, state: Succeeded | Failed, message}. A wish has its expiry in it and is taken
back when that has passed, so an agent that wakes up late does nothing. An answer counts only for the
wish whose key it names.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from clusterops.api import names
from clusterops.api.node_health import Rung
from clusterops.core.remediation_actions import Execute
from clusterops.kube.client import Client
from clusterops.kube.errors import KubeError, NotFound
from clusterops.operator.nodes_executor import Executor

LOOK_SECONDS = 2.0
MAX_ANSWER_CHARACTERS = 4096
SUCCEEDED, FAILED = "Succeeded", "Failed"

log = logging.getLogger(__name__)


class AnnotationOrders:
    """Gives orders for some rungs to an agent on or behind the node."""

    def __init__(
        self,
        rungs: Collection[Rung],
        now: Callable[[], float],
        *,
        client: Client | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """`now` gives seconds since 1970. Without a client nothing can be carried out yet."""
        self._rungs = frozenset(rungs)
        self._now = now
        self._client = client
        self._look_seconds = look_seconds

    def through(self, client: Client) -> "AnnotationOrders":
        """The same orders, given through a connection."""
        return AnnotationOrders(
            self._rungs, self._now, client=client, look_seconds=self._look_seconds
        )

    def can(self, rung: Rung) -> bool:
        """Whether the agent is asked for a rung."""
        return self._client is not None and rung in self._rungs

    async def execute(self, node: str, order: Execute, seconds: float) -> bool:
        """Writes the wish and waits for its answer; it has failed when none comes in time."""
        client = self._client
        assert client is not None, "the caller has asked whether it can"
        wish = self._wish(order, seconds)
        try:
            async with asyncio.timeout(seconds):
                answered = await self._asked(client, node, order.key, wish)
        except TimeoutError:
            log.warning("nobody answered %s of node %s within %g s", order.rung, node, seconds)
            answered = False
        finally:
            await self._take_back(client, node, wish)
        return answered

    def _wish(self, order: Execute, seconds: float) -> str:
        expires = min(order.expires or float("inf"), self._now() + seconds)
        return json.dumps(
            {
                "key": order.key,
                "action": order.rung.value,
                "gpus": list(order.gpus),
                "incident": order.incident,
                "bootId": order.boot_id,
                "expires": datetime.fromtimestamp(expires, UTC).isoformat(timespec="seconds"),
            },
            sort_keys=True,
        )

    async def _asked(self, client: Client, node: str, key: str, wish: str) -> bool:
        written = False
        while True:
            try:
                if not written:
                    # An answer to an earlier wish of this very key would be taken for this one's.
                    await _annotate(client, node, wish, answer=None)
                    written = True
                found = answer(await client.get(names.NODES, None, node), key)
            except NotFound:
                log.warning("node %s is gone, and its order with it", node)
                return False
            except KubeError as error:
                log.info("node %s: its answer cannot be read yet: %s", node, error)
                found = None
            if found is not None:
                log.info("node %s: the agent says %s (%s)", node, *found)
                return found[0] == SUCCEEDED
            await asyncio.sleep(self._look_seconds)

    async def _take_back(self, client: Client, node: str, wish: str) -> None:
        """Clears the wish away, unless another one has taken its place."""
        with suppress(KubeError):
            found = await client.get(names.NODES, None, node)
            if _annotations(found).get(names.ANNOTATION_ORDER) == wish:
                version = found["metadata"]["resourceVersion"]
                await _annotate(client, node, None, answer=None, version=version)


class ByRung:
    """Several executors, the first that can."""

    def __init__(self, *executors: Executor) -> None:
        self._executors = executors

    def through(self, client: Client) -> "ByRung":
        """The same, with a connection for those that need one."""
        return ByRung(*(through(each, client) for each in self._executors))

    def can(self, rung: Rung) -> bool:
        """Whether any can."""
        return any(each.can(rung) for each in self._executors)

    async def execute(self, node: str, order: Execute, seconds: float) -> bool:
        """Lets the first one that can carry it out."""
        first = next(each for each in self._executors if each.can(order.rung))
        return await first.execute(node, order, seconds)


def through(executor: Executor, client: Client) -> Executor:
    """An executor with a connection to the cluster, if it is one that needs it."""
    if isinstance(executor, AnnotationOrders | ByRung):
        return executor.through(client)
    return executor


def answer(node: Mapping[str, Any], key: str) -> tuple[str, str] | None:
    """The agent's answer to one wish with its words; None while there is none that makes sense."""
    text = _annotations(node).get(names.ANNOTATION_ANSWER)
    if not isinstance(text, str) or len(text) > MAX_ANSWER_CHARACTERS:
        return None
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or told.get("key") != key:
        return None
    state = told.get("state")
    if state not in (SUCCEEDED, FAILED):
        return None
    message = str(told.get("message", ""))[:300]
    return state, "".join(c if c.isprintable() else "?" for c in message)


def _annotations(node: Mapping[str, Any]) -> Mapping[str, Any]:
    return (node.get("metadata") or {}).get("annotations") or {}


async def _annotate(
    client: Client, node: str, wish: str | None, *, answer: str | None, version: str | None = None
) -> None:
    metadata: dict[str, Any] = {
        "annotations": {names.ANNOTATION_ORDER: wish, names.ANNOTATION_ANSWER: answer}
    }
    if version is not None:
        metadata["resourceVersion"] = version
    await client.patch(names.NODES, None, node, {"metadata": metadata})
