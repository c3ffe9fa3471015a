"""Moments of a log are told in the words of its own clock."""

import pytest

from health import classify, report, shipped
from health.verdict.node import judge_node

XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=x, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ("[ 1234.500000] ", "[1234.500]"),
        ("2026-11-30T23:01:16.25Z host kernel: ", "2026-11-30 23:01:16Z"),
        ("2026-11-30T23:01:16+0100 host kernel: ", "2026-11-30 22:01:16Z"),
        ("Nov 30 23:01:16 host kernel: ", "Nov 30 23:01:16"),
        ("", "[0.000]"),
    ],
)
def test_an_incident_is_dated_as_its_line_is(head: str, told: str) -> None:
    judge = classify.judge_for(shipped.catalogue(), None, shipped.policy())
    verdict = judge_node(classify.folded([head + XID], judge, shipped.policy()))
    (row,) = report.rows(verdict)
    assert row[report.COLUMNS.index("WHEN")] == told


def test_a_date_beyond_all_calendars_is_a_number() -> None:
    assert report.moment(1e15) == "1000000000000000.0"
