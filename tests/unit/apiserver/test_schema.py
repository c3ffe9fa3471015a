"""Pruning, defaults and validation, in the words of Kubernetes."""

import copy
from typing import Any

import pytest
from support.apiserver_kinds import builtin, pod, widget, widget_kind

from clusterops.apiserver.schema import Schema

WIDGET = widget_kind().schema
POD = builtin("Pod").schema


def refusals(schema, obj, old=None):
    return [str(cause) for cause in schema.validate(obj, old)]


def test_unknown_fields_are_removed_and_named_by_their_path():
    obj = widget(sice=3, parts=[{"name": "a", "cuont": 2}], free={"anything": 1})
    obj["metadata"]["nmae"] = "x"
    assert sorted(WIDGET.prune(obj)) == ["metadata.nmae", "spec.parts[0].cuont", "spec.sice"]
    assert obj["spec"] == {"owner": "me", "parts": [{"name": "a"}], "free": {"anything": 1}}


def test_unknown_fields_deep_in_a_pod_are_named():
    obj = pod({"name": "c", "image": "i", "env": [{"name": "A", "valeu": "1"}]})
    assert POD.prune(obj) == ["spec.containers[0].env[0].valeu"]


def test_labels_and_other_maps_keep_all_their_keys():
    obj = widget(labels={"a": "b"})
    obj["metadata"]["labels"] = {"x/y": "z"}
    assert WIDGET.prune(obj) == []
    assert obj["spec"]["labels"] == {"a": "b"}


def test_null_where_it_is_not_allowed_is_dropped_and_then_defaulted():
    obj = widget(size=None, colour=None, minSize=None)
    WIDGET.default(obj)
    assert obj["spec"] == {"owner": "me", "size": 1, "minSize": None}


def test_defaults_reach_into_lists():
    obj = widget(parts=[{"name": "a"}, {"name": "b", "count": 4}])
    WIDGET.default(obj)
    assert [part["count"] for part in obj["spec"]["parts"]] == [1, 4]


def test_defaults_are_not_shared_between_objects():
    first, second = pod(), pod()
    POD.default(first)
    POD.default(second)
    first["spec"]["securityContext"]["runAsUser"] = 1
    assert second["spec"]["securityContext"] == {}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"size": 0},
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            {"size": "3"},
            'spec.size: Invalid value: "3": spec.size in body must be of type integer: "3"',
        ),
        (
            {"size": True},
            'spec.size: Invalid value: true: spec.size in body must be of type integer: "boolean"',
        ),
        (
            {"owner": ""},
            'spec.owner: Invalid value: "": spec.owner in body should be at least 1 chars long',
        ),
        ({"owner": "x" * 21}, "spec.owner: Too long: may not be more than 20 bytes"),
        (
            {"colour": "blue"},
            'spec.colour: Unsupported value: "blue": supported values: "red", "green"',
        ),
        ({"parts": [{"count": 1}]}, "spec.parts[0].name: Required value"),
        (
            {"parts": [{"name": str(i)} for i in range(6)]},
            "spec.parts: Too many: 6: must have at most 5 items",
        ),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, 'spec.parts[1]: Duplicate value: {"name":"a"}'),
        ({"tags": ["a", "b", "a"]}, 'spec.tags[2]: Duplicate value: "a"'),
        (
            {"port": []},
            'spec.port: Invalid value: "array": spec.port in body must be of type integer,string: "array"',
        ),
        (
            {"size": 1, "minSize": 2},
            'spec: Invalid value: "object": minSize must not exceed size',
        ),
        (
            {"labels": {"a": 1}},
            'spec.labels.a: Invalid value: 1: spec.labels.a in body must be of type string: "integer"',
        ),
    ],
)
def test_a_broken_rule_is_told_in_kubernetes_words(spec, text):
    obj = widget(**spec)
    obj["spec"].setdefault("size", 1)
    assert refusals(WIDGET, obj) == [text]


def test_a_missing_required_object_is_named():
    obj = widget()
    del obj["spec"]
    assert refusals(WIDGET, obj) == ["spec: Required value"]


def test_rules_on_transitions_need_an_old_object():
    obj = widget(size=1)
    changed = copy.deepcopy(obj)
    changed["spec"]["owner"] = "you"
    assert refusals(WIDGET, changed) == []
    assert refusals(WIDGET, changed, obj) == [
        'spec.owner: Invalid value: "object": owner is immutable'
    ]
    assert refusals(WIDGET, obj, obj) == []


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"name": "Upper"}, "metadata.name"),
        ({"name": "a" * 254}, "metadata.name"),
        ({"name": "a", "labels": {"a b": "1"}}, "metadata.labels"),
        ({"name": "a", "labels": {"a": "-"}}, "metadata.labels"),
        ({"name": "a", "labels": {"UPPER.io/a": "x"}}, "metadata.labels"),
        ({"name": "a", "annotations": {"a/b/c": "x"}}, "metadata.annotations"),
        ({"name": "a", "finalizers": ["/x"]}, "metadata.finalizers"),
        ({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": ""}]},
         "metadata.ownerReferences[0].uid"),
        ({"namespace": "x"}, "metadata.name"),
    ],
)  # fmt: skip
def test_metadata_that_breaks_the_naming_rules_is_refused(metadata, field):
    obj = widget(size=1)
    obj["metadata"] = metadata
    assert [cause.field for cause in WIDGET.validate(obj)] == [field]


