"""Rendezvous ports on a shared loopback."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterops.operator.ports import PortBook


def test_an_offer_stands_until_it_is_settled_and_the_next_one_differs() -> None:
    book = PortBook(29_400, 29_403)
    first = book.offer(("n", "a"), [])
    assert book.offer(("n", "a"), []) == first
    book.settle(("n", "a"))
    assert book.offer(("n", "a"), []) != first, "a port that was taken is not tried again at once"


def test_a_full_range_offers_nothing() -> None:
    book = PortBook(29_400, 29_401)
    assert book.offer(("n", "a"), [29_400]) == 29_401
    assert book.offer(("n", "b"), [29_400]) is None


@given(
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=60),
    used=st.sets(st.integers(29_400, 29_404)),
)
def test_no_two_jobs_hold_the_same_port(steps: list[tuple[bool, int]], used: set[int]) -> None:
    book = PortBook(29_400, 29_405)
    held: dict[int, int] = {}
    for wants, number in steps:
        key = ("n", str(number))
        if wants:
            port = book.offer(key, used)
            if port is not None:
                held[number] = port
        else:
            book.settle(key)
            held.pop(number, None)
        ports = list(held.values())
        assert len(set(ports)) == len(ports)
        assert not used & set(ports)


@pytest.mark.parametrize(("first", "last"), [(0, 5), (10, 5), (1, 70_000)])
def test_a_senseless_range_is_refused(first: int, last: int) -> None:
    with pytest.raises(ValueError, match="port range"):
        PortBook(first, last)
