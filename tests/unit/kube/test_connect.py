"""Finding the cluster: order of the places, choice of the transport, warnings, errors."""

import logging
import subprocess
import sys

import pytest
import yaml
from support.kube_cluster import FakeCluster
from support.kube_http import FakeHttpServer

from clusterops.kube import connect
from clusterops.kube.errors import ConfigError
from clusterops.kube.light import LightTransport


def config(path, server="https://127.0.0.1:6443", user=None, **cluster):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "x",
                "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
                "users": [{"name": "u", "user": user or {"token": "t"}}],
                "contexts": [
                    {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ns"}},
                    {"name": "y", "context": {"cluster": "c", "user": "u"}},
                ],
            }
        )
    )
    return path


def test_an_explicit_file_comes_before_the_environment_and_that_before_the_home(tmp_path):
    explicit = config(tmp_path / "explicit", "https://explicit")
    named = config(tmp_path / "named", "https://named")
    config(tmp_path / ".kube/config", "https://home")
    environ = {"HOME": str(tmp_path), "KUBECONFIG": str(named)}
    assert connect.load(explicit, environ=environ).server == "https://explicit"
    assert connect.load(environ=environ).server == "https://named"
    del environ["KUBECONFIG"]
    connection = connect.load(environ=environ)
    assert connection.server == "https://home"
    assert (connection.namespace, connection.user) == ("ns", "u")
    assert isinstance(connection.transport, LightTransport)


def test_context_and_namespace_can_be_named(tmp_path):
    path = config(tmp_path / "c")
    assert connect.load(path, context="y").namespace == "default"
    assert connect.load(path, context="y", namespace="other").namespace == "other"
    with pytest.raises(ConfigError, match="no context is named 'z'"):
        connect.load(path, context="z")


def test_no_cluster_anywhere_says_where_was_looked(tmp_path):
    with pytest.raises(ConfigError, match=r"~/\.kube/config does not exist and this is not a pod"):
        connect.load(environ={"HOME": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"\$KUBECONFIG \(/none\) does not exist"):
        connect.load(environ={"HOME": str(tmp_path), "KUBECONFIG": "/none"})


def test_unverified_tls_is_said_loudly(tmp_path, caplog):
    path = config(tmp_path / "c", **{"insecure-skip-tls-verify": True})
    with caplog.at_level(logging.WARNING):
        connect.load(path)
    assert "NOT verified" in caplog.text
    assert "https://127.0.0.1:6443" in caplog.text


def test_a_token_never_goes_over_plain_http_to_another_machine(tmp_path):
    with pytest.raises(ConfigError, match="in the clear"):
        connect.load(config(tmp_path / "c", "http://10.0.0.1:8080"))
    assert connect.load(config(tmp_path / "d", "http://localhost:8080")).server


def test_what_only_the_official_client_can_do_uses_it(tmp_path):
    oidc = {"auth-provider": {"name": "oidc", "config": {}}}
    assert _kind(connect.load(config(tmp_path / "a", user=oidc))) == "OfficialTransport"
    proxied = config(tmp_path / "b", **{"proxy-url": "http://p:1"})
    assert _kind(connect.load(proxied)) == "OfficialTransport"
    assert _kind(connect.load(config(tmp_path / "c"), official=True)) == "OfficialTransport"


def test_without_the_official_client_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "clusterops.kube.official", raising=False)
    with pytest.raises(ConfigError, match=r"clusterops\[cluster\]"):
        connect.load(config(tmp_path / "c"), official=True)


async def test_a_connection_works_from_end_to_end(tmp_path):
    async with FakeHttpServer(FakeCluster(), tokens={"t"}) as server:
        connection = connect.load(config(tmp_path / "c", server.url))
        try:
            assert await connection.client().raw_get("/apis/example.org/v1/widgets")
        finally:
            await connection.close()


def test_connecting_loads_neither_pydantic_nor_the_official_client():
    program = (
        "import sys; import clusterops.kube.connect, clusterops.kube.lease, "
        "clusterops.kube.controller, clusterops.kube.events; "
        "print([m for m in ('pydantic', 'kubernetes', 'aiohttp', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def _kind(connection):
    return type(connection.transport).__name__
