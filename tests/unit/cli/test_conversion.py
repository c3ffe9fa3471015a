"""Words to values: the same answers as typer's own, without what it loads."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pytest
import typer

from clusterops.cli import conversion


class Colour(StrEnum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


def run(words: list[str], *, light: bool):
    """The values that a command gets, or the usage error it ends with."""
    got = {}
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command()
    def command(
        where: Path = Path(),
        colour: Colour = Colour.RED,
        count: Annotated[int, typer.Option(min=1, max=9)] = 3,
        ratio: Annotated[float | None, typer.Option(min=0)] = None,
        env: Annotated[list[str] | None, typer.Option()] = None,
        ranks: Annotated[list[int] | None, typer.Option(min=0)] = None,
        name: str | None = None,
        yes: bool = False,
    ) -> None:
        got.update(locals())

    built = typer.main.get_command(app)
    if light:
        conversion.lighten(built)
    try:
        built.main(words, standalone_mode=False)
    except Exception as error:  # whatever typer raises is what is compared
        return type(error).__name__
    return {key: value for key, value in got.items() if key != "got"}


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--where", "/a/b"],
        ["--colour", "blue"],
        ["--colour", "green"],
        ["--count", "9"],
        ["--count", "0"],
        ["--count", "10"],
        ["--count", "x"],
        ["--count", "1.5"],
        ["--ratio", "0"],
        ["--ratio", "2.5"],
        ["--ratio", "-1"],
        ["--ratio", "x"],
        ["--env", "A=1", "--env", "B=2"],
        ["--ranks", "0", "--ranks", "4"],
        ["--ranks", "-1"],
        ["--name", "", "--yes"],
        ["--unknown"],
    ],
)
def test_the_answer_is_typers_own(words: list[str]) -> None:
    assert run(words, light=True) == run(words, light=False)


def test_not_a_number_is_below_every_bound() -> None:
    assert run(["--ratio", "nan"], light=True) == "BadParameter"


def test_a_type_that_is_not_ours_stays_with_typer() -> None:
    assert conversion.converter(dict, None) is None
    assert conversion.converter(int | str, None) is None
