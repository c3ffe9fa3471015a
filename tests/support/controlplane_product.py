"""What is ours, installed in a control plane under test as the documentation says, and its operator.

`kubectl apply -k manifests/overlays/default`, then the operator's own command line as a process, under
the service account of those manifests: what their roles do not grant it cannot do.
"""

import http.client
import os
import ssl
import subprocess
import sys
from pathlib import Path

from support.controlplane import ControlPlane
from support.controlplane_process import Program, free_ports

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
NAMESPACE = "clusterops-system"
ACCOUNT = "clusterops-operator"
SECRET = "clusterops-operator-identity"
AGENTS = "clusterops:agents"
"""The group that node agents of tests are in."""
CLIENT_SECONDS = 60.0


class Kubectl:
    """The real kubectl that belongs to a control plane, as one of its users."""

    def __init__(self, plane: ControlPlane, kubeconfig: Path | None = None) -> None:
        self._plane = plane
        self._kubeconfig = kubeconfig or plane.kubeconfig

    def __call__(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs it; a failure is an error unless `check` is False."""
        done = subprocess.run(
            [str(self._plane.binaries / "kubectl"), f"--kubeconfig={self._kubeconfig}", *words],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self._plane.folder),
                "KUBECACHEDIR": str(self._plane.folder / "kubectl-cache"),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CLIENT_SECONDS,
            check=False,
        )
        assert not check or done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done


class Product:
    """Our objects in a control plane, and one operator that works there."""

    def __init__(self, plane: ControlPlane, identity: str = "operator-a") -> None:
        self._plane = plane
        self._identity = identity
        (self.port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{self.port}"
        self.operator: Program | None = None

    def install(self) -> None:
        """Applies the manifests."""
        kubectl = Kubectl(self._plane)
        kubectl("apply", "--server-side", "-k", str(MANIFESTS / "overlays" / "default"))
        kubectl("apply", "--server-side", "-k", str(MANIFESTS / "queues"))
        kubectl(
            *("create", "clusterrolebinding", "node-agents"),
            *("--clusterrole=clusterops-node-agent", f"--group={AGENTS}"),
        )

    def start(self) -> None:
        """Starts the operator and waits until its endpoint answers. Raises NotReady."""
        if self.operator is None:
            self.operator = self._program()
        self.operator.start()
        self._plane.until_ready(self.operator, self.answers)

    def stop(self) -> None:
        """Ends the operator; what was applied stays."""
        if self.operator is not None:
            self.operator.stop()

    def answers(self) -> bool:
        """Whether the endpoint serves; its authority is its own, so nobody vouches for it here."""
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        asked = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=5, context=trusting)
        try:
            asked.request("GET", "/healthz")
            return asked.getresponse().status == http.HTTPStatus.OK
        finally:
            asked.close()

    def _program(self) -> Program:
        kubeconfig = self._plane.kubeconfig_of_account(NAMESPACE, ACCOUNT)
        command = [
            *(sys.executable, "-m", "clusterops.cli", "operator"),
            f"--kubeconfig={kubeconfig}",
            "--runtime=processes",
            *(f"--port={self.port}", f"--url={self.url}"),
            f"--identity-secret={SECRET}",
            f"--lease-namespace={NAMESPACE}",
            f"--identity={self._identity}",
        ]
        log_file = self._plane.folder / f"{self._identity}.log"
        return Program(self._identity, command, log_file, {"PYTHONPATH": str(ROOT)})
