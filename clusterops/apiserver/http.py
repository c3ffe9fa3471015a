"""The server as one ASGI callable: from a request to whoever answers it."""

import logging
from typing import Any

from clusterops.apiserver.access import Gate
from clusterops.apiserver.answers import JSON_TYPE, send_body
from clusterops.apiserver.causes import Refused
from clusterops.apiserver.database_file import StorageError
from clusterops.apiserver.discovery import Document
from clusterops.apiserver.kind_set import KindSet
from clusterops.apiserver.operations import Operations
from clusterops.apiserver.pod_actions import PodActions
from clusterops.apiserver.pod_logs import PodLogs
from clusterops.apiserver.reads import Reads
from clusterops.apiserver.refusals import (
    StatusError,
    method_not_allowed,
    no_such_path,
    status_body,
    storage_failed,
)
from clusterops.apiserver.request import (
    ClientGone,
    Receive,
    Request,
    Scope,
    Send,
    Target,
    resource_target,
)
from clusterops.apiserver.reviews import Reviews
from clusterops.apiserver.storage import StorageFull
from clusterops.apiserver.watch import Watches
from clusterops.apiserver.writes import Writes

_log = logging.getLogger(__name__)


class ApiServer:
    """The API. Put together by `serve`; may also be mounted below another application."""

    def __init__(
        self,
        *,
        gate: Gate,
        kinds: KindSet,
        reads: Reads,
        writes: Writes,
        watches: Watches,
        reviews: Reviews,
        pod_actions: PodActions,
        pod_logs: PodLogs,
        operations: Operations,
    ) -> None:
        self._gate = gate
        self._kinds = kinds
        self._reads = reads
        self._writes = writes
        self._watches = watches
        self._reviews = reviews
        self._pod_actions = pod_actions
        self._pod_logs = pod_logs
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        answer = _Answer(send)
        request = Request(scope, receive, answer.send)
        target: Target | None = None
        try:
            self._gate.check_source(request.headers)
            if request.method == "GET" and await self._operations.answer_open(request):
                return
            request.user = self._gate.authenticate(request.headers)
            parts = request.path.strip("/").split("/")
            if len(parts) > (2 if parts[0] == "api" else 3) and parts[0] in ("api", "apis"):
                target = resource_target(self._kinds, parts)
                await self._serve_resource(request, target)
            else:
                await self._serve_document(request, parts)
        except Refused as refused:
            await answer.refuse(_with_details(refused, target))
        except StorageError as error:
            await answer.refuse(storage_failed(isinstance(error, StorageFull), str(error)))
        except ClientGone:
            return
        except Exception:
            # The edge of the process: whatever went wrong, the client gets a Status object.
            _log.exception("%s %s failed", request.method, ascii(request.path))
            await answer.refuse(
                StatusError(500, "InternalError", "Internal error occurred; see the server's log")
            )
        finally:
            resource = target.kind.group_resource if target is not None else ""
            self._operations.requests[request.method, resource, answer.status] += 1

    async def _serve_resource(self, request: Request, target: Target) -> None:
        method, kind = request.method, target.kind
        if target.subresource:
            await self._serve_subresource(request, target)
        elif not kind.stored:
            if method != "POST" or target.name:
                raise method_not_allowed(kind.plural)
            await self._reviews.answer(request, target)
        elif method == "GET":
            if request.flag("watch"):
                await self._watches.serve(request, target)
            elif target.name:
                await self._reads.get(request, target)
            else:
                await self._reads.list_objects(request, target)
        elif method == "POST" and not target.name:
            await self._writes.create(request, target)
        elif method == "PUT" and target.name:
            await self._writes.replace(request, target)
        elif method == "PATCH" and target.name:
            await self._writes.patch(request, target)
        elif method == "DELETE" and target.name:
            await self._writes.delete(request, target)
        elif method == "DELETE":
            await self._writes.delete_all(request, target)
        else:
            raise method_not_allowed(kind.plural)

    async def _serve_subresource(self, request: Request, target: Target) -> None:
        route = (target.subresource, request.method)
        if route == ("status", "GET"):
            await self._reads.get(request, target)
        elif route == ("status", "PUT"):
            await self._writes.replace(request, target)
        elif route == ("status", "PATCH"):
            await self._writes.patch(request, target)
        elif route == ("log", "GET"):
            await self._pod_logs.serve(request, target)
        elif route == ("binding", "POST"):
            await self._pod_actions.bind(request, target)
        elif route == ("eviction", "POST"):
            await self._pod_actions.evict(request, target)
        else:
            raise method_not_allowed(target.kind.plural)

    async def _serve_document(self, request: Request, parts: list[str]) -> None:
        """Discovery, OpenAPI and metrics."""
        if request.method != "GET":
            raise method_not_allowed("")
        if parts == ["metrics"]:
            await self._operations.metrics(request)
            return
        document = self._document(parts, request.headers.get(b"accept", b"").decode("latin-1"))
        if document is None:
            raise no_such_path()
        headers = [
            (b"content-type", document.content_type.encode()),
            (b"etag", document.etag.encode()),
            (b"vary", b"Accept"),
        ]
        if parts[:2] == ["openapi", "v3"] and "hash" in request.query:
            headers.append((b"cache-control", b"public, immutable, max-age=31536000"))
        if request.headers.get(b"if-none-match") == document.etag.encode():
            await send_body(request.send, 304, b"", headers)
            return
        await send_body(request.send, 200, document.body, headers)

    def _document(self, parts: list[str], accept: str) -> Document | None:
        if parts == ["api"]:
            return self._kinds.discovery.core(accept)
        if parts == ["apis"]:
            return self._kinds.discovery.groups(accept)
        if parts[0] == "api" and len(parts) == 2:
            return self._kinds.discovery.resources("", parts[1])
        if parts[0] == "apis" and len(parts) == 2:
            return self._kinds.discovery.group(parts[1])
        if parts[0] == "apis" and len(parts) == 3:
            return self._kinds.discovery.resources(parts[1], parts[2])
        if parts == ["openapi", "v2"]:
            return self._kinds.openapi.v2()
        if parts == ["openapi", "v3"]:
            return self._kinds.openapi.index()
        if parts[:2] == ["openapi", "v3"]:
            return self._kinds.openapi.document("/".join(parts[2:]))
        return None


def _with_details(refused: Refused, target: Target | None) -> Refused:
    """Name the object in refusals that do not know it (of patches, selectors, bodies)."""
    if isinstance(refused, StatusError) or target is None or refused.status not in (409, 422):
        return refused
    if refused.status == 422 and not refused.causes:
        return refused  # clients print the message only when nothing is named
    details: dict[str, Any] = {"name": target.name} if target.name else {}
    if target.kind.group:
        details["group"] = target.kind.group
    details["kind"] = target.kind.kind if refused.status == 422 else target.kind.plural
    return StatusError(refused.status, refused.reason, refused.message, refused.causes, details)


class _Answer:
    """Remembers whether an answer has begun: a second one cannot be sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def send(self, message: Any) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    async def refuse(self, refused: Refused) -> None:
        """Answer with a Status object, unless something else was begun."""
        if self.status:
            return
        headers = [JSON_TYPE]
        if refused.status == 401:
            headers.append((b"www-authenticate", b'Bearer realm="clusterops"'))
        if refused.status == 413:
            headers.append((b"connection", b"close"))
        await send_body(self.send, refused.status, status_body(refused), headers)
