"""The real Kueue beside a control plane under test, installed from its own manifests of that version.

It runs under its own service account and with its shipped configuration; what differs is where it
listens, since there are no Services here, and that it needs no election. Certificates come from its
own rotation, which finds a valid Secret and puts the authority into CRDs and webhooks by itself.
"""

import base64
import http.client
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import yaml
from support.controlplane import ControlPlane
from support.controlplane_process import free_ports

Json = dict[str, Any]
NAMESPACE = "kueue-system"
ACCOUNT = "kueue-controller-manager"
SECRET = "kueue-webhook-server-cert"
CONFIGURATION = "controller_manager_config.yaml"
KUEUE_APIS = ("/apis/kueue.x-k8s.io/v1beta2", "/apis/kueue.x-k8s.io/v1beta1")
# Kinds that make no sense without a kubelet and a network.
LEFT_OUT = ("Deployment", "Service", "APIService")
# Kinds that others refer to, in the order in which they are created; all else comes after them.
FIRST = ("Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role")
LAST = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
PARALLEL_WRITES = 8

PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Secret": "/api/v1/namespaces/{namespace}/secrets",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "MutatingWebhookConfiguration": (
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    ),
    "ValidatingWebhookConfiguration": (
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    ),
}


@dataclass(frozen=True)
class KueueOptions:
    """How a Kueue differs from the one that is shipped."""

    gates: Mapping[str, bool] = field(default_factory=lambda: {"PriorityBoost": True})
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its configuration that replace the shipped ones, such as waitForPodsReady."""


class Kueue:
    """One Kueue and its control plane's objects of it."""

    def __init__(self, plane: ControlPlane, options: KueueOptions | None = None) -> None:
        self._plane = plane
        self._options = options or KueueOptions()
        self._webhook_port, self._health_port = free_ports(2)
        rendered = (plane.binaries / "kueue.yaml").read_text()
        self._objects: list[Json] = [
            one for one in yaml.load_all(rendered, yaml.CSafeLoader) if one
        ]
        folder = plane.folder / "kueue"
        self._certificates = folder / "certificates"
        self._certificates.mkdir(parents=True, exist_ok=True)
        self._config_file = folder / "configuration.json"
        self._arguments: list[str] = []
        self._configure(self._options)
        self.program = plane.program("kueue", self._arguments)

    def restart_with(self, options: KueueOptions) -> None:
        """Ends it and starts it anew with other options. Raises NotReady."""
        self.stop()
        self._configure(options)
        self.start()

    def _configure(self, options: KueueOptions) -> None:
        self._config_file.write_text(json.dumps(self._configuration(options)))
        gates = {"VisibilityOnDemand": False, **options.gates}
        self._arguments = [
            f"--config={self._config_file}",
            f"--feature-gates={','.join(f'{k}={str(v).lower()}' for k, v in gates.items())}",
            "--zap-log-level=3",
        ]

    def install(self) -> None:
        """Creates its CRDs, rights, certificates and webhooks. Once in the life of a control plane."""
        wanted = [one for one in self._objects if one["kind"] not in LEFT_OUT]
        secret = next(one for one in wanted if one["kind"] == "Secret")
        secret["data"] = self._secret()
        with ThreadPoolExecutor(PARALLEL_WRITES) as pool:
            for kind in FIRST:
                list(pool.map(self._create, [one for one in wanted if one["kind"] == kind]))
            rest = [one for one in wanted if one["kind"] not in (*FIRST, *LAST)]
            list(pool.map(self._create, rest))
            list(pool.map(self._create, [one for one in wanted if one["kind"] in LAST]))
        self._plane.until_ready(self._plane.programs["kube-apiserver"], self._served)

    def start(self) -> None:
        """Starts it and waits until its webhooks answer. Raises NotReady."""
        kubeconfig = self._plane.kubeconfig_of_account(NAMESPACE, ACCOUNT)
        self.program = self._plane.program(
            "kueue", self._arguments, {"KUBECONFIG": str(kubeconfig)}
        )
        self._plane.programs["kueue"] = self.program
        self.program.start()
        self._plane.until_ready(self.program, lambda: self._healthy() and self._admits())

    def stop(self) -> None:
        """Ends it; what it has installed stays, webhooks included."""
        self.program.stop()

    def _create(self, obj: Json) -> None:
        metadata = obj["metadata"]
        _point_to(obj, f"https://127.0.0.1:{self._webhook_port}")
        path = PATHS[obj["kind"]].format(namespace=metadata.get("namespace"))
        self._plane.send("POST", path, obj)

    def _served(self) -> bool:
        """Whether every kind can be asked for: a CRD is there some time before its kind is."""
        plurals = {
            one["spec"]["names"]["plural"]
            for one in self._objects
            if one["kind"] == "CustomResourceDefinition"
        }
        found: set[str] = set()
        for path in KUEUE_APIS:
            answer = self._plane.request("GET", path)
            if answer.status == http.HTTPStatus.OK:
                found.update(one["name"] for one in answer.json["resources"])
        return plurals <= found

    def _healthy(self) -> bool:
        asked = http.client.HTTPConnection("127.0.0.1", self._health_port, timeout=5)
        try:
            asked.request("GET", "/readyz")
            return asked.getresponse().status == http.HTTPStatus.OK
        finally:
            asked.close()

    def _admits(self) -> bool:
        """Whether a write goes through webhook and conversion."""
        flavor = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ResourceFlavor",
            "metadata": {"name": "probe"},
        }
        path = f"{KUEUE_APIS[0]}/resourceflavors?dryRun=All"
        created = self._plane.request("POST", path, flavor).status
        listed = self._plane.request("GET", f"{KUEUE_APIS[1]}/workloads").status
        return (created, listed) == (http.HTTPStatus.CREATED, http.HTTPStatus.OK)

    def _configuration(self, options: KueueOptions) -> Json:
        shipped = next(
            one for one in self._objects
            if one["kind"] == "ConfigMap" and CONFIGURATION in (one.get("data") or {})
        )  # fmt: skip
        configuration: Json = yaml.safe_load(shipped["data"][CONFIGURATION])
        configuration.update(
            namespace=NAMESPACE,
            health={"healthProbeBindAddress": f"127.0.0.1:{self._health_port}"},
            metrics={"bindAddress": "0"},
            webhook={
                "host": "127.0.0.1",
                "port": self._webhook_port,
                "certDir": str(self._certificates),
            },
            leaderElection={"leaderElect": False},
        )
        configuration.update(options.settings)
        return configuration

    def _secret(self) -> dict[str, str]:
        """The Secret's content, which is also put where a kubelet would mount it."""
        pki = self._plane.certificates
        files = {
            "ca.crt": pki.authority,
            "ca.key": pki.authority_key,
            "tls.crt": pki.server,
            "tls.key": pki.server_key,
        }
        content = {name: path.read_bytes() for name, path in files.items()}
        for name, read in content.items():
            mounted = self._certificates / name
            mounted.touch(mode=0o600)
            mounted.write_bytes(read)
        return {name: base64.b64encode(read).decode() for name, read in content.items()}


def _point_to(obj: Json, server: str) -> None:
    """Webhooks are reached by address instead of by Service; who vouches for them is filled in later."""
    if obj["kind"] == "CustomResourceDefinition":
        webhook = (obj["spec"].get("conversion") or {}).get("webhook")
        configs = [webhook["clientConfig"]] if webhook else []
    else:
        configs = [hook["clientConfig"] for hook in obj.get("webhooks") or ()]
    for config in configs:
        service = config.pop("service", None)
        if service is not None:
            config["url"] = server + service.get("path", "/convert")


def install_kueue(plane: ControlPlane, options: KueueOptions | None = None) -> Kueue:
    """Installs Kueue in a running control plane and starts it."""
    kueue = Kueue(plane, options)
    kueue.install()
    kueue.start()
    return kueue
