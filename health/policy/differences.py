"""What differs between two policies, value by value."""

from typing import Any, NamedTuple

import msgspec

from health.policy.schema import Policy


class Difference(NamedTuple):
    """One value that differs; None on a side means absent there."""

    place: str
    before: Any
    after: Any


def differences(before: Policy, after: Policy) -> list[Difference]:
    """Every value that differs, by its place in the file."""
    one, other = _flat(before), _flat(after)
    return [
        Difference(place, one.get(place), other.get(place))
        for place in sorted({*one, *other})
        if one.get(place) != other.get(place)
    ]


def _flat(policy: Policy) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for section, value in msgspec.to_builtins(policy).items():
        if isinstance(value, dict):
            flat |= {f"{section}.{key}": each for key, each in value.items()}
            continue
        for row in value:
            name = row.get("name") or row.get("code")
            flat |= {f"{section}.{name}.{key}": each for key, each in row.items()}
    return flat
