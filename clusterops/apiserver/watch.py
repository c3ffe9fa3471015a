"""Watches: one long answer for each, fed from the ring of its resource.

A watcher takes everything that is new in one piece, encoded once for all watchers that want the
same. It ends when its client leaves, when its time is up, when it fell behind the ring, or when the
server ends.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from clusterops.apiserver import table
from clusterops.apiserver.answers import in_pieces
from clusterops.apiserver.causes import Cause, forbidden, invalid_message
from clusterops.apiserver.kind import Kind
from clusterops.apiserver.negotiation import OBJECT, PARTIAL, TABLE, Form, negotiate
from clusterops.apiserver.reads import include_of
from clusterops.apiserver.refusals import StatusError, document, expired
from clusterops.apiserver.request import Request, Target
from clusterops.apiserver.ring import ADDED, DELETED, MODIFIED, Compacted, Event, Ring
from clusterops.apiserver.selection import Selection, selection
from clusterops.apiserver.state import Collection, State
from clusterops.apiserver.stored import Stored, decode, encode
from clusterops.apiserver.stream import Stream

BOOKMARK_SECONDS = 30.0  # between bookmarks, for clients that allow them
SHORTEST_SECONDS, LONGEST_SECONDS = 1800.0, 3600.0  # of a watch whose client names no end
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Start(NamedTuple):
    """Where a watch begins.

    `revision` None or 0: at the present state, which is sent first unless `initial` is False.
    `initial` True: the present state is sent first, and a bookmark tells its end.
    """

    revision: int | None
    initial: bool | None
    bookmarks: bool


class Watches:
    """Serves every watch of a server. `spread(a, b)` is a random number between two bounds."""

    def __init__(
        self, state: State, now: Callable[[], datetime], spread: Callable[[float, float], float]
    ) -> None:
        self._state = state
        self._now = now
        self._spread = spread
        self.closing = False
        self.open = 0

    def close(self) -> None:
        """End all watches, now and those to come."""
        self.closing = True
        self._state.wake_all()

    async def serve(self, request: Request, target: Target) -> None:
        """Answer one watch request."""
        form = negotiate(request.headers.get(b"accept", b""))
        chosen = _selection(request, target)
        collection = self._state.collection(target.kind.group_resource)
        encoder = _Encoder(target.kind, chosen, form, include_of(request), self._now)
        start = start_of(request)
        seconds = request.number("timeoutSeconds") or self._spread(
            SHORTEST_SECONDS, LONGEST_SECONDS
        )
        stream = Stream(request.send, request.receive)
        self.open += 1
        try:
            await stream.begin(b"application/json")
            await self._run(collection, start, encoder, stream, float(seconds))
        finally:
            self.open -= 1
            await stream.end()

    async def _run(
        self,
        collection: Collection,
        start: Start,
        encoder: "_Encoder",
        stream: Stream,
        seconds: float,
    ) -> None:
        ring = collection.ring
        try:
            cursor = ring.cursor_after(start.revision or 0) if _resumes(start) else ring.end
        except Compacted as error:
            await stream.send(encoder.error(expired(str(error))))
            return
        if not _resumes(start) and start.initial is not False:
            # Taken in the same step as the cursor: nothing falls between.
            revision = self._state.revision
            objects = encoder.selection.lookup(collection)
            for piece in in_pieces(encoder.added(stored) for stored in objects):
                await stream.send(piece)
            if start.initial:
                await stream.send(encoder.bookmark(revision, {INITIAL_EVENTS_END: "true"}))
        await self._follow(ring, cursor, encoder, stream, seconds, start.bookmarks)

    async def _follow(
        self,
        ring: Ring,
        cursor: int,
        encoder: "_Encoder",
        stream: Stream,
        seconds: float,
        bookmarks: bool,
    ) -> None:
        time = asyncio.get_running_loop().time
        deadline = time() + seconds
        next_bookmark = time() + BOOKMARK_SECONDS if bookmarks else deadline
        while not self.closing and not stream.gone:
            if cursor < ring.end:
                try:
                    piece = ring.encoded(cursor, encoder.identity, encoder.encode)
                except Compacted as error:
                    await stream.send(encoder.error(expired(str(error))))
                    return
                cursor = ring.end
                if piece:
                    encoder.columns_sent = True
                    await stream.send(piece)
                continue
            now = time()
            if bookmarks and now >= min(next_bookmark, deadline):
                await stream.send(encoder.bookmark(self._state.revision, None))
                next_bookmark = now + BOOKMARK_SECONDS
            if now >= deadline:
                return
            await stream.wait(ring, min(next_bookmark, deadline) - now)


def _resumes(start: Start) -> bool:
    return bool(start.revision) and not start.initial


def _selection(request: Request, target: Target) -> Selection:
    """The selectors of the query; a watch of a path that names one object selects that one."""
    query = request.query
    fields = query.get("fieldSelector", "")
    if target.name:
        by_name = f"metadata.name={target.name}"
        fields = f"{fields},{by_name}" if fields else by_name
    return selection(target.kind, target.namespace, query.get("labelSelector", ""), fields)


def start_of(request: Request) -> Start:
    """Where a watch request begins. Raises 400, and 422 for parameters that do not fit together."""
    query = request.query
    match = query.get("resourceVersionMatch", "")
    initial = request.flag("sendInitialEvents") if "sendInitialEvents" in query else None
    causes: list[Cause] = []
    if match and initial is None:
        causes.append(
            forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
        )
    elif initial is not None and match != "NotOlderThan":
        causes.append(
            forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
        )
    if causes:
        message = invalid_message("ListOptions", "meta.k8s.io", "", causes)
        details = {"group": "meta.k8s.io", "kind": "ListOptions"}
        raise StatusError(422, "Invalid", message, causes, details)
    return Start(request.number("resourceVersion"), initial, request.flag("allowWatchBookmarks"))


class _Encoder:
    """Turns events into the lines that one watcher gets."""

    def __init__(
        self,
        kind: Kind,
        chosen: Selection,
        form: Form,
        include: str,
        now: Callable[[], datetime],
    ) -> None:
        self.selection = chosen
        self.columns_sent = False
        self._kind = kind
        self._form = form
        self._include = include
        self._now = now

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for watchers that get the same bytes for the same events."""
        columns = self._form.name == TABLE and not self.columns_sent
        return (self.selection.identity, self._form, self._include, self._kind.version, columns)

    def encode(self, events: list[Event]) -> bytes:
        """The lines of several events; empty when none of them is this watcher's."""
        lines: list[bytes] = []
        for event in events:
            seen = self._seen(event)
            if seen is not None:
                columns = not self.columns_sent and not lines
                lines.append(self._line(seen[0], seen[1], columns))
        return b"".join(lines)

    def added(self, stored: Stored) -> bytes:
        """The line of an object that is there from the beginning."""
        line = self._line(ADDED, stored.body, not self.columns_sent)
        self.columns_sent = True
        return line

    def _seen(self, event: Event) -> tuple[str, bytes] | None:
        """What the event is to somebody who sees the chosen objects only."""
        current, previous = event.current, event.previous
        if not self.selection.selective:
            if self.selection.namespace not in (None, current.namespace):
                return None
            return event.type, current.body
        before = previous is not None and self.selection.matches(previous)
        after = event.type != DELETED and self.selection.matches(current)
        if before and after:
            return MODIFIED, current.body
        if after:
            return ADDED, current.body
        if not before or previous is None:
            return None
        if event.type == DELETED:
            return DELETED, current.body
        return DELETED, _at_revision(previous, current.revision)

    def _line(self, kind: str, body: bytes, columns: bool) -> bytes:
        if self._form.name == TABLE:
            body = table.render(
                self._kind,
                [body],
                now=self._now().timestamp(),
                include=self._include,
                with_columns=columns,
                version=self._form.version,
            )
        elif self._form.name == PARTIAL:
            body = table.partial_metadata([body], self._form.version)[0]
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), body)

    def bookmark(self, revision: int, annotations: dict[str, str] | None) -> bytes:
        """The line that says that everything up to `revision` was sent."""
        metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        kind, version = self._kind.kind, self._kind.api_version
        if self._form.name != OBJECT:
            kind, version = self._form.name, f"meta.k8s.io/{self._form.version}"
        obj: dict[str, Any] = {"kind": kind, "apiVersion": version, "metadata": metadata}
        if self._form.name == TABLE:
            obj |= {"columnDefinitions": [], "rows": []}
        return encode({"type": "BOOKMARK", "object": obj}) + b"\n"

    def error(self, refused: StatusError) -> bytes:
        """The last line of a watch that cannot go on."""
        return encode({"type": "ERROR", "object": document(refused)}) + b"\n"


def _at_revision(stored: Stored, revision: int) -> bytes:
    obj = decode(stored.body)
    obj["metadata"]["resourceVersion"] = str(revision)
    return encode(obj)
