"""Foreign text made safe to show."""

import pytest

from clusterops.api.text import listed, printable, shortened


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "a\rb", "a\nb", "a\u202eb", "a\u2028b", "\x00", "\x9b"]
)
def test_characters_that_act_are_escaped(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown != text


def test_words_of_any_language_stay() -> None:
    assert printable("模型 größe ok") == "模型 größe ok"


def test_what_is_to_be_kept_is_kept() -> None:
    assert printable("a\nb\tc", keep="\n") == "a\nb\\tc"


def test_long_text_is_cut_where_it_says_so() -> None:
    assert shortened("a" * 90) == "a" * 77 + "..."
    assert shortened("a" * 80) == "a" * 80


def test_words_are_listed_as_a_sentence_does() -> None:
    assert [listed(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a or b",
        "a, b or c",
    ]
