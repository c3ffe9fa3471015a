"""Kubernetes quantities (`500m`, `2Gi`, `1e3`) as exact numbers."""

import re
from fractions import Fraction

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]{1,3})|([numkMGTPE]|Ki|Mi|Gi|Ti|Pi|Ei))?"
)
_DECIMAL = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
}
_BINARY = {f"{prefix}i": Fraction(1024**power) for power, prefix in enumerate("KMGTPE", start=1)}
_FACTORS = {**_DECIMAL, **_BINARY}


class MalformedQuantity(ValueError):
    """Not a quantity; the text shows it."""


def parse(quantity: str | int | float) -> Fraction:
    """The number a quantity stands for. Raises MalformedQuantity."""
    text = str(quantity).strip()
    match = _QUANTITY.fullmatch(text)
    if match is None or len(text) > 64:
        raise MalformedQuantity(f"{text[:64]!r} is not a quantity such as 2, 500m or 4Gi")
    number, exponent, suffix = match.groups()
    value = Fraction(number)
    if exponent:
        value *= Fraction(10) ** int(exponent[1:])
    return value * _FACTORS[suffix] if suffix else value


def ceil_div(value: Fraction, divisor: Fraction) -> int:
    """How many divisors cover the value, rounded up, as resourceFieldRef wants it."""
    return -((-value) // divisor)


def whole(quantity: str | int | float) -> int:
    """A quantity of things that cannot be divided, such as GPUs. Raises MalformedQuantity."""
    value = parse(quantity)
    if value.denominator != 1 or value < 0:
        raise MalformedQuantity(f"{str(quantity)[:64]!r} is not a whole number from 0")
    return int(value)
