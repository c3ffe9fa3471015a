"""Quantities are exact, and what is none is refused by name."""

from fractions import Fraction

import pytest

from clusterops.nodeagent import quantities


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ("500m", Fraction(1, 2)),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("4Ki", 4096),
        ("1Gi", 1024**3),
        ("2k", 2000),
        ("1e3", 1000),
        ("5E-1", Fraction(1, 2)),
        ("1E", 10**18),
        ("100n", Fraction(1, 10**7)),
        (3, 3),
    ],
)
def test_each_notation_is_its_number(text, value) -> None:
    assert quantities.parse(text) == value


@pytest.mark.parametrize("text", ["", "two", "1 Gi", "0x10", "1Gib", "1e9999", "--1", "9" * 100])
def test_what_is_no_quantity_is_refused(text) -> None:
    with pytest.raises(quantities.MalformedQuantity):
        quantities.parse(text)


def test_division_rounds_up() -> None:
    assert quantities.ceil_div(Fraction(1, 2), Fraction(1)) == 1
    assert quantities.ceil_div(Fraction(2048), Fraction(1024)) == 2
    assert quantities.ceil_div(Fraction(2049), Fraction(1024)) == 3


def test_gpus_come_whole() -> None:
    assert quantities.whole("4") == 4
    for text in ("500m", "-1", "1.5"):
        with pytest.raises(quantities.MalformedQuantity):
            quantities.whole(text)
