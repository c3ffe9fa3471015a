"""manifests/health: accepted by the API server, apart in rights, and no right more than the daemon uses."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.embedded import EmbeddedServer
from support.health_kmsg import FakeKmsg

from clusterops.api import names
from clusterops.kube import connect
from clusterops.kube.client import Client
from health import shipped
from health.daemon import Daemon, DaemonConfig
from health.ledger import Ledger

pytestmark = pytest.mark.embedded

FOLDER = Path(__file__).resolve().parents[2] / "manifests" / "health"
LISTED = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
OBJECTS = {
    one["kind"]: one for file in LISTED for one in yaml.safe_load_all((FOLDER / file).read_text())
}
POD = OBJECTS["DaemonSet"]["spec"]["template"]["spec"]
READER, DAEMON = POD["containers"]


def test_every_file_is_listed():
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(LISTED) == files


def test_the_api_server_accepts_namespace_account_and_pods(embedded_server: EmbeddedServer):
    namespace = OBJECTS["Namespace"]["metadata"]["name"]
    places = {"Namespace": "/api/v1/namespaces"}
    places["ServiceAccount"] = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    for kind, place in places.items():
        answer = embedded_server.request("POST", f"{place}?fieldValidation=Strict", OBJECTS[kind])
        assert answer.status == 201, answer.content
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "health-x"},
        "spec": {**POD, "nodeName": "n1"},
    }
    place = f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict"
    answer = embedded_server.request("POST", place, pod)
    assert answer.status == 201, answer.content
    embedded_server.request("DELETE", f"/api/v1/namespaces/{namespace}")


def test_who_may_read_the_kernel_has_no_token_and_who_has_a_token_no_privileges():
    def mounts(container):
        return {mount["name"] for mount in container["volumeMounts"]}

    assert POD["automountServiceAccountToken"] is False
    assert READER["securityContext"]["privileged"] is True
    assert mounts(READER) == {"kmsg", "socket", "tracing"}
    assert mounts(DAEMON) == {"state", "socket", "token"}
    context = DAEMON["securityContext"]
    assert (context["runAsNonRoot"], context["allowPrivilegeEscalation"]) == (True, False)
    assert context["capabilities"] == {"drop": ["ALL"]}
    for container in (*POD["initContainers"], READER, DAEMON):
        assert "ports" not in container, "nobody can tell them anything"
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["resources"]["limits"]["memory"]


def test_its_command_lines_are_those_of_the_program():
    from clusterops.cli.main import main

    for container in (READER, DAEMON):
        program, *words = container["command"]
        assert program == "clusterops"
        known = {"--socket", "--ledger"}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known
        assert main([*words[:2], "--help"]) == 0


class Recording:
    """A transport that notes what was asked of which resource."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.asked: set[tuple[str, str, str]] = set()

    def _note(self, method: str, path: str, query: Mapping[str, str] | None) -> None:
        parts = path.strip("/").split("/")
        group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            rest = rest[2:]
        resource = "/".join([rest[0], *rest[2:3]])
        watched = (query or {}).get("watch") in ("true", "1")
        one = len(rest) > 1
        verb = {
            "GET": "watch" if watched else "get" if one else "list",
            "POST": "create",
            "PUT": "update",
            "PATCH": "patch",
            "DELETE": "delete",
        }[method]
        self.asked.add((group, resource, verb))

    async def request(self, method: str, path: str, **options: Any) -> Any:
        self._note(method, path, options.get("query"))
        return await self._transport.request(method, path, **options)

    @asynccontextmanager
    async def stream(self, path: str, **options: Any) -> AsyncIterator[Any]:
        self._note("GET", path, options.get("query"))
        async with self._transport.stream(path, **options) as pieces:
            yield pieces

    async def close(self) -> None:
        await self._transport.close()


async def test_the_roles_rules_are_what_the_daemon_uses_and_no_more(
    embedded_server: EmbeddedServer, tmp_path: Path
):
    kmsg = FakeKmsg(tmp_path / "kmsg")
    config = DaemonConfig("n-rights", tmp_path / "l.db", kmsg=kmsg.path, nvml=False, port=0)
    connection = connect.load(embedded_server.kubeconfig)
    transport = Recording(connection.transport)
    ledger = Ledger(config.ledger)
    stop = asyncio.Event()
    daemon = Daemon(config, shipped.policy(), ledger, Client(transport))
    running = asyncio.create_task(daemon.run(stop, None))
    kmsg.say("NVRM: Xid (PCI:0000:1b:00): 79, pid=7, name=python, GPU has fallen off the bus.")
    ruled = {
        (group, resource, verb)
        for rule in OBJECTS["ClusterRole"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    try:
        async with asyncio.timeout(60):
            while transport.asked != ruled or not daemon.publisher.writes:
                assert not running.done(), await running
                assert transport.asked <= ruled, transport.asked - ruled
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await asyncio.Event().wait()
    except TimeoutError:
        pytest.fail(f"never used: {ruled - transport.asked}")
    finally:
        stop.set()
        await running
        ledger.close()
        await Client(connection.transport).delete(names.NODE_HEALTHS, None, "n-rights")
        await connection.close()


def test_the_installed_package_brings_them():
    """They are packed by the rule that packs every manifest."""
    import tomllib

    root = FOLDER.parents[1]
    packed = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert packed["targets"]["wheel"]["force-include"] == {"manifests": "clusterops/_manifests"}
    assert os.access(FOLDER / "daemon-set.yaml", os.R_OK)