def test_a_name_may_be_left_to_the_server():
    obj = widget(size=1)
    obj["metadata"] = {"generateName": "run-"}
    assert refusals(WIDGET, obj) == []


def test_a_label_of_another_type_is_a_type_error_not_a_crash():
    obj = widget(size=1)
    obj["metadata"]["labels"] = {"a": 1}
    assert refusals(WIDGET, obj) == [
        'metadata.labels.a: Invalid value: 1: metadata.labels.a in body must be of type string: "integer"'
    ]


def test_a_pod_gets_the_defaults_that_users_know():
    obj = pod(
        {"name": "a", "image": "busybox", "resources": {"limits": {"cpu": 1}}},
        {"name": "b", "image": "localhost:5000/x:1", "ports": [{"containerPort": 80}]},
    )
    POD.prune(obj)
    POD.default(obj)
    spec = obj["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    first, second = spec["containers"]
    assert first["imagePullPolicy"] == "Always"
    assert second["imagePullPolicy"] == "IfNotPresent"
    assert first["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    assert second["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert obj["status"] == {"phase": "Pending", "qosClass": "Burstable"}
    assert refusals(POD, obj) == []


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (pod({"name": "a"}), "spec.containers[0].image: Required value"),
        (
            pod({"name": "a", "image": "i"}, {"name": "a", "image": "j"}),
            'spec.containers[1]: Duplicate value: {"name":"a"}',
        ),
        (
            pod({"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
            'spec.containers[0].volumeMounts[0].name: Not found: "v"',
        ),
        (
            pod(restartPolicy="Sometimes"),
            'spec.restartPolicy: Unsupported value: "Sometimes": '
            'supported values: "Always", "OnFailure", "Never"',
        ),
    ],
)
def test_a_broken_pod_is_refused(obj, text):
    POD.default(obj)
    assert refusals(POD, obj) == [text]


def test_what_may_not_change_in_a_pod_stays():
    old = pod()
    POD.default(old)
    bound, image, command = copy.deepcopy(old), copy.deepcopy(old), copy.deepcopy(old)
    bound["spec"]["nodeName"] = "n"
    image["spec"]["containers"][0]["image"] = "other:2"
    command["spec"]["containers"][0]["command"] = ["true"]
    assert refusals(POD, bound, old) == []
    assert refusals(POD, image, old) == []
    assert [c.field for c in POD.validate(command, old)] == ["spec"]


def test_secret_text_is_stored_encoded():
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    secret["stringData"] = {"a": "hello"}
    builtin("Secret").schema.default(secret)
    assert secret["data"] == {"a": "aGVsbG8="}
    assert secret["type"] == "Opaque"
    assert "stringData" not in secret


def test_immutable_content_stays():
    schema = builtin("ConfigMap").schema
    old = {"metadata": {"name": "c"}, "data": {"a": "1"}, "immutable": True}
    new = {"metadata": {"name": "c"}, "data": {"a": "2"}, "immutable": True}
    assert refusals(schema, new, old) == [
        "data: Forbidden: field is immutable when `immutable` is set"
    ]


def test_quantities_and_times_are_checked():
    obj = pod({"name": "a", "image": "i", "resources": {"limits": {"cpu": "lots"}}})
    assert POD.validate(obj)[0].field == "spec.containers[0].resources.limits.cpu"
    lease = {"metadata": {"name": "l"}, "spec": {"renewTime": "yesterday"}}
    assert builtin("Lease").schema.validate(lease)[0].reason == "FieldValueTypeInvalid"


def test_parts_shared_with_a_valid_object_are_not_checked_again() -> None:
    old = widget(size=1)
    new = {**old, "metadata": dict(old["metadata"]), "status": {}}
    new["metadata"]["labels"] = old["metadata"]["labels"] = {"!": []}  # wrong, and shared
    assert WIDGET.validate(new, old) != []
    assert WIDGET.validate(new, old, old_is_valid=True) == []


@pytest.mark.parametrize(
    "change", [{"spec": {"size": "1"}}, {"spec": 7}, {"metadata": {"name": "A"}}, {"status": 3},
               {"metadata": {"name": "a", "labels": {"!": ""}}}, {"metadata": {"name": 1}},
               {"metadata": {"name": "a", "finalizers": [""]}}]
)  # fmt: skip
def test_what_differs_from_a_valid_object_is_checked(change: dict[str, Any]) -> None:
    old = widget(size=1)
    assert WIDGET.validate(old) == []
    new = {**old, **change}
    expected = WIDGET.validate(new, old)
    assert expected != []
    assert WIDGET.validate(new, old, old_is_valid=True) == expected


def test_a_required_part_that_goes_is_missed() -> None:
    schema = Schema({"required": ["spec"], "properties": {"spec": {"type": "object"}}})
    old: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {}}
    new = {"metadata": old["metadata"]}
    assert [c.field for c in schema.validate(new, old, old_is_valid=True)] == ["spec"]
