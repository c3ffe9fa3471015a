"""The fault chapter's story and report, from what was observed."""

from dataclasses import replace

import pytest

from clusterops.local.demo.report import FaultReport
from clusterops.local.demo.timeline import Timeline


def health(verdict, rung=None, state=None, ticket=None, message=""):
    remedy = {"rung": rung, "state": state, **({"ticket": ticket} if ticket else {})}
    return {
        "metadata": {"name": "n1"},
        "spec": {"remediation": remedy} if rung else {},
        "status": {"verdict": verdict, "message": message},
    }


def test_a_node_that_is_well_is_no_news():
    timeline = Timeline()
    assert timeline.see_health(health("Healthy"), 1.0) == []
    assert timeline.see_health(health("Healthy"), 2.0) == []


def test_each_verdict_and_each_step_is_told_once():
    timeline = Timeline()
    timeline.see_health(health("Healthy"), 1.0)
    seen = [
        health("RebootNode", message="gone"),
        health("RebootNode", "reboot_node", "Draining", message="gone"),
        health("RebootNode", "reboot_node", "Draining", message="gone"),
        health("Healthy", "hardware_ticket", "Running"),
        health("Healthy", "hardware_ticket", "Running", ticket="T-1"),
        health("Healthy", "hardware_ticket", "Done", ticket="T-1"),
    ]
    told = [line.text for at, each in enumerate(seen, 2) for line in timeline.see_health(each, at)]
    assert told == [
        "RebootNode: gone",
        "reboot_node has to be: jobs leave the node",
        "Healthy",
        "hardware_ticket is under way",
        "ticket T-1 is with the vendor",
        "hardware_ticket is over: the node has proven that it is well, and takes jobs again",
    ]
    assert timeline.verdicts["n1"] == (1.0, 2, 5)
    assert timeline.nodes["n1"].tickets == ("T-1",)


def test_where_a_later_attempt_goes_on_is_when_the_job_is_back():
    timeline = Timeline()
    timeline.see_log("a", "start at step 0/9", 1.0)
    timeline.see_log("a", "step 3/9 value x", 2.0)
    assert timeline.story("a").resumed_at is None
    timeline.see_log("a", "start at step 3/9", 5.0)
    assert timeline.story("a").resumed_at == 5.0
    timeline.see_log("a", "step 9/9 value z", 6.0)
    story = timeline.story("a")
    assert (story.reached, story.resumed_step, story.last_step) == (3, 3, 9)


GOOD = FaultReport(
    40.0, "a", "Succeeded", "n1", "n2", "NodeFault", 0.1, 1.5, 116, 100, 100, 1, True, "ab", "ab"
)


def test_a_good_run_has_no_problems_and_fits_a_terminal():
    assert GOOD.problems() == []
    columns, row = GOOD.table()
    assert len(columns) == len(row)
    widths = [max(pair) for pair in zip(map(len, columns), map(len, row), strict=True)]
    assert sum(widths) + 2 * (len(widths) - 1) <= 110
    assert "given back" in GOOD.closing()
    assert GOOD.to_json()["lineToResumedSeconds"] == 1.5
    assert GOOD.to_json()["lostSteps"] == 16


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"outcome": "Failed"}, "ended as Failed"),
        ({"cause": "UserError"}, "not for its node"),
        ({"resumed_on": "n1"}, "on the broken node"),
        ({"resumed_step": 80}, "went on at step 80, and 100 was saved"),
        ({"saved_step": 0, "resumed_step": 0}, "0 was saved"),
        ({"tickets": 2}, "2 tickets"),
        ({"given_back": False}, "not given back"),
        ({"state_sha256": "cd"}, "another state"),
        ({"state_sha256": "", "undisturbed_sha256": ""}, "another state"),
    ],
)
def test_what_goes_wrong_is_named(wrong, words):
    (told,) = replace(GOOD, **wrong).problems()
    assert words in told
