"""POST, PUT, PATCH and DELETE of objects: from the request to the registry and back."""

from typing import Any

from clusterops.apiserver import patching
from clusterops.apiserver.answers import JSON_TYPE, send_body, warning_headers
from clusterops.apiserver.bodies import decode_json, decode_object, decode_yaml, media_type
from clusterops.apiserver.causes import Cause, forbidden, invalid_message, required
from clusterops.apiserver.deletion import DeleteOptions, Deletion, delete_options
from clusterops.apiserver.kind import Kind
from clusterops.apiserver.negotiation import negotiate
from clusterops.apiserver.reads import Reads
from clusterops.apiserver.refusals import (
    StatusError,
    bad_request,
    method_not_allowed,
    unsupported_media_type,
)
from clusterops.apiserver.registry import Registry
from clusterops.apiserver.request import Request, Target
from clusterops.apiserver.selection import selection_of
from clusterops.apiserver.stored import encode
from clusterops.apiserver.written_object import IGNORE, STRICT, WARN, Outcome, WriteOptions

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_MANAGER_LIMIT = 128


class Writes:
    """Answers to everything that changes an object."""

    def __init__(self, registry: Registry, deletion: Deletion, reads: Reads) -> None:
        self._registry = registry
        self._deletion = deletion
        self._reads = reads

    async def create(self, request: Request, target: Target) -> None:
        """POST of a new object."""
        kind, namespace = target.kind, target.namespace
        if kind.namespaced and namespace is None:
            raise method_not_allowed(kind.plural)
        options = write_options(request)
        obj = await body_object(request)
        outcome = await self._registry.create(kind, namespace or "", obj, options)
        await self._answer(request, kind, outcome)

    async def replace(self, request: Request, target: Target) -> None:
        """PUT of an object or its status."""
        options = write_options(request)
        obj = await body_object(request)
        outcome = await self._registry.replace(
            target.kind, target.key, obj, options, target.subresource
        )
        await self._answer(request, target.kind, outcome)

    async def patch(self, request: Request, target: Target) -> None:
        """PATCH of an object or its status, in one of four formats."""
        options = write_options(request)
        form = media_type(request.headers.get(b"content-type", b""))
        kind, force = target.kind, request.query.get("force")
        if form == APPLY_PATCH:
            if not request.query.get("fieldManager"):
                raise _bad_patch_options(required("fieldManager", "is required for apply patch"))
            applied = decode_yaml(await request.body())
            outcome = await self._registry.apply(
                kind,
                target.key,
                applied,
                options,
                force=request.flag("force"),
                subresource=target.subresource,
            )
            await self._answer(request, kind, outcome)
            return
        if force is not None:
            raise _bad_patch_options(forbidden("force", "may not be specified for non-apply patch"))
        if form not in _accepted_patches(kind):
            raise unsupported_media_type(_accepted_patches(kind))
        patch = decode_json(await request.body())
        outcome = await self._registry.change(
            kind,
            target.key,
            lambda live: _patched(kind, form, live, patch),
            options,
            target.subresource,
        )
        await self._answer(request, kind, outcome)

    async def delete(self, request: Request, target: Target) -> None:
        """DELETE of one object."""
        options = await self._delete_options(request)
        outcome = await self._deletion.delete(target.kind, target.key, options)
        await self._answer(request, target.kind, outcome)

    async def delete_all(self, request: Request, target: Target) -> None:
        """DELETE of everything that selectors choose: answered with the list of it."""
        kind = target.kind
        if kind.namespaced and target.namespace is None:
            raise method_not_allowed(kind.plural)
        options = await self._delete_options(request)
        chosen = selection_of(target, request.query)
        bodies = await self._deletion.delete_all(kind, target.namespace, chosen.matches, options)
        revision = {"resourceVersion": str(self._registry.state.revision)}
        head = encode({"kind": kind.list_kind, "apiVersion": kind.api_version,
                       "metadata": revision})  # fmt: skip
        await send_body(request.send, 200, head[:-1] + b',"items":[' + b",".join(bodies) + b"]}\n")

    async def _delete_options(self, request: Request) -> DeleteOptions:
        content = await request.body()
        body: dict[str, Any] = {}
        if content:
            form = media_type(request.headers.get(b"content-type", b""))
            body = decode_object(content, form)
        _check_dry_run(request.query.get("dryRun"))
        return delete_options(body, request.query)

    async def _answer(self, request: Request, kind: Kind, outcome: Outcome) -> None:
        form = negotiate(request.headers.get(b"accept", b""))
        body = self._reads.rendered(request, kind, outcome.body, form)
        headers = [JSON_TYPE, *warning_headers(outcome.warnings)]
        await send_body(request.send, outcome.status, body, headers)


async def body_object(request: Request) -> dict[str, Any]:
    """The object in the body of a request. Raises 400, 413, 415."""
    form = media_type(request.headers.get(b"content-type", b""))
    return decode_object(await request.body(), form)


def write_options(request: Request) -> WriteOptions:
    """Who writes, how strictly it is checked, and whether it is only a trial. Raises 400."""
    query = request.query
    manager = query.get("fieldManager", "")
    if not manager:
        agent = request.headers.get(b"user-agent", b"").decode("latin-1")
        manager = agent.partition("/")[0][:_MANAGER_LIMIT] or "unknown"
    if len(manager) > _MANAGER_LIMIT or not manager.isprintable():
        raise bad_request("fieldManager must be printable and of at most 128 characters")
    validation = query.get("fieldValidation", "") or WARN
    if validation not in (STRICT, WARN, IGNORE):
        raise bad_request(f'invalid fieldValidation "{validation}": must be Ignore, Warn or Strict')
    _check_dry_run(query.get("dryRun"))
    return WriteOptions(manager, validation, bool(query.get("dryRun")))


def _check_dry_run(text: str | None) -> None:
    if text not in (None, "", "All"):
        raise bad_request(f'invalid dryRun "{text}": must be All')


def _accepted_patches(kind: Kind) -> tuple[str, ...]:
    if kind.builtin:
        return (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
    return (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)


def _patched(kind: Kind, form: str, live: dict[str, Any], patch: Any) -> Any:
    if form == JSON_PATCH:
        return patching.json_patch(live, patch)
    if not isinstance(patch, dict):
        raise bad_request("the patch is no object")
    if form == STRATEGIC_PATCH:
        return patching.strategic_merge_patch(kind, live, patch)
    return patching.merge_patch(live, patch)


def _bad_patch_options(cause: Cause) -> StatusError:
    message = invalid_message("PatchOptions", "meta.k8s.io", "", [cause])
    details = {"group": "meta.k8s.io", "kind": "PatchOptions"}
    return StatusError(422, "Invalid", message, [cause], details)
