"""Times as kubectl words them: `70s`, `9m5s`, `3d4h`."""

from datetime import datetime
from typing import Any


def seconds_since_epoch(timestamp: Any) -> float | None:
    """An RFC 3339 time in seconds since the epoch; None for anything else."""
    if not isinstance(timestamp, str):
        return None
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return None


def human_duration(seconds: float) -> str:
    """A length of time in at most two units, the shorter the older, as kubectl does."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 120:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = whole // 3600
    if hours < 8:
        return _two(hours, "h", whole // 60 % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    years = days // 365
    if years < 8:
        return _two(years, "y", days % 365, "d")
    return f"{years}y"


def _two(first: int, unit: str, second: int, smaller: str) -> str:
    return f"{first}{unit}{second}{smaller}" if second else f"{first}{unit}"


def age(timestamp: Any, now: float, missing: str = "<unknown>") -> str:
    """The time since `timestamp` in words; `missing` when there is none."""
    then = seconds_since_epoch(timestamp)
    return missing if then is None else human_duration(now - then)
