"""NodeHealth as rows: what people and scripts are told, whoever wrote the texts."""

from datetime import UTC, datetime, timedelta

import pytest

from clusterops.api import names
from clusterops.cli import health_nodes, health_view

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def ago(seconds):
    return (NOW - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


INCIDENT = {
    "id": "xid-79-ab12",
    "verdict": "RebootNode",
    "openedAt": ago(600),
    "gpus": ["GPU-1"],
    "message": "xid:79: gone",
}
WATCHING = {"type": "Watching", "status": "True", "reason": "SourcesAnswer"}
NODE = {
    "spec": {"taints": [{"key": names.TAINT_HEALTH, "effect": "NoSchedule"}]},
    "status": {"capacity": {names.RESOURCE_GPU: "8"}},
}


def health(remediation=None, **status):
    known = {
        "verdict": "RebootNode", "since": ago(600), "heartbeatAt": ago(5), "message": "gone",
        "gpus": [{"uuid": "GPU-1", "serial": "165", "verdict": "RebootNode"}],
        "incidents": [INCIDENT], "conditions": [WATCHING],
    }  # fmt: skip
    spec = {"remediation": remediation} if remediation else {}
    return {"metadata": {"name": "n1"}, "spec": spec, "status": {**known, **status}}


DRAINING = {"incident": INCIDENT["id"], "rung": "reboot_node", "state": "Draining"}
AT_VENDOR = {**DRAINING, "rung": "hardware_ticket", "state": "Running", "ticket": "T-1"}


def test_a_node_under_repair_says_what_and_why():
    (row,) = health_view.node_rows([(health(DRAINING), NODE)], NOW)
    assert row == {
        "node": "n1", "verdict": "RebootNode", "since": "10m", "gpus": "7/8",
        "action": "reboot_node", "state": "Draining", "ticket": "", "watched": "yes",
        "why": "gone", "tainted": True,
    }  # fmt: skip


def test_what_is_over_is_no_action_any_more():
    (row,) = health_view.node_rows([(health({**AT_VENDOR, "state": "Done"}), None)], NOW)
    assert (row["action"], row["state"], row["ticket"], row["tainted"]) == ("", "", "", False)


@pytest.mark.parametrize(
    ("fields", "watched"),
    [
        ({"heartbeatAt": ago(health_view.STALE_SECONDS + 1)}, "silent"),
        ({"heartbeatAt": None}, "silent"),
        ({"heartbeatAt": "yesterday"}, "silent"),
        (
            {"conditions": [{"type": "Watching", "status": "False", "reason": "NoReader"}]},
            "NoReader",
        ),
        ({"conditions": []}, "partly"),
    ],
)
def test_whether_somebody_looks_is_told_apart_from_how_the_node_is(fields, watched):
    (row,) = health_view.node_rows([(health(**fields), NODE)], NOW)
    assert row["watched"] == watched


@pytest.mark.parametrize(
    ("objects", "command"),
    [
        ([health(AT_VENDOR)], "clusterops health tickets"),
        ([health(verdict="Healthy"), health(DRAINING)], "clusterops health incidents n1"),
        ([health(verdict="Healthy")], ""),
        ([], ""),
    ],
)
def test_the_next_command_is_the_next_question(objects, command):
    rows = health_view.node_rows([(each, None) for each in objects], NOW)
    assert health_view.next_command(rows) == command


def test_open_incidents_are_shown_and_ended_ones_when_asked_for():
    ended = {**INCIDENT, "id": "nvml-watch-cd", "closedAt": ago(60)}
    seen = [(health(incidents=[INCIDENT, ended]), None)]
    (row,) = health_view.incident_rows(seen, ended=False, now=NOW)
    assert (row["xid"], row["gpus"], row["opened"], row["ended"]) == (79, "GPU-1", "10m", "")
    both = health_view.incident_rows(seen, ended=True, now=NOW)
    assert [(row["xid"], row["ended"]) for row in both] == [(79, ""), (None, "60s")]


def test_a_ticket_names_the_board():
    (row,) = health_view.ticket_rows([(health(AT_VENDOR), None), (health(DRAINING), None)])
    assert row == {
        "node": "n1", "ticket": "T-1", "incident": "xid-79-ab12", "state": "Running",
        "gpus": "GPU-1", "serials": "165",
    }  # fmt: skip


def test_a_node_that_nobody_has_looked_at_yet_breaks_nothing():
    bare = {"metadata": {"name": "n1"}}
    (row,) = health_view.node_rows([(bare, None)], NOW)
    assert (row["verdict"], row["gpus"], row["watched"]) == ("Unknown", "0/0", "silent")
    assert health_view.incident_rows([(bare, None)], ended=True, now=NOW) == []
    assert health_view.ticket_rows([(bare, None)]) == []


def test_texts_of_others_cannot_drive_the_terminal(capsys):
    rows = health_view.node_rows([(health(message="\x1b[31mred\r\x00"), NODE)], NOW)
    health_nodes._show(rows, health_view.NODE_COLUMNS, health_nodes.Form.TABLE, "none")
    told = capsys.readouterr().out
    assert "red" in told
    assert not set("\x1b\r\x00") & set(told)
