"""The queue's rows: order, filter, forms."""

import json

import pytest

from clusterops.cli import queue
from clusterops.cli.options import Format

COLUMNS = [
    {"name": "Name"},
    {"name": "GPUs"},
    {"name": "Phase"},
    {"name": "Lost", "priority": 1},
]
ROWS = [
    ["done", 1, "Succeeded", 0],
    ["new", 4, None, None],
    ["waits", 8, "Pending", None],
    ["runs", 8, "Running", 3],
]


def test_what_moves_comes_first_and_what_is_over_last() -> None:
    assert [row[0] for row in queue.arrange(COLUMNS, ROWS, [])] == ["runs", "waits", "new", "done"]


def test_a_job_that_nobody_has_seen_counts_as_pending() -> None:
    assert [row[0] for row in queue.arrange(COLUMNS, ROWS, ["Pending"])] == ["waits", "new"]


def test_a_table_shows_narrow_columns_and_blanks(capsys) -> None:
    queue.show(COLUMNS, ROWS, Format.TABLE, None, "n")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "NAME    GPUS   PHASE"
    assert lines[2] == "new     4"


def test_wide_shows_every_column(capsys) -> None:
    queue.show(COLUMNS, ROWS, Format.WIDE, None, "n")
    assert "LOST" in capsys.readouterr().out


def test_a_limit_says_what_it_leaves_out(capsys) -> None:
    queue.show(COLUMNS, ROWS, Format.TABLE, 3, "n")
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 4
    assert "1 more jobs" in said.err


def test_an_empty_queue_says_so_and_prints_no_data(capsys) -> None:
    queue.show(COLUMNS, [], Format.TABLE, None, "n")
    said = capsys.readouterr()
    assert said.out == ""
    assert "no jobs in namespace n" in said.err


def test_json_has_a_field_a_column(capsys) -> None:
    queue.show(COLUMNS, ROWS[:1], Format.JSON, None, "n")
    assert json.loads(capsys.readouterr().out) == [
        {"name": "done", "gpus": 1, "phase": "Succeeded", "lost": 0}
    ]
    queue.show(COLUMNS, [], Format.JSON, None, "n")
    assert json.loads(capsys.readouterr().out) == []


def test_names_are_those_of_kubectl(capsys) -> None:
    queue.show(COLUMNS, ROWS[:2], Format.NAME, None, "n")
    assert (
        capsys.readouterr().out == "trainingjob.clusterops.io/done\ntrainingjob.clusterops.io/new\n"
    )


@pytest.mark.parametrize(
    ("heading", "key"),
    [("GPUs", "gpus"), ("Name", "name"), ("Priority Class", "priorityClass"), ("Age", "age")],
)
def test_headings_become_fields(heading: str, key: str) -> None:
    assert queue._key(heading) == key
