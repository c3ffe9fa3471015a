"""Why a request is refused, in Kubernetes' exact words, and the Status objects that say so.

kubectl prints these texts as they are, and clients compare some of them.
"""

from collections.abc import Sequence
from typing import Any

from clusterops.apiserver.causes import Cause, Refused, invalid, invalid_message
from clusterops.apiserver.kind import Kind
from clusterops.apiserver.stored import encode

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


class StatusError(Refused):
    """A refusal with the `details` of its Status object."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        causes: Sequence[Cause] = (),
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(status, reason, message, causes)
        self.details = details or {}


def details_of(kind: Kind, name: str, **more: Any) -> dict[str, Any]:
    """`details` that name an object: its plural as kind, except in a 422."""
    details: dict[str, Any] = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    return details | {"kind": kind.plural} | more


def bad_request(message: str) -> StatusError:
    """400: malformed."""
    return StatusError(400, "BadRequest", message)


def not_found(kind: Kind, name: str) -> StatusError:
    """404: no such object."""
    message = f'{kind.group_resource} "{name}" not found'
    return StatusError(404, "NotFound", message, details=details_of(kind, name))


def no_such_path() -> StatusError:
    """404: no such kind, subresource or page."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(kind: Kind, name: str) -> StatusError:
    """409 of a create."""
    message = f'{kind.group_resource} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=details_of(kind, name))


def conflict(kind: Kind, name: str, why: str = MODIFIED) -> StatusError:
    """409 of an update, a deletion or a binding."""
    message = f'Operation cannot be fulfilled on {kind.group_resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=details_of(kind, name))


def invalid_object(kind: Kind, name: str, causes: Sequence[Cause]) -> StatusError:
    """422: the object breaks its schema. Here, and only here, `details.kind` is the Kind."""
    details = details_of(kind, name) | {"kind": kind.kind}
    message = invalid_message(kind.kind, kind.group, name, list(causes))
    return StatusError(422, "Invalid", message, causes, details)


def forbidden(kind: Kind, name: str, why: str, causes: Sequence[Cause] = ()) -> StatusError:
    """403: allowed in general, not now."""
    message = f'{kind.group_resource} "{name}" is forbidden: {why}'
    return StatusError(403, "Forbidden", message, causes, details_of(kind, name))


def cannot_decode(kind: Kind, why: str) -> StatusError:
    """400: the body is no object of this kind."""
    return bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}'
    )


def strict_decoding(kind: Kind, problems: Sequence[str]) -> StatusError:
    """400 of `fieldValidation=Strict`."""
    return cannot_decode(kind, f"strict decoding error: {', '.join(problems)}")


def strict_patch(patched: str, problems: Sequence[str]) -> StatusError:
    """422 of `fieldValidation=Strict` for a patch; `patched` is the object that it leads to."""
    causes = [invalid("patch", patched, f"strict decoding error: {', '.join(problems)}")]
    return StatusError(422, "Invalid", invalid_message("", "", "", causes), causes)


def method_not_allowed(kind: str) -> StatusError:
    """405: the path is there, the verb is not."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, details={"kind": kind} if kind else None)


def expired(message: str) -> StatusError:
    """410: list again."""
    return StatusError(410, "Expired", message)


def too_large_revision(wanted: int, current: int) -> StatusError:
    """504: a revision of the future. The client would wait; we know that it does not exist."""
    message = f"Too large resource version: {wanted}, current: {current}"
    cause = Cause("", "ResourceVersionTooLarge", "Too large resource version")
    return StatusError(504, "Timeout", message, [cause], {"retryAfterSeconds": 1})


def unauthorized() -> StatusError:
    """401: no valid token."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def too_large(limit: int) -> StatusError:
    """413: a body over the limit."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    """415: a body of a format that is not read here."""
    return StatusError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted),
    )


def not_acceptable(offered: Sequence[str]) -> StatusError:
    """406: none of the formats that the client takes is made here."""
    return StatusError(
        406,
        "NotAcceptable",
        "only the following media types are accepted: " + ", ".join(offered),
    )


def storage_failed(full: bool, why: str) -> StatusError:
    """507 when the disk is full, 500 when it failed. No Retry-After: clients would repeat writes."""
    if full:
        return StatusError(507, "InsufficientStorage", why)
    return StatusError(500, "InternalError", why)


def document(refused: Refused) -> dict[str, Any]:
    """The Status object of a refusal."""
    details = dict(refused.details) if isinstance(refused, StatusError) else {}
    if refused.causes:
        details["causes"] = [_cause(cause) for cause in refused.causes]
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refused.message,
        "reason": refused.reason,
    }
    if details:
        status["details"] = details
    return status | {"code": refused.status}


def _cause(cause: Cause) -> dict[str, str]:
    found = {"reason": cause.reason, "message": cause.message}
    return found | {"field": cause.field} if cause.field else found


def status_body(refused: Refused) -> bytes:
    """The encoded Status object of a refusal."""
    return encode(document(refused))


def success(kind: Kind | None = None, name: str = "", uid: str = "", *, code: int = 0) -> bytes:
    """The encoded Status object of something that was done."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
    }
    if kind is not None:
        status["details"] = details_of(kind, name) | ({"uid": uid} if uid else {})
    return encode(status | {"code": code} if code else status)
