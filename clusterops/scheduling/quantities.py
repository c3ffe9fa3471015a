"""Kubernetes quantities as integers: CPU in thousandths of a core, everything else in its own unit.

Sums and comparisons of quota are exact integers; text is met only on the way in and out.
"""

import re
from decimal import ROUND_CEILING, Decimal

CPU = "cpu"
PODS = "pods"

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))"
    r"(?P<suffix>n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?\d+)?",
    re.ASCII,
)
_DECIMAL_STEPS = ("", "k", "M", "G", "T", "P", "E")
_BINARY_STEPS = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SCALE = (
    {"n": Decimal(10) ** -9, "u": Decimal(10) ** -6, "m": Decimal(10) ** -3}
    | {suffix: Decimal(1000) ** power for power, suffix in enumerate(_DECIMAL_STEPS)}
    | {suffix: Decimal(1024) ** power for power, suffix in enumerate(_BINARY_STEPS)}
)


class InvalidQuantity(ValueError):
    """A text that is no Kubernetes quantity; the message quotes it."""


def parse(resource: str, text: object) -> int:
    """The quantity in the resource's unit: millicores for CPU, bytes for memory, a count otherwise.

    Fractions of the unit are rounded up, as the API server and Kueue do. Raises InvalidQuantity.
    """
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None or isinstance(text, bool):
        raise InvalidQuantity(
            f"{text!r} is no quantity of {resource}: expected e.g. 4, 500m or 2Gi"
        )
    suffix = match["suffix"] or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix != "Ei":
        exponent = int(suffix[1:])
        if abs(exponent) > 30:
            raise InvalidQuantity(
                f"{text!r} is no usable quantity of {resource}: exponent too large"
            )
        scale = Decimal(10) ** exponent
    else:
        scale = _SCALE[suffix]
    value = Decimal(match["number"]) * scale
    if resource == CPU:
        value *= 1000
    return int(value.to_integral_value(rounding=ROUND_CEILING))


def show(resource: str, amount: int) -> str:
    """The quantity in canonical form: 1500 of CPU is `1500m`, 4294967296 of memory is `4Gi`."""
    if resource == CPU:
        if amount % 1000:
            return f"{amount}m"
        amount //= 1000
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return _largest_step(amount, 1024, _BINARY_STEPS)
    return _largest_step(amount, 1000, _DECIMAL_STEPS)


def _largest_step(amount: int, base: int, steps: tuple[str, ...]) -> str:
    """The amount with the largest suffix that leaves a whole number."""
    power = 0
    while amount and power < len(steps) - 1 and amount % base == 0:
        amount //= base
        power += 1
    return f"{amount}{steps[power]}"
