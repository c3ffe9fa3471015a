"""Kubeconfig files: merging, paths, in-cluster, and an error that names file, entry and reason."""

import base64
import os

import pytest
import yaml

from clusterops.kube import kubeconfig
from clusterops.kube.errors import ConfigError


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def document(**changes):
    base = {
        "current-context": "dev",
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": "https://10.0.0.1:6443/",
                    "certificate-authority-data": encoded("CA"),
                },
            }
        ],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [
            {"name": "dev", "context": {"cluster": "c", "user": "u", "namespace": "research"}}
        ],
    }
    return {**base, **changes}


def written(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def access_of(tmp_path, **changes):
    return kubeconfig.read([written(tmp_path / "config", document(**changes))]).access()


def test_a_context_comes_down_to_server_identity_and_namespace(tmp_path):
    access = access_of(tmp_path)
    assert access.server == "https://10.0.0.1:6443"
    assert (access.ca_pem, access.token, access.namespace) == ("CA", "secret", "research")
    assert (access.context, access.user) == ("dev", "u")
    assert "secret" not in repr(access)


def test_files_are_found_beside_the_kubeconfig_that_names_them(tmp_path):
    written(tmp_path / "pki/ca.crt", "CA of file")
    written(tmp_path / "pki/me.crt", "CERT")
    written(tmp_path / "pki/me.key", "KEY")
    access = access_of(
        tmp_path,
        clusters=[
            {
                "name": "c",
                "cluster": {
                    "server": "https://h",
                    "certificate-authority": "pki/ca.crt",
                    "tls-server-name": "other",
                    "insecure-skip-tls-verify": True,
                    "proxy-url": "http://proxy:3128",
                },
            }
        ],
        users=[
            {
                "name": "u",
                "user": {
                    "client-certificate": "pki/me.crt",
                    "client-key": "pki/me.key",
                    "tokenFile": "pki/token",
                },
            }
        ],
    )
    assert access.ca_pem == "CA of file"
    assert (access.client_certificate_pem, access.client_key_pem) == (b"CERT", b"KEY")
    assert access.token_file == tmp_path / "pki/token"
    assert (access.tls_server_name, access.proxy_url) == ("other", "http://proxy:3128")
    assert access.insecure_skip_tls_verify


def test_of_several_files_the_first_to_name_a_thing_wins(tmp_path):
    first = written(
        tmp_path / "one/config",
        {"users": [{"name": "u", "user": {"token": "of the first", "tokenFile": "t"}}]},
    )
    second = written(tmp_path / "two/config", document(**{"current-context": "dev"}))
    third = written(tmp_path / "three/config", document(**{"current-context": "other"}))
    merged = kubeconfig.read([first, second, third])
    assert merged.current_context == "dev"
    access = merged.access()
    assert access.token == "of the first"
    assert access.token_file == tmp_path / "one/t"
    assert access.server == "https://10.0.0.1:6443"


def test_default_files_follow_the_environment_then_the_home(tmp_path):
    one, two = written(tmp_path / "a", "{}"), written(tmp_path / "b", "{}")
    home = tmp_path / "home"
    paths = os.pathsep.join([str(one), "", str(tmp_path / "missing"), str(two)])
    assert kubeconfig.default_files({"KUBECONFIG": paths}, home) == [one, two]
    assert kubeconfig.default_files({}, home) == []
    default = written(home / ".kube/config", "{}")
    assert kubeconfig.default_files({}, home) == [default]
    assert kubeconfig.default_files({"KUBECONFIG": str(tmp_path / "missing")}, home) == []


def test_an_exec_plugin_is_read_with_its_environment(tmp_path):
    access = access_of(
        tmp_path,
        users=[
            {
                "name": "u",
                "user": {
                    "exec": {
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "command": "./bin/login",
                        "args": ["get-token", 7],
                        "env": [{"name": "PROFILE", "value": "x"}],
                        "installHint": "install login\n",
                        "interactiveMode": "Never",
                        "provideClusterInfo": True,
                    }
                },
            }
        ],
    )
    plugin = access.exec_plugin
    assert plugin.command == f"{tmp_path}/bin/login"
    assert plugin.args == ("get-token", "7")
    assert plugin.env == (("PROFILE", "x"),)
    assert plugin.install_hint == "install login"
    assert plugin.interactive_mode == "Never"
    assert plugin.cluster_info == {
        "server": "https://10.0.0.1:6443/",
        "certificate-authority-data": encoded("CA"),
    }


def user(**fields):
    return {"users": [{"name": "u", "user": fields}]}


def cluster(**fields):
    return {"clusters": [{"name": "c", "cluster": fields}]}


def context(**fields):
    return {"contexts": [{"name": "dev", "context": fields}]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"current-context": ""}, "no current-context is set; choose one of: dev"),
        ({"current-context": "deb"}, "no context is named 'deb'; did you mean 'dev'?"),
        ({"current-context": "prod"}, "no context is named 'prod'; there are: dev"),
        ({"current-context": 3}, "current-context must be a string, not 3"),
        ({"clusters": None}, "no cluster is named 'c'; there are: none"),
        ({"clusters": {"c": 1}}, "clusters must be a list, not dict"),
        ({"clusters": [{"cluster": {}}]}, "clusters[0] has no name"),
        ({"clusters": [{"name": "c", "cluster": []}], "users": [1]}, "users[0] has no name"),
        ({"users": []}, "no user is named 'u'"),
        (cluster(), "cluster 'c': server must be an http(s) URL, not None"),
        (cluster(server="ftp://x"), "server must be an http(s) URL, not 'ftp://x'"),
        (cluster(server=7), "cluster 'c': server must be a string, not int"),
        (
            cluster(server="https://x", **{"certificate-authority": "none.crt"}),
            "cluster 'c': certificate-authority cannot be read",
        ),
        (
            cluster(server="https://x", **{"certificate-authority-data": "a"}),
            "certificate-authority-data is no base64",
        ),
        (
            cluster(server="https://x", **{"insecure-skip-tls-verify": "yes"}),
            "insecure-skip-tls-verify must be true or false, not 'yes'",
        ),
        (context(user="u"), "context 'dev': names no cluster"),
        (user(token=["x"]), "user 'u': token must be a string, not list"),
        (
            user(**{"client-certificate-data": encoded("x")}),
            "client-certificate and client-key belong together",
        ),
        (user(exec={"apiVersion": "x"}), "user 'u': exec.command is missing"),
        (
            user(exec={"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}),
            "v1alpha1' is not supported; v1 and v1beta1 are",
        ),
        (user(exec=[]), "exec must be a mapping"),
        (
            user(
                exec={"command": "x", "apiVersion": "client.authentication.k8s.io/v1", "env": [1]}
            ),
            "exec.args or exec.env is malformed",
        ),
        (user(**{"auth-provider": {}}), "auth-provider has no name"),
    ],
)
def test_an_error_names_the_file_the_entry_and_the_reason(tmp_path, changes, message):
    with pytest.raises(ConfigError) as raised:
        access_of(tmp_path, **changes)
    assert message in str(raised.value)
    assert str(tmp_path / "config") in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [unclosed", "no YAML"),
        ("- a list", "no kubeconfig: the top is a list"),
        ("!!python/object/apply:os.system [echo]", "no YAML"),
        ("x" * (8 * 1024 * 1024 + 1), "too many for a kubeconfig"),
    ],
)
def test_a_file_that_is_no_kubeconfig_says_so(tmp_path, content, message):
    with pytest.raises(ConfigError, match=message):
        kubeconfig.read([written(tmp_path / "config", content)])


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        kubeconfig.read([tmp_path / "none"])


