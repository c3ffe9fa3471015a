"""The protobuf bodies of kubectl."""

import pytest

from clusterops.apiserver.causes import Refused
from clusterops.apiserver.protobuf import decode


def varint(value):
    value &= 2**64 - 1
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, content):
    """One field: a number, a text, or an encoded message."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def body(api_version, kind, message):
    names = field(1, api_version) + field(2, kind)
    return b"k8s\x00" + field(1, names) + field(2, message) + field(3, "") + field(4, "")


def test_a_namespace():
    meta = field(1, "demo") + field(3, "") + field(8, b"")
    assert decode(body("v1", "Namespace", field(1, meta) + field(2, b"") + field(3, b""))) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "demo"},
        "spec": {},
    }


def test_a_config_map_with_labels_and_data():
    entry = field(1, "key") + field(2, "value")
    meta = field(1, "c") + field(11, field(1, "a") + field(2, "b"))
    empty = field(1, "blank") + field(2, "")
    binary = field(1, "raw") + field(2, b"\x00\xff")
    message = field(1, meta) + field(2, entry) + field(2, empty) + field(3, binary)
    decoded = decode(body("v1", "ConfigMap", message))
    assert decoded["data"] == {"key": "value", "blank": ""}
    assert decoded["binaryData"] == {"raw": "AP8="}
    assert decoded["metadata"] == {"name": "c", "labels": {"a": "b"}}


def test_delete_options_keep_a_grace_period_of_zero():
    message = field(1, 0) + field(4, "Background") + field(5, "All")
    assert decode(body("v1", "DeleteOptions", message)) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
        "dryRun": ["All"],
    }
    assert decode(body("v1", "DeleteOptions", field(1, -1)))["gracePeriodSeconds"] == -1
    other = decode(body("clusterops.io/v1alpha1", "DeleteOptions", field(1, 5)))
    assert other["gracePeriodSeconds"] == 5


def test_an_access_review():
    attributes = field(1, "ns") + field(2, "create") + field(3, "") + field(5, "pods")
    message = field(1, b"") + field(2, field(1, attributes))
    decoded = decode(body("authorization.k8s.io/v1", "SelfSubjectAccessReview", message))
    assert decoded["spec"] == {
        "resourceAttributes": {"namespace": "ns", "verb": "create", "resource": "pods"}
    }


def test_a_service_with_a_named_and_a_numbered_target():
    numbered = field(1, "a") + field(3, 80) + field(4, field(1, 0) + field(2, 8080)) + field(5, 0)
    named = field(1, "b") + field(3, 81) + field(4, field(1, 1) + field(3, "web"))
    message = field(1, field(1, "s")) + field(2, field(1, numbered) + field(1, named))
    ports = decode(body("v1", "Service", message))["spec"]["ports"]
    assert ports == [
        {"name": "a", "port": 80, "targetPort": 8080},
        {"name": "b", "port": 81, "targetPort": "web"},
    ]


def test_unknown_fields_are_skipped():
    message = field(1, field(1, "n") + field(99, 7)) + b"\x81\x06" + b"12345678" + field(50, "x")
    assert decode(body("v1", "Namespace", message))["metadata"] == {"name": "n"}


def test_other_kinds_are_not_read():
    with pytest.raises(Refused) as caught:
        decode(body("batch/v1", "Job", b""))
    assert caught.value.status == 415
    assert "batch/v1 Job" in caught.value.message


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"{}",
        b"k8s\x00\x0a\x7f",
        b"k8s\x00\xff\xff",
        b"k8s\x00\x0b",
        b"k8s\x00" + b"\x80" * 20,
        body("v1", "Namespace", field(1, 5)),
        body("v1", "Namespace", field(1, field(1, b"\xff"))),
        body("v1", "DeleteOptions", field(1, "text")),
    ],
)
def test_a_broken_body_is_a_bad_request(broken):
    with pytest.raises(Refused) as caught:
        decode(broken)
    assert caught.value.status == 400 or (broken[:4] == b"k8s\x00" and caught.value.status == 415)
