"""A real API server for the modules that need one, each with one of its own, and a client of it."""

import pytest
from support.embedded import EmbeddedServer

from clusterops.kube import connect


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with EmbeddedServer(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
async def client(server):
    connection = connect.load(server.kubeconfig)
    yield connection.client()
    await connection.close()
