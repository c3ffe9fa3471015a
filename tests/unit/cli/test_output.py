"""Tables, colours, times."""

import io
from datetime import UTC, datetime

import pytest

from clusterops.cli import output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_columns_line_up_and_nothing_trails() -> None:
    text = output.table(["NAME", "PHASE"], [["a", "Running"], ["longer", ""]])
    assert text == "NAME     PHASE\na        Running\nlonger"


def test_a_narrow_terminal_cuts_lines_where_it_says_so() -> None:
    text = output.table(["NAME", "PHASE"], [["a" * 20, "Running"]], width=12)
    assert text.splitlines()[1] == "a" * 11 + "…"


def test_colour_surrounds_the_cell_and_not_the_gap() -> None:
    def style(column: int, cell: str) -> str:
        return output.GREEN if column == 1 and cell else ""

    text = output.table(["NAME", "PHASE", "X"], [["a", "Running", "y"]], style=style)
    assert text.splitlines()[1] == "a      \x1b[32mRunning\x1b[0m   y"
    cut = output.table(["NAME", "PHASE", "X"], [["a", "Running", "y"]], style=style, width=10)
    assert cut.splitlines()[1] == "a      \x1b[32mRu…\x1b[0m"


def test_foreign_cells_are_escaped() -> None:
    assert "\x1b" not in output.table(["NAME"], [["\x1b[31m"]])


@pytest.mark.parametrize(
    ("environment", "terminal", "plain"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_colour_obeys_the_environment(environment, terminal: bool, plain: bool) -> None:
    if "NO_COLOR" in environment:
        terminal = False
    assert output.coloured(Terminal(), environment) is terminal
    assert output.coloured(io.StringIO(), environment) is plain


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (200, "3m20s"), (3600, "60m"), (11_000, "3h3m"),
     (30_000, "8h"), (172_800, "2d"), (-5, "0s")],
)  # fmt: skip
def test_durations_read_like_kubectl(seconds: int, words: str) -> None:
    assert output.duration(seconds) == words


def test_age_is_since_the_timestamp_and_tolerates_none() -> None:
    now = datetime(2026, 11, 30, 19, 1, tzinfo=UTC)
    assert output.age("2026-11-30T19:00:00Z", now) == "60s"
    assert output.age(None) == "<none>"
    assert output.age("yesterday") == "<none>"


def test_numbers_keep_their_thousands_apart() -> None:
    assert [output.number(each) for each in (3100, 2.5, 10_000.0)] == ["3,100", "2.5", "10,000.0"]
