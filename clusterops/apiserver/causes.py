"""How a write is refused: the causes in a Status object, and the exception that carries them.

The texts are Kubernetes' own, because kubectl prints them as they are.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

# What `Status.details.causes[].reason` says, and how the message of such a cause begins.
INVALID = "FieldValueInvalid"
REQUIRED = "FieldValueRequired"
DUPLICATE = "FieldValueDuplicate"
NOT_SUPPORTED = "FieldValueNotSupported"
FORBIDDEN = "FieldValueForbidden"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"
TYPE_INVALID = "FieldValueTypeInvalid"
CONFLICT = "FieldManagerConflict"


class Cause(NamedTuple):
    """One thing wrong with one field: path, machine-readable reason, sentence."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class Refused(Exception):
    """A request that is answered with a Status of `status`, `reason`, `message` and `causes`."""

    def __init__(
        self, status: int, reason: str, message: str, causes: Iterable[Cause] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = tuple(causes)


def shown(value: Any) -> str:
    """A bad value as Kubernetes prints it in a message: quoted text, plain numbers, else JSON."""
    return msgspec.json.encode(value).decode()


def invalid(field: str, value: Any, detail: str) -> Cause:
    """The value breaks a rule."""
    return Cause(field, INVALID, f"Invalid value: {shown(value)}: {detail}")


def type_invalid(field: str, value: Any, detail: str) -> Cause:
    """The value has another JSON type than the schema says."""
    return Cause(field, TYPE_INVALID, f"Invalid value: {shown(value)}: {detail}")


def required(field: str, detail: str = "") -> Cause:
    """The field is missing."""
    return Cause(field, REQUIRED, f"Required value: {detail}" if detail else "Required value")


def duplicate(field: str, value: Any) -> Cause:
    """The value, or its key, occurs twice in a list that is a set or a map."""
    return Cause(field, DUPLICATE, f"Duplicate value: {shown(value)}")


def forbidden(field: str, detail: str) -> Cause:
    """The field may not be set here, or not be changed."""
    return Cause(field, FORBIDDEN, f"Forbidden: {detail}")


def not_supported(field: str, value: Any, allowed: Iterable[Any]) -> Cause:
    """The value is none of those allowed."""
    listed = ", ".join(f'"{a}"' if isinstance(a, str) else f'"{shown(a)}"' for a in allowed)
    return Cause(
        field, NOT_SUPPORTED, f"Unsupported value: {shown(value)}: supported values: {listed}"
    )


def too_long(field: str, limit: int) -> Cause:
    """The text is longer than `limit` bytes."""
    return Cause(field, TOO_LONG, f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> Cause:
    """The list or map has more than `limit` entries."""
    return Cause(field, TOO_MANY, f"Too many: {count}: must have at most {limit} items")


def invalid_message(kind: str, group: str, name: str, causes: list[Cause]) -> str:
    """The message of a 422: `Kind.group "name" is invalid: ...`, causes in brackets if several."""
    qualified = f"{kind}.{group}" if group else kind
    texts = [str(cause) for cause in causes]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return f'{qualified} "{name}" is invalid: {listed}'
