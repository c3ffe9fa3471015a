"""Reading a JSON request field by field: types, ranges, and what is wrong in words with its name."""

import math
from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """What a client is told, in the form that OpenAI's clients know."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """The JSON of it."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(self.status, kind)
        return {
            "error": {
                "message": str(self),
                "type": kind,
                "param": self.param,
                "code": self.code,
            }
        }


def bad(message: str, param: str | None = None) -> ApiError:
    """A request that is wrong; it would be wrong again."""
    return ApiError(400, message, param=param)


class Fields:
    """The fields of a request. Absent and null are the same: the default."""

    def __init__(self, body: Any, known: Mapping[str, Any]) -> None:
        """`known` has every accepted name; one that is not supported has its only harmless value."""
        if not isinstance(body, dict):
            raise bad("the body is no JSON object")
        unknown = sorted(str(name) for name in body if name not in known)
        if unknown:
            raise bad(f"unknown field {unknown[0]!r}", unknown[0])
        self._body = body
        for name, harmless in known.items():
            given = body.get(name)
            if harmless is not ... and given is not None and given != harmless:
                raise bad(f"{name} is not supported here, only {harmless!r} is", name)

    def get(self, name: str) -> Any:
        """Whatever is there."""
        return self._body.get(name)

    def text(self, name: str) -> str | None:
        """A string."""
        value = self._body.get(name)
        if value is not None and not isinstance(value, str):
            raise bad(f"{name} is no string", name)
        return value

    def flag(self, name: str) -> bool:
        """True or false; false when absent."""
        value = self._body.get(name)
        if value is not None and not isinstance(value, bool):
            raise bad(f"{name} is neither true nor false", name)
        return bool(value)

    def whole(self, name: str, low: int, high: int, default: int | None) -> int | None:
        """An integer of a range."""
        value = self._body.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise bad(f"{name} is no integer of {low} to {high}", name)
        return value

    def number(self, name: str, low: float, high: float, default: float) -> float:
        """A number of a range."""
        value = self._body.get(name)
        if value is None:
            return default
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        if not fits or not math.isfinite(value) or not low <= value <= high:
            raise bad(f"{name} is no number of {low:g} to {high:g}", name)
        return float(value)
