"""Text that grows token by token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf.engine_text import GrowingText, StopStrings
from rlhf.tasks.vocabulary import Bytes

BYTES = Bytes()
texts = st.text(st.sampled_from("abcé€😀 ok"), max_size=12)


@given(texts)
def test_pieces_make_up_the_text_and_no_letter_is_torn(text: str) -> None:
    growing = GrowingText(BYTES.decode)
    pieces = [growing.add(token) for token in BYTES.encode(text)]
    assert "".join(pieces) + growing.rest() == text
    assert "�" not in "".join(pieces)


def test_bytes_that_are_no_letter_come_out_as_the_sign_for_that() -> None:
    growing = GrowingText(BYTES.decode)
    pieces = [growing.add(token) for token in [0xFF, 0xFE, 0xFD, 0xFC, ord("a"), ord("b")]]
    assert "".join(pieces) + growing.rest() == "����ab"


def test_what_was_held_back_comes_at_the_end() -> None:
    growing = GrowingText(BYTES.decode)
    assert growing.add("é".encode()[0]) == ""
    assert growing.rest() == "�"


@given(texts, st.lists(st.text(st.sampled_from("abc k"), min_size=1, max_size=3), max_size=3))
def test_the_text_ends_before_the_first_stop_string_however_it_is_cut_into_tokens(
    text: str, stops: list[str]
) -> None:
    places = [text.find(stop) for stop in stops if stop in text]
    stopper = StopStrings(BYTES.decode, stops)
    pieces = []
    for token in BYTES.encode(text):
        pieces.append(stopper.add(token))
        if stopper.found:
            break
    found = stopper.found
    assert "".join(pieces) + stopper.rest() == (text[: _first(text, stops)] if places else text)
    assert found == bool(places) or stopper.found


def _first(text: str, stops: list[str]) -> int:
    """Where the text ends: at the stop string that is complete first, the earliest of these."""
    for length in range(len(text) + 1):
        ends = [text[:length].find(stop) for stop in stops if stop in text[:length]]
        if ends:
            return min(ends)
    return len(text)


@pytest.mark.parametrize("stops", [("stop",), ("xy", "stop")])
def test_what_may_become_a_stop_string_is_held_back(stops) -> None:
    stopper = StopStrings(BYTES.decode, stops)
    assert [stopper.add(token) for token in BYTES.encode("a sto")] == ["a", " ", "", "", ""]
    assert stopper.add(ord("r")) == "stor"
    assert not stopper.found


def test_nothing_comes_after_a_stop_string() -> None:
    stopper = StopStrings(BYTES.decode, ("ab",))
    assert [stopper.add(token) for token in BYTES.encode("xabx")] == ["x", "", "", ""]
    assert stopper.found
    assert stopper.rest() == ""
