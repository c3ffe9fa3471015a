"""A real Kubernetes control plane as processes on loopback: etcd, apiserver, controllers, scheduler.

    with ControlPlane(folder, built()) as plane:
        plane.kubeconfig                         # the administrator's
        plane.request("GET", "/api/v1/pods")
        plane.kubeconfig_of("ada", ("team-a",))  # for RBAC to judge

RBAC is on, so is the audit log, and certificates and ports are its own. Nothing survives `stop`, and
nothing survives the process that started it. What it has no word for is a kubelet: nodes are node
agents, or are played.
"""

import contextlib
import http.client
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.controlplane_pki import Authority, client_user, write_kubeconfig
from support.controlplane_process import Program, free_ports
from support.embedded import ApiRequests

START_SECONDS = 60.0
ADMINISTRATOR = "admin"
# Recorded as the server's own address and used by nobody: a machine without a network has none.
ADVERTISED = "192.0.2.1"
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
Json = dict[str, Any]


class NotReady(AssertionError):
    """A program of the control plane ended or did not get ready; the text has its last words."""


@dataclass(frozen=True)
class Options:
    """How a control plane differs from the usual one of tests."""

    durable: bool = False
    """etcd waits for the disk at every write; only benchmarks want that."""
    node_grace_seconds: int = 40
    """A node that was silent for so long is taken for lost."""
    audit: bool = True
    """Every request is written to a log; benchmarks do without."""
    controllers: bool = True
    """False: the API server alone, without controllers and scheduler."""


