"""`health nodes`, `incidents`, `tickets`, `stop` and `go` against the embedded API server."""

import json

import pytest
from support.embedded import EmbeddedServer

from clusterops.cli.main import main
from clusterops.operator.nodes import SWITCH_NAME

pytestmark = pytest.mark.embedded

HEALTHS = "/apis/clusterops.io/v1alpha1/nodehealths"
SWITCH = f"/api/v1/namespaces/default/configmaps/{SWITCH_NAME}"
INCIDENT = {
    "id": "xid-79-ab12",
    "verdict": "RebootNode",
    "openedAt": "2030-01-01T00:00:00Z",
    "gpus": ["GPU-1"],
    "message": "xid:79: \x1b[31mgone",
}


@pytest.fixture
def run(embedded_server: EmbeddedServer, capsys, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(embedded_server.kubeconfig))

    def run(*words):
        code = main(["health", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def ill(embedded_server: EmbeddedServer):
    remedy = {
        "incident": INCIDENT["id"],
        "rung": "hardware_ticket",
        "state": "Running",
        "ticket": "T-1",
    }
    body = {
        "apiVersion": "clusterops.io/v1alpha1", "kind": "NodeHealth",
        "metadata": {"name": "ill-1"}, "spec": {"remediation": remedy},
    }  # fmt: skip
    assert embedded_server.request("POST", HEALTHS, body).status == 201
    gpu = {"uuid": "GPU-1", "serial": "165", "verdict": "RebootNode"}
    status = {"verdict": "RebootNode", "gpus": [gpu], "incidents": [INCIDENT]}
    answer = embedded_server.request(
        "PATCH", f"{HEALTHS}/ill-1/status", {"status": status},
        headers={"Content-Type": "application/merge-patch+json"},
    )  # fmt: skip
    assert answer.status == 200, answer.content
    yield "ill-1"
    embedded_server.request("DELETE", f"{HEALTHS}/ill-1")


def test_a_node_its_incidents_and_its_ticket(run, ill):
    code, out, err = run("nodes", ill)
    assert code == 0
    assert "hardware_ticket" in out
    assert "T-1" in out
    assert "next: clusterops health tickets" in err
    code, out, err = run("incidents", ill)
    assert "RebootNode" in out
    assert "\x1b" not in out
    assert "next: clusterops health explain 79" in err
    code, out, err = run("tickets", ill)
    assert "165" in out
    assert f"next: clusterops health incidents {ill}" in err


def test_json_is_data_alone(run, ill):
    for command, field in (("nodes", "verdict"), ("incidents", "calls_for"), ("tickets", "ticket")):
        code, out, err = run(command, ill, "-o", "json")
        assert (code, err) == (0, "")
        (row,) = json.loads(out)
        assert row["node"] == ill
        assert row[field] in ("RebootNode", "T-1")


def test_a_node_without_a_daemon_is_not_found(run):
    code, out, err = run("nodes", "nobody-1")
    assert (code, out) == (3, "")
    assert "node nobody-1 has no health daemon" in err


def test_the_kill_switch_is_what_the_operator_looks_at(run, embedded_server: EmbeddedServer):
    assert run("stop")[0] == 0
    assert embedded_server.request("GET", SWITCH).json["data"] == {"stop": "true"}
    code, _, err = run("go")
    assert code == 0
    assert "health nodes" in err
    assert embedded_server.request("GET", SWITCH).json["data"] == {"stop": "false"}
    embedded_server.request("DELETE", SWITCH)
