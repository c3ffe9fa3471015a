"""One embedded API server for all tests that only need one; those that kill it start their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.apiserver_kinds import widget_crd
from support.apiserver_kubectl import MISSING, Kubectl
from support.embedded import EmbeddedServer


@pytest.fixture(scope="session")
def embedded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A running server. Tests share it, so each uses a namespace of its own."""
    with EmbeddedServer(tmp_path_factory.mktemp("embedded")) as server:
        yield server


@pytest.fixture
def namespace(embedded_server: EmbeddedServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of this test's own, deleted afterwards."""
    answer = embedded_server.request(
        "POST", "/api/v1/namespaces", {"metadata": {"generateName": "test-"}}
    )
    name = answer.json["metadata"]["name"]
    yield name
    embedded_server.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def kubectl(embedded_server: EmbeddedServer, namespace: str, tmp_path: Path) -> Kubectl:
    """The real kubectl in this test's namespace."""
    if MISSING:
        pytest.skip("kubectl is not installed")
    return Kubectl(embedded_server, namespace, tmp_path)


@pytest.fixture(scope="session")
def widgets(embedded_server: EmbeddedServer) -> None:
    """Serves the kind `widgets`, which no other test deletes."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert embedded_server.request("POST", path, widget_crd()).status == 201
