"""Figures that a job reports of its steps: kept as they come, read when a manifest is written."""

from typing import Any


def detached(value: Any) -> Any:
    """A metric without the graph it came from; it is not read, because that would wait for the GPU."""
    return value.detach() if hasattr(value, "detach") else value


def plain_number(value: Any) -> float | str | None:
    """A metric for the manifest: JSON has no infinities."""
    if isinstance(value, str) or value is None:
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return number if abs(number) <= 1.7976931348623157e308 else None
