"""A restart through Redfish: only over checked TLS, the right way, and nothing of the password in words."""

import base64
import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from support.operator_http import LoopbackService, Quiet
from support.operator_smtp import certificate

from clusterops.api.node_health import Rung
from clusterops.core.remediation_actions import Execute
from clusterops.operator import redfish
from clusterops.operator.nodes_executor import Programs

SYSTEM = {
    "Actions": {
        "#ComputerSystem.Reset": {
            "target": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset",
            "ResetType@Redfish.AllowableValues": ["On", "GracefulRestart", "ForceRestart"],
        }
    }
}


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("tls"))


class Bmc(LoopbackService):
    """A machine's service on loopback."""

    def __init__(self, tls, pages=None, status=202):
        self.posts, self.asked = [], []
        pages = pages if pages is not None else {
            "/redfish/v1/Systems": {"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]},
            "/redfish/v1/Systems/1": SYSTEM,
        }  # fmt: skip
        bmc = self

        class Answer(Quiet, BaseHTTPRequestHandler):
            def do_GET(self):
                bmc.asked.append(self.headers["Authorization"])
                known = self.path in pages
                self.send_response(200 if known else 404)
                self.end_headers()
                page = pages.get(self.path, "")
                self.wfile.write(page if isinstance(page, bytes) else json.dumps(page).encode())

            def do_POST(self):
                body = self.body()
                bmc.posts.append((self.path, json.loads(body)))
                self.send_response(status)
                self.end_headers()

        class Server(HTTPServer):
            def handle_error(self, *arguments):
                del arguments  # a client that does not trust us hangs up

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        self.server = Server(("127.0.0.1", 0), Answer)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.address = f"https://localhost:{self.server.server_port}"


@pytest.fixture
def arguments(tmp_path, tls):
    (tmp_path / "user").write_text("admin\n")
    (tmp_path / "password").write_text("s3cret-pass\n")

    def of(address, *more):
        files = [
            "--user-file",
            str(tmp_path / "user"),
            "--password-file",
            str(tmp_path / "password"),
        ]
        return ["--address", address, *files, "--ca-file", str(tls[0]), *more]

    return of


def test_the_only_system_is_restarted_in_the_hardest_way_that_it_offers(tls, arguments):
    with Bmc(tls) as bmc:
        assert redfish.main(arguments(bmc.address)) == 0
    target = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"
    assert bmc.posts == [(target, {"ResetType": "ForceRestart"})]
    assert set(bmc.asked) == {"Basic " + base64.b64encode(b"admin:s3cret-pass").decode()}


def test_a_named_system_is_the_one(tls, arguments):
    with Bmc(tls, {"/redfish/v1/Systems/node%2F7": SYSTEM}) as bmc:
        assert redfish.main(arguments(bmc.address, "--system", "node/7")) == 0
    assert len(bmc.posts) == 1


@pytest.mark.parametrize(
    ("pages", "words"),
    [
        ({}, "HTTP 404"),
        (
            {"/redfish/v1/Systems": {"Members": [{"@odata.id": "/a"}, {"@odata.id": "/b"}]}},
            "--system",
        ),
        ({"/redfish/v1/Systems": b"[" * 9000}, "0 systems"),
        ({"/redfish/v1/Systems": {"Members": [{"@odata.id": "/x"}]}, "/x": {}}, "no way"),
        (
            {
                "/redfish/v1/Systems": {"Members": [{"@odata.id": "/x"}]},
                "/x": {"Actions": {"#ComputerSystem.Reset": {"target": "https://elsewhere/"}}},
            },
            "no way",
        ),
        (
            {
                "/redfish/v1/Systems": {"Members": [{"@odata.id": "/x"}]},
                "/x": {
                    "Actions": {
                        "#ComputerSystem.Reset": {
                            "target": "/redfish/x",
                            "ResetType@Redfish.AllowableValues": ["On", "ForceOff"],
                        }
                    }
                },
            },
            "offers no restart",
        ),
    ],
)
def test_what_cannot_be_restarted_is_said_and_nothing_is_posted(
    tls, arguments, capsys, pages, words
):
    with Bmc(tls, pages) as bmc:
        assert redfish.main(arguments(bmc.address)) == 1
    told = capsys.readouterr().err
    assert words in told
    assert "s3cret-pass" not in told
    assert bmc.posts == []


def test_a_refusal_of_the_restart_has_failed(tls, arguments):
    with Bmc(tls, status=403) as bmc:
        assert redfish.main(arguments(bmc.address)) == 1


def test_a_service_that_is_not_who_it_should_be_gets_no_password(tls, arguments, tmp_path):
    (tmp_path / "other").mkdir()
    with Bmc(certificate(tmp_path / "other")) as bmc:
        assert redfish.main(arguments(bmc.address)) == 1
    assert bmc.asked == []


def test_plain_http_is_refused(arguments):
    assert redfish.main(arguments("http://localhost:1")) == 1


async def test_it_is_a_program_of_the_rung(tls, arguments):
    with Bmc(tls) as bmc:
        vector = [sys.executable, "-m", "clusterops.operator.redfish", *arguments(bmc.address)]
        programs = Programs({Rung.REBOOT_NODE: vector})
        order = Execute("k", Rung.REBOOT_NODE, "i", "b1", (), None)
        assert await programs.execute("n1", order, 60.0)
    assert len(bmc.posts) == 1
