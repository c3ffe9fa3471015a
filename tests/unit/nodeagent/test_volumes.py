"""Where volumes lie, what they hold, and how a container's paths lead there."""

import base64
from pathlib import Path, PurePosixPath

import pytest

from clusterops.nodeagent import volumes
from clusterops.nodeagent.downward import ConfigError, Surroundings
from clusterops.nodeagent.environment import References
from clusterops.nodeagent.volumes import File, Mounts, Places, Unsupported

AROUND = Surroundings("node-a", "127.0.0.1", {"cpu": "4"})
PLACES = Places(Path("/state/pods/u1/volumes"), Path("/claims"))


def pod(*found: dict, **container: object) -> dict:
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u1", "labels": {"b": "2", "a": '"1"'}},
        "spec": {"volumes": list(found), "containers": [{"name": "main", **container}]},
    }


def plan(volume: dict, objects: dict | None = None, places: Places = PLACES) -> volumes.Volume:
    [planned] = volumes.plan(pod(volume), References(objects or {}), places, AROUND)
    return planned


SECRET = {"data": {"token": base64.b64encode(b"s3cret").decode(), "ca.crt": ""}}


def test_where_each_kind_lies() -> None:
    assert plan({"name": "scratch", "emptyDir": {}}).path == PLACES.pod_volumes / "scratch"
    claim = {"name": "c", "persistentVolumeClaim": {"claimName": "checkpoints"}}
    assert plan(claim).path == Path("/claims/ns/checkpoints")
    assert plan({"name": "h", "hostPath": {"path": "/data"}}).path == Path("/data")


def test_secrets_are_their_owners_alone() -> None:
    volume = {"name": "s", "secret": {"secretName": "keys", "defaultMode": 0o644}}
    assert plan(volume, {("Secret", "keys"): SECRET}).files == (
        File(PurePosixPath("ca.crt"), b"", 0o600),
        File(PurePosixPath("token"), b"s3cret", 0o600),
    )


def test_items_choose_keys_paths_and_modes() -> None:
    config = {"data": {"a": "1", "b": "2"}, "binaryData": {"c": base64.b64encode(b"\0").decode()}}
    items = [{"key": "b", "path": "deep/er.txt", "mode": 0o755}, {"key": "c", "path": "c"}]
    volume = {"name": "s", "configMap": {"name": "cm", "items": items}}
    assert plan(volume, {("ConfigMap", "cm"): config}).files == (
        File(PurePosixPath("deep/er.txt"), b"2", 0o755),
        File(PurePosixPath("c"), b"\0", 0o644),
    )


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"secret": {"secretName": "gone"}}, "secret 'gone' not found"),
        ({"secret": {"secretName": "keys", "items": [{"key": "no", "path": "x"}]}}, "key 'no'"),
        (
            {"secret": {"secretName": "keys", "items": [{"key": "token", "path": "../x"}]}},
            "leads outside",
        ),
        (
            {"secret": {"secretName": "keys", "items": [{"key": "token", "path": "/x"}]}},
            "leads outside",
        ),
    ],
)
def test_what_may_come_later_is_an_error_to_try_again(volume, message) -> None:
    with pytest.raises(ConfigError, match=message):
        plan({"name": "v", **volume}, {("Secret", "keys"): SECRET})


def test_an_optional_secret_may_be_missing() -> None:
    volume = {"name": "s", "secret": {"secretName": "gone", "optional": True}}
    assert plan(volume).files == ()


def test_a_projected_volume_joins_its_sources_and_leaves_out_the_token() -> None:
    sources = [
        {"serviceAccountToken": {"path": "token"}},
        {"secret": {"name": "keys", "items": [{"key": "token", "path": "t"}]}},
        {"configMap": {"name": "root-ca", "optional": True}},
        {
            "downwardAPI": {
                "items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
            }
        },
    ]
    planned = plan({"name": "p", "projected": {"sources": sources}}, {("Secret", "keys"): SECRET})
    assert planned.files == (
        File(PurePosixPath("t"), b"s3cret", 0o600),
        File(PurePosixPath("labels"), b'a="\\"1\\""\nb="2"', 0o644),
    )


