"""A small operator: a real HTTPS server that takes heartbeats and answers what a test tells it to."""

import datetime
import ipaddress
import json
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from clusterops.api import names

TOKEN = "a token"


class Operator:
    """`reports` are the bodies that arrived. `answer` may be replaced at any time: it gets a report
    and returns (status, body, headers).
    """

    def __init__(self, folder: Path) -> None:
        self.reports: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        self.answer: Callable[[dict[str, Any]], tuple[int, dict[str, Any], dict[str, str]]] = calm
        self._arrived = threading.Condition()
        self.ca_file = folder / "ca.crt"
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN + "\n")
        key_file = folder / "server.key"
        _make_certificate(self.ca_file, key_file)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca_file, key_file)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def environment(self, *, attempt: int = 1, rank: int = 0) -> dict[str, str]:
        """What a job's process would see."""
        return {
            names.ENV_AGENT_URL: self.url,
            names.ENV_AGENT_TOKEN_FILE: str(self.token_file),
            names.ENV_AGENT_CA_FILE: str(self.ca_file),
            names.ENV_NAMESPACE: "research",
            names.ENV_JOB: "llm",
            names.ENV_JOB_UID: "uid-1",
            names.ENV_ATTEMPT: str(attempt),
            names.ENV_RANK: str(rank),
        }

    def took(self, body: dict[str, Any], token: str) -> None:
        with self._arrived:
            self.reports.append(body)
            self.tokens.append(token)
            self._arrived.notify_all()

    def wait_for(self, what: Callable[[dict[str, Any]], bool], seconds: float = 30.0) -> None:
        """Waits until a report arrives (or has arrived) that `what` accepts."""
        deadline = time.monotonic() + seconds
        with self._arrived:
            while not any(what(report) for report in self.reports):
                left = deadline - time.monotonic()
                assert left > 0, f"no such report among {len(self.reports)}: {self.reports[-3:]}"
                self._arrived.wait(left)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def calm(report: dict[str, Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Nothing is wanted; come again soon."""
    return 200, {"intervalSeconds": 0.1, "save": None, "aFieldOfTomorrow": 1}, {}


def asking(
    *, then_exit: bool, identity: str = "r1", reason: str = "preempted by urgent"
) -> Callable[[dict[str, Any]], tuple[int, dict[str, Any], dict[str, str]]]:
    """An answer that asks for a save."""

    def answer(report: dict[str, Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
        save = {
            "id": identity,
            "reason": reason,
            "remainingSeconds": 20.0,
            "thenExit": then_exit,
        }
        return 200, {"intervalSeconds": 0.1, "save": save}, {}

    return answer


def _handler_of(operator: Operator) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/heartbeat"
            operator.took(body, self.headers["Authorization"])
            status, answer, headers = operator.answer(body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            pass

    return Handler


def _make_certificate(certificate_file: Path, key_file: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "operator under test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
