"""The verbs of the Kubernetes API on raw JSON, with a rate limit; `retry` says what is repeated."""

import asyncio
import copy
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec

from clusterops.kube import wire
from clusterops.kube.errors import (
    Conflict,
    Gone,
    KubeError,
    NotFound,
    Retryable,
    Unreachable,
)
from clusterops.kube.rate_limit import TokenBucket
from clusterops.kube.retry import RetryPolicy as RetryPolicy  # clients are made with one
from clusterops.kube.transport import (
    JsonObject,
    Resource,
    ResourceType,
    Response,
    Transport,
    resource_path,
)

_PODS = Resource("", "v1", "pods", "Pod", True)

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_REPEATABLE_PATCHES = (MERGE_PATCH, APPLY_PATCH)


class Client:
    """Reads and writes objects of any kind as plain dicts.

    Objects are read as the server sends them. Methods raise the family of `errors`; they never
    return None for "not found" except `find`.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        limiter: TokenBucket | None = None,
        retry: RetryPolicy | None = None,
        timeout_seconds: float = 30.0,
        rng: random.Random | None = None,
    ) -> None:
        """`limiter` defaults to 300 requests a second, 500 at once; `timeout_seconds` is per try."""
        self.transport = transport
        self._limiter = limiter or TokenBucket(300.0, 500.0)
        self._retry = retry or RetryPolicy()
        self._timeout_seconds = timeout_seconds
        self._rng = rng or random.Random()

    # Reading

    async def get(
        self,
        resource: ResourceType,
        namespace: str | None,
        name: str,
        *,
        subresource: str | None = None,
    ) -> JsonObject:
        """One object. Raises NotFound."""
        path = resource_path(resource, namespace, name, subresource)
        return _object(await self._send("GET", path))

    async def find(
        self, resource: ResourceType, namespace: str | None, name: str
    ) -> JsonObject | None:
        """One object, or None when there is none of that name."""
        try:
            return await self.get(resource, namespace, name)
        except NotFound:
            return None

    async def list(
        self,
        resource: ResourceType,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int = 500,
    ) -> tuple[list[JsonObject], str]:
        """All objects, read page by page, and the resourceVersion to watch from.

        When the continue token grows too old between pages the list begins again, without pages.
        """
        items: list[JsonObject] = []
        token = ""
        while True:
            try:
                page = await self.list_page(
                    resource,
                    namespace,
                    label_selector=label_selector,
                    field_selector=field_selector,
                    limit=limit,
                    continue_token=token,
                )
            except Gone:
                if not token:
                    raise
                items, token, limit = [], "", 0
                continue
            items.extend(page.items)
            token = page.continue_token
            if not token:
                return items, page.resource_version

    async def list_page(
        self,
        resource: ResourceType,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int = 500,
        continue_token: str = "",
        shape: type | None = None,
    ) -> wire.Page:
        """One page of a list; `limit=0` means all. Raises Gone for a continue token too old.

        `shape` is what an item is decoded into: None for a dict, or a msgspec Struct, which skips
        the fields that it does not name at many times the speed.
        """
        query = _query(
            labelSelector=label_selector,
            fieldSelector=field_selector,
            limit=limit or None,
            **{"continue": continue_token or None},
        )
        answer = await self._send("GET", resource_path(resource, namespace), query=query)
        return wire.decode_list(answer.body, shape)

    def watch(
        self,
        resource: ResourceType,
        namespace: str | None = None,
        *,
        resource_version: str = "",
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_seconds: float | None = None,
        silence_seconds: float | None = 90.0,
        bookmarks: bool = True,
        shape: type | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[wire.WatchEvent]]:
        """Changes after `resource_version`, as they happen; ends when the server ends the answer.

        Never repeated by itself: the reader knows from where to go on. Raises Gone when the
        version is too old (at the start or in between), Unreachable when the connection breaks or
        nothing, not even a bookmark, came for `silence_seconds`.

        >>> async with client.watch(PODS, "default", resource_version=version) as events:
        ...     async for event in events: ...
        """
        query = _query(
            watch="true",
            resourceVersion=resource_version or None,
            labelSelector=label_selector,
            fieldSelector=field_selector,
            timeoutSeconds=None if timeout_seconds is None else max(1, round(timeout_seconds)),
            allowWatchBookmarks="true" if bookmarks else None,
        )
        return self._watch(resource_path(resource, namespace), query, silence_seconds, shape)

    async def pod_log(
        self,
        namespace: str,
        pod: str,
        *,
        container: str | None = None,
        follow: bool = False,
        tail_lines: int | None = None,
        timestamps: bool = False,
        previous: bool = False,
    ) -> AsyncIterator[bytes]:
        """A pod's log in pieces of any size; with `follow` until the container ends.

        Close it (`contextlib.aclosing`) when leaving before its end.
        """
        query = _query(
            container=container,
            follow="true" if follow else None,
            tailLines=tail_lines,
            timestamps="true" if timestamps else None,
            previous="true" if previous else None,
        )
        path = resource_path(_PODS, namespace, pod, "log")
        await self._limiter.acquire()
        # A quiet container is no broken connection; TCP keep-alive finds those that are.
        silence = None if follow else self._timeout_seconds
        async with self.transport.stream(
            path, query=query, accept="*/*", silence_seconds=silence
        ) as pieces:
            async for piece in pieces:
                yield piece

    async def raw_get(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "application/json",
    ) -> bytes:
        """The body at any path (`/version`, `/readyz`, a Table of rows)."""
        return (await self._send("GET", path, query=query, accept=accept)).body

    # Writing

    async def create(
        self,
        resource: ResourceType,
        obj: JsonObject,
        *,
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> JsonObject:
        """Creates the object; raises AlreadyExists.

        After Unreachable the object may exist or not: the caller looks.
        """
        return _object(
            await self._send(
                "POST",
                resource_path(resource, _namespace(obj)),
                query=_write_query(field_manager, dry_run),
                body=obj,
                repeatable=False,
            )
        )

    async def create_subresource(
        self,
        resource: ResourceType,
        namespace: str | None,
        name: str,
        subresource: str,
        body: JsonObject,
    ) -> JsonObject:
        """POSTs to a subresource: `binding`, `eviction`, `token`.

        An eviction that a disruption budget forbids is a 429 and therefore tried again until the
        deadline; then ServerBusy.
        """
        path = resource_path(resource, namespace, name, subresource)
        return _object(await self._send("POST", path, body=body, repeatable=False))

    async def replace(
        self,
        resource: ResourceType,
        obj: JsonObject,
        *,
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> JsonObject:
        """Replaces the whole object; raises Conflict unless its resourceVersion is the newest."""
        return await self._put(resource, obj, None, field_manager, dry_run)

    async def replace_status(
        self, resource: ResourceType, obj: JsonObject, *, field_manager: str | None = None
    ) -> JsonObject:
        """Replaces the object's status; raises Conflict unless its resourceVersion is the newest."""
        return await self._put(resource, obj, "status", field_manager, False)

    async def write_status(
        self, resource: ResourceType, current: JsonObject, status: JsonObject
    ) -> JsonObject:
        """Replaces the status unless `current` has exactly this one already.

        Returns the object as it is then stored. Raises Conflict when `current` is not the newest.
        """
        if current.get("status") == status:
            return current
        return await self.replace_status(resource, {**current, "status": status})

    async def update_status(
        self,
        resource: ResourceType,
        namespace: str | None,
        name: str,
        change: Callable[[JsonObject], JsonObject | None],
        *,
        attempts: int = 5,
    ) -> JsonObject:
        """Reads the object, lets `change` say its new status, writes it if different.

        `change` gets a copy of the object and returns the whole new status, or None for "leave it".
        On a conflict all of this is done again, `attempts` times in all; then Conflict is raised.
        """
        for attempt in range(1, attempts + 1):
            current = await self.get(resource, namespace, name)
            status = change(copy.deepcopy(current))
            if status is None:
                return current
            try:
                return await self.write_status(resource, current, status)
            except Conflict:
                if attempt == attempts:
                    raise
                await asyncio.sleep(self._retry.backoff(attempt, self._rng))
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def patch(
        self,
        resource: ResourceType,
        namespace: str | None,
        name: str,
        patch: Any,
        *,
        subresource: str | None = None,
        content_type: str = MERGE_PATCH,
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> JsonObject:
        """Changes parts of an object: a merge patch (dict) or a JSON patch (list of operations)."""
        return _object(
            await self._send(
                "PATCH",
                resource_path(resource, namespace, name, subresource),
                query=_write_query(field_manager, dry_run),
                body=patch,
                content_type=content_type,
                repeatable=content_type in _REPEATABLE_PATCHES,
            )
        )

    async def apply(
        self,
        resource: ResourceType,
        obj: JsonObject,
        *,
        field_manager: str,
        force: bool = False,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> JsonObject:
        """Server-side apply: `obj` holds all the fields this manager wants, and no others.

        Raises Conflict when another manager owns one of them with a different value, unless
        `force` takes it over.
        """
        metadata = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
        query = _write_query(field_manager, dry_run)
        if force:
            query["force"] = "true"
        return _object(
            await self._send(
                "PATCH",
                resource_path(resource, _namespace(obj), metadata["name"], subresource),
                query=query,
                body={**obj, "metadata": metadata},
                content_type=APPLY_PATCH,
            )
        )

    async def delete(
        self,
        resource: ResourceType,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
        propagation: str | None = None,
        dry_run: bool = False,
    ) -> JsonObject:
        """Deletes the object; raises NotFound, or Conflict when `uid` or version are not its own.

        `propagation` is Background, Foreground or Orphan. Returns the object when it still exists
        (finalizers, grace), else a Status.
        """
        preconditions = _query(uid=uid, resourceVersion=resource_version)
        options: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            options["preconditions"] = preconditions
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        if propagation is not None:
            options["propagationPolicy"] = propagation
        path = resource_path(resource, namespace, name)
        return _object(
            await self._send("DELETE", path, query=_write_query(None, dry_run), body=options)
        )

    async def close(self) -> None:
        """Closes the transport."""
        await self.transport.close()

    # One request

    async def _put(
        self,
        resource: ResourceType,
        obj: JsonObject,
        subresource: str | None,
        field_manager: str | None,
        dry_run: bool,
    ) -> JsonObject:
        name = obj["metadata"]["name"]
        path = resource_path(resource, _namespace(obj), name, subresource)
        query = _write_query(field_manager, dry_run)
        return _object(await self._send("PUT", path, query=query, body=obj))

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        repeatable: bool = True,
    ) -> Response:
        encoded = None if body is None else msgspec.json.encode(body)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._retry.deadline_seconds
        attempt = 0
        while True:
            attempt += 1
            await self._limiter.acquire()
            try:
                return await self.transport.request(
                    method,
                    path,
                    query=query,
                    body=encoded,
                    content_type=content_type,
                    accept=accept,
                    timeout_seconds=self._timeout_seconds,
                )
            except Retryable as error:
                delay = self._retry.next_delay(error, attempt, repeatable=repeatable, rng=self._rng)
                if delay is None or loop.time() + delay >= deadline:
                    raise
            await asyncio.sleep(delay)

    @asynccontextmanager
    async def _watch(
        self,
        path: str,
        query: Mapping[str, str],
        silence_seconds: float | None,
        shape: type | None,
    ) -> AsyncIterator[AsyncIterator[wire.WatchEvent]]:
        await self._limiter.acquire()
        async with self.transport.stream(
            path, query=query, silence_seconds=silence_seconds
        ) as pieces:
            yield wire.events(pieces, shape)


def _object(response: Response) -> JsonObject:
    if not response.body:
        return {}
    try:
        decoded = msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreachable(f"the server's answer is no JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise KubeError(f"the server answered with {type(decoded).__name__}, not with an object")
    return decoded


def _namespace(obj: JsonObject) -> str | None:
    namespace: str | None = obj["metadata"].get("namespace")
    return namespace


def _query(**parameters: str | float | None) -> dict[str, str]:
    return {name: str(value) for name, value in parameters.items() if value is not None}


def _write_query(field_manager: str | None, dry_run: bool) -> dict[str, str]:
    return _query(fieldManager=field_manager, dryRun="All" if dry_run else None)
