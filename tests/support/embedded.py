"""The embedded API server as a real process on a free loopback port, for tests and benchmarks.

    with EmbeddedServer(folder) as server:
        server.kubeconfig     # for kubectl and clients
        server.request("GET", "/api/v1/pods")

Run as a script it is that process.
"""

import contextlib
import datetime
import http.client
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_SECONDS = 30.0
STOP_SECONDS = 20.0
TOKEN = "test-token-" + secrets.token_hex(8)


@dataclass
class Answer:
    """What a request was answered with."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class ApiRequests:
    """Requests to an API server of loopback, as the owner of its token."""

    port: int
    token: str
    certificates: Any

    def tls(self) -> ssl.SSLContext:
        """A context that trusts this server only."""
        return ssl.create_default_context(cafile=self.certificates.authority)

    def connect(self, timeout_seconds: float = 30.0) -> http.client.HTTPSConnection:
        """A connection of one's own, for many requests."""
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=timeout_seconds, context=self.tls()
        )

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        connection: http.client.HTTPSConnection | None = None,
    ) -> Answer:
        """One request, on a connection of its own unless one is given."""
        used = connection or self.connect()
        try:
            content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            sent = {"Authorization": f"Bearer {self.token}", **(headers or {})}
            if content is not None:
                sent.setdefault("Content-Type", "application/json")
            used.request(method, path, body=content, headers=sent)
            answer = used.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            if connection is None:
                used.close()


class EmbeddedServer(ApiRequests):
    """One database folder and the server process that serves it, if one runs.

    `environment` is added to the process's; `crds` are handed in at the start (None: those that
    local mode serves).
    """

    def __init__(
        self,
        folder: Path,
        *,
        crds: list[dict[str, Any]] | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.environment = environment or {}
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        self.pod_logs = folder / "pod-logs"
        self.pod_logs.mkdir(exist_ok=True)
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.token = TOKEN
        self.log_file = folder / "server.log"
        self.kubeconfig = folder / "kubeconfig"
        self.process: subprocess.Popen[bytes] | None = None
        self._write_files(crds)

    def _write_files(self, crds: list[dict[str, Any]] | None) -> None:
        from clusterops.local.certificates import ensure
        from clusterops.local.credentials import write_kubeconfig

        pki = self.folder / "pki"
        pki.mkdir(exist_ok=True)
        self.certificates = ensure(pki, datetime.datetime.now(datetime.UTC))
        tokens = self.folder / "tokens.json"
        entry = {"user": "admin", "groups": ["system:masters"]}
        tokens.write_text(json.dumps({self.token: entry}))
        tokens.chmod(0o600)
        write_kubeconfig(
            self.kubeconfig,
            server=self.url,
            authority=self.certificates.authority,
            user="admin",
            token=self.token,
        )
        self._config = self.folder / "server.json"
        self._config.write_text(
            json.dumps(
                {
                    "database": str(self.folder / "clusterops.db"),
                    "port": self.port,
                    "tls_certificate": str(self.certificates.server),
                    "tls_key": str(self.certificates.server_key),
                    "tokens_file": str(tokens),
                    "pod_logs_dir": str(self.pod_logs),
                    "crds": crds,
                }
            )
        )

    def start(self, *, wait: bool = True) -> "EmbeddedServer":
        """Start the process; with `wait` until it answers."""
        root = Path(__file__).parents[2]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(self._config), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(root), **self.environment},
                start_new_session=True,
            )
        if wait:
            self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            assert self.process is not None
            assert self.process.poll() is None, f"the server ended: {self.log()}"
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.request("GET", "/readyz").status == 200:
                    return
            assert time.monotonic() < deadline, f"the server did not start: {self.log()}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.02)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def __enter__(self) -> "EmbeddedServer":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _main(config_file: str, parent: str) -> None:
    import ctypes
    import logging

    from clusterops.apiserver.serve import ServerConfig, run

    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG: die with the test
    if os.getppid() != int(parent):
        raise SystemExit("the test that started this server is gone")
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    config = json.loads(Path(config_file).read_text())
    crds = config.pop("crds")
    if crds is None:
        from clusterops.api.crd import embedded_crds

        crds = embedded_crds()
    paths = {name: value if name == "port" else Path(value) for name, value in config.items()}
    run(ServerConfig(**paths, crds=tuple(crds)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