def test_names_from_a_file_cannot_write_to_the_terminal(tmp_path):
    with pytest.raises(ConfigError) as raised:
        access_of(tmp_path, **{"current-context": "\x1b[2Jx"})
    assert "\x1b" not in str(raised.value)
    assert "\\x1b" in str(raised.value)


def pod(tmp_path, **files):
    for name, content in files.items():
        written(tmp_path / name.replace("_", "."), content)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    return kubeconfig.in_cluster(environ, tmp_path)


def test_in_a_pod_the_service_account_is_used(tmp_path):
    access = pod(tmp_path, token="t", ca_crt="CA", namespace="ns\n")
    assert access.server == "https://[fd00::1]:443"
    assert access.token_file == tmp_path / "token"
    assert (access.ca_pem, access.namespace) == ("CA", "ns")


def test_outside_of_a_pod_there_is_no_in_cluster_access(tmp_path):
    assert kubeconfig.in_cluster({}, tmp_path) is None
    assert kubeconfig.in_cluster({"KUBERNETES_SERVICE_HOST": "h"}, tmp_path) is None


def test_a_pod_without_a_token_or_authority_says_so(tmp_path):
    with pytest.raises(ConfigError, match="automountServiceAccountToken"):
        pod(tmp_path / "a")
    with pytest.raises(ConfigError, match="the cluster's CA cannot be read"):
        pod(tmp_path / "b", token="t")
