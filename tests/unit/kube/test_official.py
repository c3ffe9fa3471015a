"""Logins that only the official client knows: OIDC tokens, their refresh, and its verified TLS."""

import base64
import json
import time

import pytest
import yaml
from support.kube_cluster import Answer, FakeCluster
from support.kube_http import FakeHttpServer

from clusterops.kube import connect
from clusterops.kube.errors import ConfigError

PATH = "/apis/example.org/v1/widgets"


def jwt(name, lives_seconds):
    expires = int(time.time()) + lives_seconds
    parts = [{"alg": "none"}, {"name": name, "exp": expires}]
    coded = [base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts]
    return ".".join([*coded, "signature"])


def kubeconfig(path, server_url, **provider):
    config = {"client-id": "me", "client-secret": "shh", **provider}
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "x",
                "clusters": [{"name": "c", "cluster": {"server": server_url}}],
                "users": [
                    {"name": "u", "user": {"auth-provider": {"name": "oidc", "config": config}}}
                ],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    return path


def issuer_of(authority, *tokens):
    issuer = FakeHttpServer(FakeCluster(), authority.server_context())
    for token in tokens:
        issuer.script.append(lambda: Answer(200, {"token_endpoint": f"{issuer.url}/token"}))
        issuer.script.append(Answer(200, token))
    return issuer


async def listed(path):
    connection = connect.load(path)
    try:
        return await connection.client().raw_get(PATH)
    finally:
        await connection.close()


async def test_a_valid_id_token_is_used_as_it_is(tmp_path):
    token = jwt("alice", 3600)
    async with FakeHttpServer(FakeCluster(), tokens={token}) as server:
        assert await listed(kubeconfig(tmp_path / "c", server.url, **{"id-token": token}))


async def test_an_expired_token_is_refreshed_and_the_new_one_written_back(tmp_path, authority):
    old, new = jwt("alice", -60), jwt("alice", 3600)
    issuer = issuer_of(authority, {"id_token": new, "refresh_token": "second"})
    async with issuer, FakeHttpServer(FakeCluster(), tokens={new}) as server:
        path = kubeconfig(
            tmp_path / "c",
            server.url,
            **{
                "id-token": old,
                "refresh-token": "first",
                "idp-issuer-url": issuer.url,
                "idp-certificate-authority-data": base64.b64encode(authority.pem.encode()).decode(),
            },
        )
        assert await listed(path)
        assert b"refresh_token=first" in issuer.seen[1].body
        stored = yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]
        assert (stored["id-token"], stored["refresh-token"]) == (new, "second")


async def test_an_issuer_whose_certificate_is_not_trusted_never_sees_the_refresh_token(
    tmp_path, authority
):
    issuer = issuer_of(authority, {"id_token": jwt("alice", 3600), "refresh_token": "second"})
    async with issuer, FakeHttpServer(FakeCluster()) as server:
        path = kubeconfig(
            tmp_path / "c",
            server.url,
            **{"refresh-token": "first", "idp-issuer-url": issuer.url},
        )
        with pytest.raises(ConfigError, match=r"user 'u' cannot log in by auth-provider 'oidc'"):
            await listed(path)
    assert issuer.seen == []


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        ({"id-token": jwt("a", -60)}, "refresh-token is not set"),
        ({"id-token": jwt("a", -60), "refresh-token": "r"}, "idp-issuer-url is not set"),
        ({"id-token": "no jwt"}, "3 period-delimited parts"),
    ],
)
async def test_a_login_that_cannot_work_says_what_is_missing(tmp_path, provider, message):
    async with FakeHttpServer(FakeCluster()) as server:
        with pytest.raises(ConfigError, match=message):
            await listed(kubeconfig(tmp_path / "c", server.url, **provider))
        assert server.seen == []
