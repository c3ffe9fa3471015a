"""Objects as they change, for commands that follow a job: list, watch, and go on after a break."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

from clusterops.kube.client import Client
from clusterops.kube.errors import Gone, Unreachable
from clusterops.kube.transport import ResourceType

# A watch is renewed this often; a broken one is taken up again this long after.
WATCH_SECONDS = 300.0
PAUSE_SECONDS = 1.0
# Without an answer for so long the server is given up.
PATIENCE_SECONDS = 60.0


class Change(NamedTuple):
    """One object as it is now; `gone` when it was deleted, then as it was last."""

    object: dict[str, Any]
    gone: bool


async def changes(
    client: Client,
    resource: ResourceType,
    namespace: str,
    *,
    label_selector: str | None = None,
    field_selector: str | None = None,
) -> AsyncGenerator[Change, None]:
    """Every selected object once, then each change; never ends by itself.

    A break is mended by listing anew, which may repeat an object unchanged and reports those that
    went meanwhile.

    Raises:
        Unreachable: the server did not answer for a minute.
    """
    known: dict[str, dict[str, Any]] = {}
    loop = asyncio.get_running_loop()
    answered = loop.time()
    while True:
        try:
            items, version = await client.list(
                resource, namespace, label_selector=label_selector, field_selector=field_selector
            )
            answered = loop.time()
            present = {item["metadata"]["uid"]: item for item in items}
            for uid, item in list(known.items()):
                if uid not in present:
                    del known[uid]
                    yield Change(item, gone=True)
            for uid, item in present.items():
                known[uid] = item
                yield Change(item, gone=False)
            async with client.watch(
                resource,
                namespace,
                resource_version=version,
                label_selector=label_selector,
                field_selector=field_selector,
                timeout_seconds=WATCH_SECONDS,
            ) as events:
                async for event in events:
                    answered = loop.time()
                    if not isinstance(event.object, dict):
                        continue
                    uid, gone = event.object["metadata"]["uid"], event.type == "DELETED"
                    if gone:
                        known.pop(uid, None)
                    else:
                        known[uid] = event.object
                    yield Change(event.object, gone)
        except Gone:
            continue
        except Unreachable:
            if loop.time() - answered > PATIENCE_SECONDS:
                raise
            # The server restarts, or the network does: not an event to wait for, but time to give.
            await asyncio.sleep(PAUSE_SECONDS)
