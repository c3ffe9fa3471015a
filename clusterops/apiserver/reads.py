"""Getting and listing: whole, in pages of one consistent snapshot, as objects, Tables or metadata."""

import base64
import binascii
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

import msgspec

from clusterops.apiserver import table
from clusterops.apiserver.answers import send_body, send_joined
from clusterops.apiserver.kind import Kind
from clusterops.apiserver.negotiation import OBJECT, PARTIAL, TABLE, Form, negotiate
from clusterops.apiserver.refusals import (
    bad_request,
    expired,
    not_found,
    too_large_revision,
)
from clusterops.apiserver.request import Request, Target
from clusterops.apiserver.selection import Selection, selection_of
from clusterops.apiserver.state import Collection, State
from clusterops.apiserver.stored import Key, Stored, encode

TOKEN_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter."
)
REVISION_TOO_OLD = "The resourceVersion for the provided list is too old."


class Page(NamedTuple):
    """Some objects of a list. `remaining` is None when it is not known."""

    objects: list[Stored]
    revision: int
    token: str
    remaining: int | None


class _Token(msgspec.Struct):
    """What a continue token holds: the revision of the snapshot, and the last key of the page."""

    v: str
    rv: int
    after: tuple[str, str]


class Reads:
    """Answers to GET. `now` is a wall clock, for the ages in Tables."""

    def __init__(self, state: State, now: Callable[[], datetime]) -> None:
        self._state = state
        self._now = now

    async def get(self, request: Request, target: Target) -> None:
        """One object."""
        form = negotiate(request.headers.get(b"accept", b""))
        collection = self._state.collection(target.kind.group_resource)
        stored = collection.objects.get(target.key)
        if stored is None:
            self._refuse_future(request)
            raise not_found(target.kind, target.name)
        await send_body(request.send, 200, self.rendered(request, target.kind, stored.body, form))

    def rendered(self, request: Request, kind: Kind, body: bytes, form: Form) -> bytes:
        """One object in the form that a client takes."""
        if form.name == OBJECT:
            return body
        if form.name == PARTIAL:
            return table.partial_metadata([body], form.version)[0]
        return table.render(
            kind,
            [body],
            now=self._now().timestamp(),
            include=include_of(request),
            version=form.version,
        )

    async def list_objects(self, request: Request, target: Target) -> None:
        """Objects of one namespace or of all."""
        form = negotiate(request.headers.get(b"accept", b""))
        page = self._page(request, target)
        kind = target.kind
        if form.name == TABLE:
            rendered = table.render(
                kind,
                [stored.body for stored in page.objects],
                now=self._now().timestamp(),
                include=include_of(request),
                resource_version=str(page.revision),
                continue_token=page.token,
                remaining=page.remaining,
                version=form.version,
            )
            await send_joined(request.send, 200, [rendered])
            return
        bodies = [stored.body for stored in page.objects]
        if form.name == PARTIAL:
            bodies = table.partial_metadata(bodies, form.version)
            header = _header("PartialObjectMetadataList", f"meta.k8s.io/{form.version}", page)
        else:
            header = _header(kind.list_kind, kind.api_version, page)
        await send_joined(request.send, 200, list(_list_parts(header, bodies)))

    def _refuse_future(self, request: Request) -> None:
        wanted = request.number("resourceVersion")
        if wanted is not None and wanted > self._state.revision:
            raise too_large_revision(wanted, self._state.revision)

    def _page(self, request: Request, target: Target) -> Page:
        query = request.query
        collection = self._state.collection(target.kind.group_resource)
        selection = selection_of(target, query)
        limit = request.number("limit") or 0
        token = query.get("continue", "")
        if token:
            if query.get("resourceVersion", "0") not in ("", "0"):
                raise bad_request("specifying resource version is not allowed when using continue")
            start = _parse_token(token)
            snapshot = self._state.snapshot(collection, start.rv)
            if snapshot is None:
                raise expired(TOKEN_TOO_OLD)
            objects = _in_namespace(snapshot, target.namespace)
            objects = objects[bisect_right(objects, start.after, key=_key_of) :]
            return self._cut(collection, objects, start.rv, selection, limit)
        revision = self._revision_to_list(request)
        if revision == self._state.revision:
            if selection.name is not None:
                return Page(selection.lookup(collection), revision, "", None)
            objects = collection.scan(target.namespace)
        else:
            found = self._state.snapshot(collection, revision)
            if found is None:
                raise expired(REVISION_TOO_OLD)
            objects = _in_namespace(found, target.namespace)
        return self._cut(collection, objects, revision, selection, limit)

    def _revision_to_list(self, request: Request) -> int:
        """The revision that resourceVersion and resourceVersionMatch ask for. Raises 400, 504."""
        wanted = request.number("resourceVersion")
        match = request.query.get("resourceVersionMatch", "")
        if match and not wanted and (match == "Exact" or wanted is None):
            raise bad_request(
                "resourceVersionMatch is forbidden unless resourceVersion is provided"
            )
        self._refuse_future(request)
        if match == "Exact" and wanted:
            return wanted
        if match not in ("", "Exact", "NotOlderThan"):
            raise bad_request(f'invalid resourceVersionMatch "{match}"')
        return self._state.revision

    def _cut(
        self,
        collection: Collection,
        objects: list[Stored],
        revision: int,
        selection: Selection,
        limit: int,
    ) -> Page:
        """The first `limit` selected objects, with the token for the next ones."""
        remaining = None
        if not selection.selective:
            if not limit or len(objects) <= limit:
                return Page(objects, revision, "", None)
            chosen, remaining = objects[:limit], len(objects) - limit
        else:
            chosen, more = _take(filter(selection.matches, objects), limit)
            if not more:
                return Page(chosen, revision, "", None)
        if revision == self._state.revision:
            self._state.keep_snapshot(collection)
        return Page(chosen, revision, _make_token(revision, chosen[-1].key), remaining)