class ControlPlane(ApiRequests):
    """One control plane and its folder. Addresses and identities are there before it is started.

    A second one over the same folder, in whatever process, talks to the first one's server.
    """

    def __init__(self, folder: Path, binaries: Path, options: Options | None = None) -> None:
        """`binaries`: where `controlplane_build` has put the programs."""
        self.folder = folder
        self.binaries = binaries
        self.options = options or Options()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.authority = Authority(folder / "pki")
        self.certificates = self.authority.files
        self.audit_log = folder / "audit.log"
        address = self._address(folder / "address.json")
        self.token = address["token"]
        self.port, self._etcd_port, self._peer_port = address["ports"][:3]
        self._controllers_port, self._scheduler_port = address["ports"][3:]
        self.url = f"https://127.0.0.1:{self.port}"
        self.kubeconfig = self._kubeconfig("admin", {"token": self.token})
        self.programs: dict[str, Program] = {}
        for name, arguments in self._commands().items():
            self.programs[name] = self.program(name, arguments)

    @staticmethod
    def _address(file: Path) -> Json:
        """Ports and token: those that another process has already chosen for this folder, or new ones."""
        if not file.exists():
            file.touch(mode=0o600)
            file.write_text(json.dumps({"token": secrets.token_hex(16), "ports": free_ports(5)}))
        address: Json = json.loads(file.read_text())
        return address

    def program(
        self, name: str, arguments: list[str], environment: dict[str, str] | None = None
    ) -> Program:
        """One of the built programs, not started; its log lies in the folder."""
        command = [str(self.binaries / name), *arguments]
        return Program(name, command, self.folder / f"{name}.log", environment)

    def start(self) -> "ControlPlane":
        """Starts everything and waits until it is ready. Raises NotReady."""
        self.programs["etcd"].start()
        self.programs["kube-apiserver"].start()
        self.until_ready(
            self.programs["kube-apiserver"],
            lambda: self.request("GET", "/readyz").status == http.HTTPStatus.OK,
        )
        for name, port in self._ports().items():
            self.programs[name].start()
            del port
        for name, port in self._ports().items():
            self.until_ready(self.programs[name], lambda port=port: self.healthy(port))
        return self

    def stop(self) -> None:
        """Ends everything, the store last."""
        others = [one for name, one in self.programs.items() if name != "etcd"]
        for program in others:
            program.tell_to_stop()
        for program in others:
            program.wait()
        self.programs["etcd"].stop()

    def __enter__(self) -> "ControlPlane":
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kubeconfig_of(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """A kubeconfig with a client certificate of `user` in `groups`."""
        file_name = "-".join([user, *groups]).replace(":", "-")
        return self._kubeconfig(file_name, client_user(*self.authority.client(user, groups)))

    def kubeconfig_of_account(self, namespace: str, name: str, seconds: int = 86_400) -> Path:
        """A kubeconfig with a token that the API server issued to a service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        asked = {"spec": {"expirationSeconds": seconds}}
        issued = self.send("POST", path, asked)
        user = {"token": issued["status"]["token"]}
        return self._kubeconfig(f"account-{namespace}-{name}", user)

    # Talking to it as the administrator

    def send(self, method: str, path: str, body: Any = None, **more: Any) -> Json:
        """One request that must succeed; the object that it is answered with."""
        answer = self.request(method, path, body, **more)
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.content[:2000]!r}"
        found: Json = answer.json
        return found

    # Readiness

    def until_ready(self, program: Program, ready: Callable[[], bool]) -> None:
        """Asks until `ready`; errors of a server that is not there yet are no answer."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if ready():
                    return
            if not program.running:
                raise NotReady(f"{program.name} ended: {program.log()}")
            if time.monotonic() > deadline:
                raise NotReady(
                    f"{program.name} is not ready after {START_SECONDS:g} s: {program.log()}"
                )
            program.wait_at_most(0.03)

    def healthy(self, port: int, path: str = "/healthz") -> bool:
        """Whether a program that serves with this control plane's certificate says so of itself."""
        asked = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=self.tls())
        try:
            asked.request("GET", path)
            return asked.getresponse().status == http.HTTPStatus.OK
        finally:
            asked.close()

    # Command lines

    def _ports(self) -> dict[str, int]:
        if not self.options.controllers:
            return {}
        return {
            "kube-controller-manager": self._controllers_port,
            "kube-scheduler": self._scheduler_port,
        }

    def _commands(self) -> dict[str, list[str]]:
        commands = {"etcd": self._etcd(), "kube-apiserver": self._apiserver()}
        if self.options.controllers:
            commands["kube-controller-manager"] = self._controller_manager()
            commands["kube-scheduler"] = self._scheduler()
        return commands

    def _etcd(self) -> list[str]:
        client, peer = (f"http://127.0.0.1:{p}" for p in (self._etcd_port, self._peer_port))
        command = [
            f"--data-dir={self.folder / 'etcd'}",
            *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            f"--initial-cluster=default={peer}",
            "--log-level=warn",
        ]
        return command if self.options.durable else [*command, "--unsafe-no-fsync"]

    def _apiserver(self) -> list[str]:
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f"{self.token},{ADMINISTRATOR},{ADMINISTRATOR},system:masters\n")
        pki = self.certificates
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            *("--bind-address=127.0.0.1", f"--secure-port={self.port}"),
            *(f"--advertise-address={ADVERTISED}", "--endpoint-reconciler-type=none"),
            *(f"--tls-cert-file={pki.server}", f"--tls-private-key-file={pki.server_key}"),
            *(f"--client-ca-file={pki.authority}", f"--token-auth-file={tokens}"),
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki.service_account_key}",
            f"--service-account-signing-key-file={pki.service_account_key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            *(self._audit() if self.options.audit else []),
            "--allow-privileged=true",
            "--profiling=false",
        ]

    def _audit(self) -> list[str]:
        policy = self.folder / "audit-policy.json"
        policy.write_text(json.dumps(AUDIT_POLICY))
        return [f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"]

    def _controller_manager(self) -> list[str]:
        kubeconfig = self.kubeconfig_of("system:kube-controller-manager")
        return [
            *self._component(kubeconfig, self._controllers_port),
            f"--service-account-private-key-file={self.certificates.service_account_key}",
            f"--root-ca-file={self.certificates.authority}",
            "--use-service-account-credentials=true",
            f"--node-monitor-grace-period={self.options.node_grace_seconds}s",
            "--node-monitor-period=1s",
        ]

    def _scheduler(self) -> list[str]:
        return self._component(self.kubeconfig_of("system:kube-scheduler"), self._scheduler_port)

    def _component(self, kubeconfig: Path, port: int) -> list[str]:
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            *("--bind-address=127.0.0.1", f"--secure-port={port}"),
            f"--tls-cert-file={self.certificates.server}",
            f"--tls-private-key-file={self.certificates.server_key}",
            "--leader-elect=false",
            "--profiling=false",
        ]

    def _kubeconfig(self, name: str, user: dict[str, str]) -> Path:
        path = self.folder / f"{name}.kubeconfig"
        return write_kubeconfig(path, self.url, self.certificates.authority.read_bytes(), user)
