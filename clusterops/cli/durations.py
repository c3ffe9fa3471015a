"""Durations as people type them: `90s`, `10m`, `1h30m`, `2d`."""

import re

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)


def seconds_of(text: str) -> float:
    """The seconds of a duration; a bare number counts seconds. Raises ValueError."""
    if re.fullmatch(r"\d+(?:\.\d+)?", text, re.ASCII):
        return float(text)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration: expected e.g. 90s, 10m or 1h30m")
    return float(sum(float(number) * _SECONDS[unit] for number, unit in parts))
