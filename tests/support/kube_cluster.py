"""A small API server in memory, with faults: the truth that the runtime's tests compare with.

It keeps a history, so that watches resume, and forgets it on `compact`. `FakeTransport` speaks to it
without a network; `kube_http` puts it behind real sockets.
"""

import asyncio
import copy
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import unquote

from clusterops.kube.errors import Unreachable, from_answer
from clusterops.kube.transport import Resource, Response

WIDGETS = Resource("example.org", "v1", "widgets", "Widget", True)
GADGETS = Resource("example.org", "v1", "gadgets", "Gadget", False)


class Answer(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str] = MappingProxyType({})


def status_answer(code: int, reason: str, message: str = "", **headers: str) -> Answer:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason}
    body["message"] = message or reason
    named = {name.replace("_", "-").lower(): value for name, value in headers.items()}
    return Answer(code, body, named)


class Change(NamedTuple):
    version: int
    plural: str
    type: str
    object: dict[str, Any]


class FakeCluster:
    """Objects of any kind by (plural, namespace, name), one resourceVersion counter for all."""

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.history: list[Change] = []
        self.compacted = 100
        self.changed = asyncio.Event()
        self.snapshots: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self.writes: list[tuple[str, str]] = []  # every write acted upon: method, path

    # The truth

    def put(self, plural: str, namespace: str, name: str, **fields: Any) -> dict[str, Any]:
        key = (plural, namespace, name)
        self.version += 1
        before = self.objects.get(key)
        obj = copy.deepcopy(before) if before else {"kind": plural, "metadata": {}}
        obj.update(copy.deepcopy(fields))
        obj["metadata"] = {**obj["metadata"], **fields.get("metadata", {}), "name": name}
        if namespace:
            obj["metadata"]["namespace"] = namespace
        obj["metadata"].setdefault("uid", f"uid-{self.version}")
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = obj
        self._log(plural, "MODIFIED" if before else "ADDED", obj)
        return copy.deepcopy(obj)

    def remove(self, plural: str, namespace: str, name: str) -> None:
        obj = self.objects.pop((plural, namespace, name))
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self._log(plural, "DELETED", obj)

    def compact(self) -> None:
        """Forgets the history: older watches and continue tokens get 410."""
        self.compacted = self.version
        self.history.clear()
        self.snapshots.clear()

    def content(self, plural: str) -> dict[tuple[str, str], dict[str, Any]]:
        return {
            (namespace, name): obj
            for (kind, namespace, name), obj in self.objects.items()
            if kind == plural
        }

    def _log(self, plural: str, type_: str, obj: dict[str, Any]) -> None:
        self.history.append(Change(self.version, plural, type_, copy.deepcopy(obj)))
        self.changed.set()
        self.changed = asyncio.Event()

    # The protocol

    def handle(
        self, method: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> Answer:
        plural, namespace, name, subresource = parse_path(path)
        if method == "GET" and name is None:
            return self._list(plural, namespace, query)
        decoded = json.loads(body) if body else {}
        if method != "GET":
            self.writes.append((method, path))
        if method == "POST":
            return self._create(plural, namespace or "", decoded)
        obj = self.objects.get((plural, namespace or "", name or ""))
        if obj is None:
            return status_answer(404, "NotFound", f'{plural} "{name}" not found')
        if method == "GET":
            return Answer(200, obj)
        if method == "DELETE":
            self.remove(plural, namespace or "", name or "")
            return Answer(200, {"kind": "Status", "status": "Success"})
        return self._change(method, obj, plural, subresource, decoded)

    def _create(self, plural: str, namespace: str, obj: dict[str, Any]) -> Answer:
        name = obj["metadata"]["name"]
        if (plural, namespace, name) in self.objects:
            return status_answer(409, "AlreadyExists", f'{plural} "{name}" already exists')
        return Answer(201, self.put(plural, namespace, name, **obj))

    def _change(
        self,
        method: str,
        obj: dict[str, Any],
        plural: str,
        subresource: str | None,
        body: dict[str, Any],
    ) -> Answer:
        sent = body.get("metadata", {}).get("resourceVersion")
        if sent and sent != obj["metadata"]["resourceVersion"]:
            return status_answer(409, "Conflict", "the object has been modified")
        fields = {k: v for k, v in body.items() if k not in ("metadata", "kind", "apiVersion")}
        if subresource == "status":
            fields = {"status": body.get("status")}
        elif method == "PUT":
            for gone in set(obj) - set(body) - {"metadata", "kind"}:
                fields[gone] = None
        if method == "PATCH":
            fields = {k: merged(obj.get(k), v) for k, v in fields.items()}
        metadata = obj["metadata"]
        return Answer(
            200, self.put(plural, metadata.get("namespace", ""), metadata["name"], **fields)
        )

    def _list(self, plural: str, namespace: str | None, query: Mapping[str, str]) -> Answer:
        token = query.get("continue", "")
        if token:
            snapshot, _, start = token.partition(":")
            if snapshot not in self.snapshots:
                return status_answer(410, "Expired", "The provided continue parameter is too old")
            version, items = self.snapshots[snapshot]
            offset = int(start)
        else:
            items = [
                copy.deepcopy(obj)
                for (kind, space, _), obj in sorted(self.objects.items())
                if kind == plural and namespace in (None, space)
            ]
            version, offset, snapshot = self.version, 0, f"s{self.version}-{len(self.snapshots)}"
        limit = int(query.get("limit") or 0) or len(items) or 1
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if offset + limit < len(items):
            self.snapshots[snapshot] = (version, items)
            metadata["continue"] = f"{snapshot}:{offset + limit}"
        return Answer(
            200, {"kind": "List", "metadata": metadata, "items": items[offset : offset + limit]}
        )

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        """The events of a watch; ends after its `timeoutSeconds`, with bookmarks in between."""
        plural, namespace, _, _ = parse_path(path)
        at = int(query["resourceVersion"])
        loop = asyncio.get_running_loop()
        ends = loop.time() + float(query.get("timeoutSeconds") or 1800)
        while True:
            if at < self.compacted:
                yield {"type": "ERROR", "object": status_answer(410, "Expired", "too old").body}
                return
            changed = self.changed
            for change in [change for change in self.history if change.version > at]:
                at = change.version
                space = change.object["metadata"].get("namespace")
                if change.plural == plural and namespace in (None, space):
                    yield {"type": change.type, "object": change.object}
            if changed.is_set():
                continue
            left = ends - loop.time()
            if left <= 0:
                return
            try:
                async with asyncio.timeout(min(left, 60.0)):
                    await changed.wait()
            except TimeoutError:
                if query.get("allowWatchBookmarks") == "true":
                    at = max(at, self.version)
                    meta = {"resourceVersion": str(at)}
                    yield {"type": "BOOKMARK", "object": {"kind": plural, "metadata": meta}}


def parse_path(path: str) -> tuple[str, str | None, str | None, str | None]:
    """plural, namespace, name, subresource of an API path."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = None
    if len(parts) > 2 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    padded = [*parts, None, None]
    return parts[0], namespace, padded[1], padded[2]


def merged(old: Any, patch: Any) -> Any:
    """A JSON merge patch applied."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


EventFault = Callable[[dict[str, Any]], list[Any]]


class FakeTransport:
    """Implements `Transport` on a FakeCluster, with faults where a test wants them.

    `before` is asked before each request is acted upon, `after` when it was acted upon and before
    the answer goes out; each may return an answer to give instead, raise, or wait. `events` turns
    one watch event into what is sent: dicts, raw bytes, an exception to raise, or None to end.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.script: deque[Answer | Exception] = deque()
        self.before: Callable[[str, str], Any] | None = None
        self.after: Callable[[str, str], Any] | None = None
        self.events: EventFault | None = None
        self.stream_script: deque[Answer | Exception] = deque()
        self.closed = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",  # noqa: ARG002 - the protocol's
        accept: str = "application/json",  # noqa: ARG002
        timeout_seconds: float = 30.0,
    ) -> Response:
        self.requests.append((method, path, dict(query or {})))
        try:
            async with asyncio.timeout(timeout_seconds):
                answer = await self._answer(method, path, query or {}, body)
        except TimeoutError as error:
            raise Unreachable(f"no answer within {timeout_seconds} s") from error
        if answer.status >= 300:
            raise from_answer(answer.status, answer.headers, json.dumps(answer.body).encode())
        return Response(answer.status, answer.headers, json.dumps(answer.body).encode())

    async def _answer(
        self, method: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> Answer:
        await asyncio.sleep(0)
        if self.script:
            scripted = self.script.popleft()
            if isinstance(scripted, Exception):
                raise scripted
            return scripted
        early = await _ask(self.before, method, path)
        if early is not None:
            return early
        answer = self.cluster.handle(method, path, query, body)
        # The answer must not change when the truth does.
        answer = answer._replace(body=copy.deepcopy(answer.body))
        late = await _ask(self.after, method, path)
        return answer if late is None else late

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "application/json",  # noqa: ARG002
        silence_seconds: float | None = None,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.requests.append(("WATCH", path, dict(query or {})))
        await asyncio.sleep(0)
        if self.stream_script:
            scripted = self.stream_script.popleft()
            if isinstance(scripted, Exception):
                raise scripted
            raise from_answer(scripted.status, scripted.headers, json.dumps(scripted.body).encode())
        yield self._pieces(path, query or {}, silence_seconds)

    async def _pieces(
        self, path: str, query: Mapping[str, str], silence_seconds: float | None
    ) -> AsyncIterator[bytes]:
        events = self.cluster.watch(path, query)
        while True:
            try:
                async with asyncio.timeout(silence_seconds):
                    event = await anext(events, None)
                    sent = [event]
                    if event is not None and self.events is not None:
                        sent = self.events(event)
                        if sent == ["silence"]:
                            await asyncio.Event().wait()
            except TimeoutError as error:
                raise Unreachable(f"nothing came for {silence_seconds} s") from error
            for item in sent:
                if item is None:
                    return
                if isinstance(item, Exception):
                    raise item
                yield item if isinstance(item, bytes) else json.dumps(item).encode() + b"\n"

    async def close(self) -> None:
        self.closed = True


async def _ask(hook: Callable[[str, str], Any] | None, method: str, path: str) -> Any:
    if hook is None:
        return None
    answer = hook(method, path)
    if asyncio.iscoroutine(answer):
        answer = await answer
    if isinstance(answer, Exception):
        raise answer
    return answer
