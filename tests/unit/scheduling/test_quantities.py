"""Kubernetes quantities as integers, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterops.scheduling.quantities import InvalidQuantity, parse, show


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "4", 4000),
        ("cpu", "500m", 500),
        ("cpu", "0.1", 100),
        ("cpu", "1u", 1),
        ("memory", "2Gi", 2 * 1024**3),
        ("memory", "1.5Mi", 1572864),
        ("memory", "1e3", 1000),
        ("memory", "2E", 2 * 10**18),
        ("memory", "1Ei", 2**60),
        ("nvidia.com/gpu", 8, 8),
        ("nvidia.com/gpu", "1500m", 2),
        ("nvidia.com/gpu", "-1", -1),
    ],
)
def test_parses_what_the_api_server_accepts(resource: str, text: object, amount: int) -> None:
    assert parse(resource, text) == amount


@pytest.mark.parametrize("text", ["", "four", "1 Gi", "1KiB", "0x10", True, None, "1e999", "٤"])
def test_refuses_what_is_no_quantity_and_quotes_it(text: object) -> None:
    with pytest.raises(InvalidQuantity, match="cpu"):
        parse("cpu", text)


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 4000, "4"),
        ("cpu", 1500, "1500m"),
        ("cpu", 2_000_000, "2k"),
        ("memory", 2**32, "4Gi"),
        ("memory", 1000, "1000"),
        ("nvidia.com/gpu", 4000, "4k"),
        ("nvidia.com/gpu", 0, "0"),
        ("nvidia.com/gpu", -2, "-2"),
    ],
)
def test_shows_the_canonical_form(resource: str, amount: int, text: str) -> None:
    assert show(resource, amount) == text


@given(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(-(2**60), 2**60))
def test_what_is_shown_parses_back(resource: str, amount: int) -> None:
    assert parse(resource, show(resource, amount)) == amount
