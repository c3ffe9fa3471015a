"""A container's environment: what the pod declares, in its order, and nothing of the agent's."""

import base64

import pytest

from clusterops.nodeagent import environment
from clusterops.nodeagent.downward import ConfigError, Surroundings
from clusterops.nodeagent.environment import References, expand

AROUND = Surroundings("node-a", "10.0.0.7", {"cpu": "8", "memory": "16Gi"})


def encoded(**values: str) -> dict:
    return {"data": {key: base64.b64encode(text.encode()).decode() for key, text in values.items()}}


def pod(container: dict) -> dict:
    return {
        "metadata": {
            "name": "job-1-0",
            "namespace": "research",
            "uid": "u1",
            "labels": {"clusterops.io/rank": "3"},
            "annotations": {"note": "x"},
        },
        "spec": {"containers": [container], "nodeName": "node-a"},
    }


def declared(container: dict, objects: dict | None = None) -> dict:
    container = {"name": "main", **container}
    return environment.declared(pod(container), container, References(objects or {}), AROUND)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)z", "x1y2z"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("cost: $", "cost: $"),
        ("$$", "$"),
        ("$()", "$()"),
        ("$(A)$(A)", "11"),
    ],
)
def test_variables_expand_as_in_kubernetes(text, result) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == result


def test_later_variables_use_earlier_ones_only() -> None:
    found = declared(
        {
            "env": [
                {"name": "EARLY", "value": "$(LATE)"},
                {"name": "LATE", "value": "x"},
                {"name": "BOTH", "value": "$(EARLY)-$(LATE)"},
            ]
        }
    )
    assert found == {"EARLY": "$(LATE)", "LATE": "x", "BOTH": "$(LATE)-x"}


def test_env_wins_over_env_from_and_prefixes_apply() -> None:
    objects = {
        ("ConfigMap", "settings"): {"data": {"LR": "0.1", "EPOCHS": "3", "bad=key": "x"}},
        ("Secret", "keys"): encoded(TOKEN="s3cret"),
    }
    found = declared(
        {
            "envFrom": [
                {"configMapRef": {"name": "settings"}},
                {"secretRef": {"name": "keys"}, "prefix": "MY_"},
            ],
            "env": [{"name": "LR", "value": "0.2"}],
        },
        objects,
    )
    assert found == {"LR": "0.2", "EPOCHS": "3", "MY_TOKEN": "s3cret"}


def test_keys_of_secrets_and_config_maps() -> None:
    objects = {
        ("ConfigMap", "settings"): {"data": {"lr": "0.1"}},
        ("Secret", "keys"): encoded(token="s3cret"),
    }
    env = [
        {"name": "LR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "lr"}}},
        {"name": "T", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        {
            "name": "ABSENT",
            "valueFrom": {"secretKeyRef": {"name": "keys", "key": "no", "optional": True}},
        },
        {
            "name": "ABSENT_TOO",
            "valueFrom": {"secretKeyRef": {"name": "none", "key": "no", "optional": True}},
        },
    ]
    assert declared({"env": env}, objects) == {"LR": "0.1", "T": "s3cret"}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"secretKeyRef": {"name": "gone", "key": "k"}}, "secret 'gone' not found"),
        ({"secretKeyRef": {"name": "keys", "key": "k"}}, "couldn't find key 'k' in secret 'keys'"),
        ({"configMapKeyRef": {"name": "gone", "key": "k"}}, "configmap 'gone' not found"),
        ({"fieldRef": {"fieldPath": "spec.hostname"}}, "spec.hostname"),
        ({"resourceFieldRef": {"resource": "memory"}}, "must begin with limits"),
        ({"secretKeyRef": {"name": "binary", "key": "b"}}, "is not text"),
        ({"secretKeyRef": {"name": "broken", "key": "b"}}, "is not base64"),
        ({"other": {}}, "names no source"),
    ],
)
def test_what_is_missing_is_named(reference, message) -> None:
    objects = {
        ("Secret", "keys"): encoded(token="x"),
        ("Secret", "binary"): {"data": {"b": base64.b64encode(b"\xff\xfe").decode()}},
        ("Secret", "broken"): {"data": {"b": "%%%"}},
    }
    with pytest.raises(ConfigError, match=message):
        declared({"env": [{"name": "X", "valueFrom": reference}]}, objects)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "job-1-0"),
        ("metadata.namespace", "research"),
        ("metadata.uid", "u1"),
        ("metadata.labels['clusterops.io/rank']", "3"),
        ("metadata.annotations['note']", "x"),
        ("metadata.annotations['none']", ""),
        ("spec.nodeName", "node-a"),
        ("spec.serviceAccountName", "default"),
        ("status.hostIP", "10.0.0.7"),
        ("status.podIP", "10.0.0.7"),
    ],
)
def test_the_downward_api(path, value) -> None:
    env = [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]
    assert declared({"env": env}) == {"X": value}


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("limits.cpu", None, "2"),  # 1500m, rounded up
        ("limits.cpu", "1m", "1500"),
        ("requests.memory", "1Mi", "512"),
        ("limits.memory", "1Gi", "16"),  # not limited: what the node has
        ("limits.memory", "0", str(16 * 1024**3)),
        ("requests.ephemeral-storage", None, "0"),
    ],
)
def test_resources_in_divisors(resource, divisor, value) -> None:
    reference = {"resource": resource}
    if divisor is not None:
        reference["divisor"] = divisor
    container = {
        "resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "512Mi"}},
        "env": [{"name": "X", "valueFrom": {"resourceFieldRef": reference}}],
    }
    assert declared(container) == {"X": value}


def test_the_base_takes_three_variables_of_the_agent_and_no_more(tmp_path) -> None:
    agent = {"PATH": "/usr/bin", "HOME": "/home/ada", "LANG": "de_DE.UTF-8", "SECRET": "x"}
    found = environment.base(agent, tmp=tmp_path, prefix="/venv", base_prefix="/usr")
    assert found == {
        "PATH": "/venv/bin:/usr/bin",
        "HOME": "/home/ada",
        "LANG": "de_DE.UTF-8",
        "TMPDIR": str(tmp_path),
        "VIRTUAL_ENV": "/venv",
    }


def test_the_base_without_a_virtual_environment(tmp_path) -> None:
    found = environment.base({}, tmp=tmp_path, prefix="/usr", base_prefix="/usr")
    assert "VIRTUAL_ENV" not in found
    assert found["HOME"] == "/"
    assert found["LANG"] == "C.UTF-8"
