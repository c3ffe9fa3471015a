"""What can go wrong between a client and a Kubernetes API server.

The retry intent is in the type: `Retryable` may be tried again as it is, `Conflict` after reading
anew, everything else will fail the same way again. Nothing here is raised for a reason other than
an answer of the server or the lack of one.
"""

import json
from collections.abc import Mapping
from typing import Any


def printable(text: str, limit: int = 2000) -> str:
    """Foreign text made safe to show on one line: control characters escaped, length bounded."""
    short = text if len(text) <= limit else text[:limit] + "..."
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in short
    )


class KubeError(Exception):
    """Base of everything this package raises about talking to an API server."""


class ConfigError(KubeError):
    """The kubeconfig or the in-cluster environment cannot be used; the text says which file and why."""


class Retryable(KubeError):
    """May succeed when tried again. `retry_after_seconds` is the server's wish, None if it has none."""

    retry_after_seconds: float | None = None


class Unreachable(Retryable):
    """No answer: connection refused, reset, timed out, or TLS failed half way."""


class ApiError(KubeError):
    """The server answered with a failure.

    `status` is the HTTP code, `reason` and `message` come from the `Status` object as they are,
    `details` is its `details` field (may be empty), `body` is the whole decoded answer. The text of
    the exception has control characters escaped.
    """

    def __init__(
        self, status: int, reason: str, message: str, body: dict[str, Any] | None = None
    ) -> None:
        super().__init__(printable(message) or f"HTTP {status} {printable(reason)}".rstrip())
        self.status = status
        self.reason = reason
        self.message = message
        self.body = body or {}
        self.retry_after_seconds: float | None = None

    @property
    def details(self) -> dict[str, Any]:
        """The `details` of the Status object."""
        details = self.body.get("details")
        return details if isinstance(details, dict) else {}


class BadRequest(ApiError):
    """400: the request is malformed."""


class Unauthorized(ApiError):
    """401: no valid credentials."""


class Forbidden(ApiError):
    """403: not allowed, by RBAC or by an admission webhook."""


class NotFound(ApiError):
    """404: the object or the kind does not exist."""


class Conflict(ApiError):
    """409: the object changed meanwhile, or a server-side apply met another owner."""


class AlreadyExists(Conflict):
    """409 with reason AlreadyExists, from a create."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class Invalid(ApiError):
    """422: the object breaks its schema."""


class ServerBusy(ApiError, Retryable):
    """429, or 5xx: may pass. Honour `retry_after_seconds` when it is set."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


def from_status(
    status: int, body: dict[str, Any] | None, retry_after_seconds: float | None = None
) -> ApiError:
    """The error that an HTTP answer of 400 or more stands for."""
    body = body or {}
    reason = str(body.get("reason") or "")
    message = str(body.get("message") or "")
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists(status, reason, message, body)
    busy = status == 429 or status >= 500
    error = (ServerBusy if busy else _BY_STATUS.get(status, ApiError))(
        status, reason, message, body
    )
    error.retry_after_seconds = retry_after_seconds
    return error


def from_answer(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error in a raw HTTP answer of 300 or more; `headers` have lower-case names.

    A body that is no Status object (a proxy's page, plain text) becomes the message.
    """
    decoded: Any = None
    text = body.decode("utf-8", "replace").strip()
    if text.startswith("{"):
        try:
            decoded = json.loads(text)
        except (ValueError, RecursionError):
            decoded = None
    if not isinstance(decoded, dict):
        kind = headers.get("content-type", "")
        excerpt = printable(text, 200) if not kind.startswith("text/html") else ""
        decoded = {"message": f"HTTP {status}" + (f": {excerpt}" if excerpt else "")}
    return from_status(status, decoded, _retry_after(headers))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    # Kubernetes sends whole seconds; the header's other form, a date, would need the wall clock.
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return min(seconds, 3600.0) if seconds >= 0 else None