@pytest.mark.parametrize(
    "volume",
    [
        {"nfs": {"server": "x", "path": "/"}},
        {"hostPath": {"path": "relative"}},
        {"hostPath": {"path": "/data/../etc"}},
        {"hostPath": {"path": "/data", "type": "Nonsense"}},
        {"persistentVolumeClaim": {"claimName": "../other"}},
        {"projected": {"sources": [{"clusterTrustBundle": {}}]}},
    ],
)
def test_what_processes_cannot_have_is_refused_for_good(volume) -> None:
    with pytest.raises(Unsupported):
        plan({"name": "v", **volume})


def test_host_paths_of_a_cluster_lie_under_allowed_roots() -> None:
    places = Places(PLACES.pod_volumes, PLACES.claims, (Path("/scratch"),))
    assert plan({"name": "h", "hostPath": {"path": "/scratch/x"}}, places=places).path.name == "x"
    for path in ("/etc", "/scratchy"):
        with pytest.raises(Unsupported, match="no allowed root"):
            plan({"name": "h", "hostPath": {"path": path}}, places=places)


def test_the_longest_mount_path_wins_and_only_whole_folders_match() -> None:
    mounts = Mounts([("/data", "/real/a"), ("/data/inner/", "/real/b"), ("/d", "/real/c")])
    assert mounts.translate("/data") == "/real/a"
    assert mounts.translate("/data/x/y") == "/real/a/x/y"
    assert mounts.translate("/data/inner/z") == "/real/b/z"
    assert mounts.translate("/data/inner") == "/real/b"
    assert mounts.translate("/database") == "/database"
    assert mounts.translate("see /data") == "see /data"
    assert mounts.translate("/d/x") == "/real/c/x"


def test_sub_paths_lead_into_their_volume_only() -> None:
    volume = volumes.Volume("v", Path("/real"), create=True)
    container = {"volumeMounts": [{"name": "v", "mountPath": "/m", "subPathExpr": "rank-$(R)"}]}
    mounts = volumes.mounts(container, [volume], {"R": "3"}, "/message")
    assert mounts.translate("/m/x") == "/real/rank-3/x"
    assert mounts.sub_folders == ["/real/rank-3"]
    for escape in ("../x", "/etc", "a/../../b"):
        container = {"volumeMounts": [{"name": "v", "mountPath": "/m", "subPath": escape}]}
        with pytest.raises(ConfigError, match="leads outside"):
            volumes.mounts(container, [volume], {}, "/message")


def test_the_termination_message_path_is_translated_too() -> None:
    assert (
        volumes.mounts({}, [], {}, "/run/message").translate("/dev/termination-log")
        == "/run/message"
    )
    volume = volumes.Volume("v", Path("/real"))
    container = {
        "volumeMounts": [{"name": "v", "mountPath": "/m"}],
        "terminationMessagePath": "/m/out",
    }
    assert (
        volumes.mounts(container, [volume], {}, "/run/message").translate("/m/out") == "/real/out"
    )


def test_a_mount_of_a_missing_volume_is_named() -> None:
    with pytest.raises(ConfigError, match="'ghost'"):
        volumes.mounts({"volumeMounts": [{"name": "ghost", "mountPath": "/m"}]}, [], {}, "/x")


def test_references_are_found_everywhere_once() -> None:
    found = volumes.references(
        pod(
            {"name": "a", "secret": {"secretName": "s1"}},
            {
                "name": "b",
                "projected": {
                    "sources": [{"configMap": {"name": "c1"}}, {"secret": {"name": "s2"}}]
                },
            },
            envFrom=[{"secretRef": {"name": "s1"}}, {"configMapRef": {"name": "c2"}}],
            env=[
                {"name": "X", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "k"}}},
                {"name": "Y", "value": "plain"},
            ],
        )
    )
    assert found == [
        ("Secret", "s1"),
        ("ConfigMap", "c1"),
        ("Secret", "s2"),
        ("ConfigMap", "c2"),
        ("Secret", "s3"),
    ]
