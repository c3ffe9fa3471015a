"""Which of a rank's last lines are shown."""

from clusterops.cli.last_words import chosen


def test_the_last_three_lines_that_say_something_are_chosen() -> None:
    assert chosen(["a", "b", "", "c", "  ", "d"], "") == ("b", "c", "d")
    assert chosen([], "") == ()


def test_what_the_message_says_already_is_not_said_again() -> None:
    assert chosen(["loading", "KeyError: 7"], "rank 0 exited with code 1: KeyError: 7") == (
        "loading",
    )


def test_a_line_that_is_too_long_is_cut() -> None:
    (line,) = chosen(["x" * 10_000], "")
    assert len(line) < 400
    assert line.endswith("...")