def include_of(request: Request) -> str:
    """The includeObject parameter. Raises 400."""
    include = request.query.get("includeObject", "") or "Metadata"
    if include not in ("None", "Metadata", "Object"):
        raise bad_request(f'unrecognized includeObject value: "{include}"')
    return include


def _take(objects: Iterator[Stored], limit: int) -> tuple[list[Stored], bool]:
    """At most `limit` (0: all) objects, and whether there is another."""
    if not limit:
        return list(objects), False
    chosen: list[Stored] = []
    for stored in objects:
        if len(chosen) == limit:
            return chosen, True
        chosen.append(stored)
    return chosen, False


def _key_of(stored: Stored) -> Key:
    return stored.key


def _in_namespace(objects: list[Stored], namespace: str | None) -> list[Stored]:
    """The part of a sorted list that lies in a namespace; None = all."""
    if namespace is None:
        return objects
    first = bisect_left(objects, (namespace, ""), key=_key_of)
    return objects[first : bisect_left(objects, (namespace + "\0", ""), key=_key_of)]


def _header(kind: str, api_version: str, page: Page) -> bytes:
    metadata: dict[str, object] = {"resourceVersion": str(page.revision)}
    if page.token:
        metadata["continue"] = page.token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    head = encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    return head[:-1] + b',"items":['


def _list_parts(header: bytes, bodies: list[bytes]) -> Iterator[bytes]:
    yield header
    separator = b""
    for body in bodies:
        yield separator
        yield body
        separator = b","
    yield b"]}\n"


def _make_token(revision: int, after: Key) -> str:
    content = encode(_Token("meta.k8s.io/v1", revision, after))
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _parse_token(text: str) -> _Token:
    try:
        content = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        return msgspec.json.decode(content, type=_Token)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise bad_request("continue key is not valid: it does not come from this server") from None
