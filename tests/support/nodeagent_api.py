"""Pods through the embedded API server, for tests of agents as processes."""

from typing import Any

from support.embedded import EmbeddedServer
from support.nodeagent_shim import until


class Pods:
    """The pods of one namespace on one server."""

    def __init__(self, server: EmbeddedServer, namespace: str) -> None:
        self.server = server
        self.namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def create(self, name: str, spec: dict[str, Any], node: str, **metadata: Any) -> dict[str, Any]:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **metadata},
            "spec": {"nodeName": node, **spec},
        }
        answer = self.server.request("POST", self.path, body)
        assert answer.status == 201, answer.content
        created: dict[str, Any] = answer.json
        return created

    def create_secret(self, name: str, **values: str) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/secrets"
        answer = self.server.request(
            "POST", path, {"metadata": {"name": name}, "stringData": values}
        )
        assert answer.status == 201, answer.content

    def get(self, name: str) -> dict[str, Any] | None:
        answer = self.server.request("GET", f"{self.path}/{name}")
        return answer.json if answer.status == 200 else None

    def delete(self, name: str, grace: int | None = None) -> None:
        query = "" if grace is None else f"?gracePeriodSeconds={grace}"
        answer = self.server.request("DELETE", f"{self.path}/{name}{query}")
        assert answer.status in (200, 202, 404), answer.content

    def log(self, name: str, query: str = "") -> str:
        answer = self.server.request("GET", f"{self.path}/{name}/log?{query}")
        assert answer.status == 200, answer.content
        return answer.content.decode()

    def phase(self, name: str) -> str:
        pod = self.get(name)
        return "" if pod is None else str((pod.get("status") or {}).get("phase", ""))

    def await_phase(self, name: str, wanted: str) -> dict[str, Any]:
        until(lambda: self.phase(name) == wanted, f"{name} being {wanted}")
        pod = self.get(name)
        assert pod is not None
        return pod

    def await_gone(self, name: str) -> None:
        until(lambda: self.get(name) is None, f"{name} being gone")
