"""Merge, JSON and strategic merge patches, with results known from real API servers."""

import copy

import pytest
from support.apiserver_kinds import builtin, pod, widget, widget_kind

from clusterops.apiserver.patching import (
    PatchError,
    json_patch,
    merge_patch,
    strategic_merge_patch,
)

POD = builtin("Pod")
NODE = builtin("Node")


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        # The examples of RFC 7386, appendix A.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(target, patch, result):
    before = copy.deepcopy(target)
    assert merge_patch(target, patch) == result
    assert target == before


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": {}}], {"a": {}}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
        ({"a/b": {"m~n": 1}}, [{"op": "test", "path": "/a~1b/m~0n", "value": 1}], {"a/b": {"m~n": 1}}),
        ({"a": 1}, [{"op": "test", "path": "/missing", "value": None}], {"a": 1}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": [2]}], [2]),
        ({"a": {"x": 1, "y": [1]}}, [{"op": "test", "path": "/a", "value": {"y": [1], "x": 1.0}}],
         {"a": {"x": 1, "y": [1]}}),
    ],
)  # fmt: skip
def test_json_patch(target, patch, result):
    before = copy.deepcopy(target)
    assert json_patch(target, patch) == result
    assert target == before


def test_what_was_copied_is_not_shared():
    patch = [
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/b/x", "value": 1},
    ]
    assert json_patch({"a": {}}, patch) == {"a": {}, "b": {"x": 1}}


@pytest.mark.parametrize(
    ("patch", "status"),
    [
        ({"op": "add"}, 400),
        ([1], 400),
        ([{"op": "jump", "path": "/a"}], 400),
        ([{"op": "add", "path": "a", "value": 1}], 400),
        ([{"op": "add", "path": "/a"}], 400),
        ([{"op": "move", "path": "/a"}], 400),
        ([{"op": "test", "path": "/a", "value": 2}], 422),
        ([{"op": "test", "path": "/a", "value": True}], 422),
        ([{"op": "remove", "path": "/nothing"}], 422),
        ([{"op": "replace", "path": "/nothing", "value": 1}], 422),
        ([{"op": "add", "path": "/x/y", "value": 1}], 422),
        ([{"op": "add", "path": "/l/9", "value": 1}], 422),
        ([{"op": "add", "path": "/l/01", "value": 1}], 422),
        ([{"op": "remove", "path": "/l/-"}], 422),
        ([{"op": "move", "from": "/l", "path": "/l/0"}], 422),
        ([{"op": "test", "path": "/a", "value": 1}] * 10_001, 413),
    ],
)
def test_a_json_patch_that_does_not_fit_is_refused(patch, status):
    with pytest.raises(PatchError) as caught:
        json_patch({"a": 1, "l": [0]}, patch)
    assert caught.value.status == status


def containers(*pairs):
    return pod(*({"name": name, "image": image} for name, image in pairs))


def patched(target, patch, kind=POD):
    before = copy.deepcopy(target)
    result = strategic_merge_patch(kind, target, patch)
    assert target == before
    return result


def images(obj):
    return [(c["name"], c.get("image")) for c in obj["spec"]["containers"]]


def test_lists_with_a_key_are_merged_by_it():
    target = containers(("a", "1"), ("b", "1"))
    patch = {"spec": {"containers": [{"name": "b", "image": "2"}, {"name": "c", "image": "3"}]}}
    assert images(patched(target, patch)) == [("a", "1"), ("b", "2"), ("c", "3")]


def test_an_item_is_deleted_by_its_key():
    target = containers(("a", "1"), ("b", "1"))
    patch = {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}
    assert images(patched(target, patch)) == [("b", "1")]


def test_a_list_is_replaced_when_told_so():
    target = containers(("a", "1"), ("b", "1"))
    patch = {"spec": {"containers": [{"name": "c", "image": "3"}, {"$patch": "replace"}]}}
    assert images(patched(target, patch)) == [("c", "3")]


def test_an_object_is_replaced_or_deleted_when_told_so():
    target = pod(nodeSelector={"a": "1"}, securityContext={"runAsUser": 1})
    patch = {
        "spec": {
            "nodeSelector": {"b": "2", "$patch": "replace"},
            "securityContext": {"$patch": "delete"},
        }
    }
    spec = patched(target, patch)["spec"]
    assert spec["nodeSelector"] == {"b": "2"}
    assert "securityContext" not in spec


def test_the_order_of_items_follows_the_patch():
    target = containers(("a", "1"), ("b", "1"), ("c", "1"))
    patch = {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}]}}
    assert [name for name, _ in images(patched(target, patch))] == ["c", "b", "a"]


def test_an_item_that_only_the_server_has_keeps_its_place():
    target = containers(("sidecar", "1"), ("a", "1"), ("b", "1"))
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
            "containers": [{"name": "b", "image": "2"}],
        }
    }
    assert images(patched(target, patch)) == [("sidecar", "1"), ("b", "2"), ("a", "1")]


def test_an_order_that_lacks_a_patched_item_is_refused():
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "a"}],
            "containers": [{"name": "b", "image": "2"}],
        }
    }
    with pytest.raises(PatchError, match="doesn't match"):
        strategic_merge_patch(POD, containers(("a", "1")), patch)


def test_only_one_source_of_a_volume_is_kept():
    target = pod(volumes=[{"name": "v", "emptyDir": {}}])
    volume = {"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}
    result = patched(target, {"spec": {"volumes": [volume]}})
    assert result["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]


def test_primitive_lists_are_united_and_items_taken_out():
    target = pod()
    target["metadata"]["finalizers"] = ["a", "b"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}}
    assert patched(target, patch)["metadata"]["finalizers"] == ["b", "c"]


def test_atomic_lists_are_replaced():
    target = {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    patch = {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}
    result = patched(target, patch, NODE)
    assert result["spec"]["taints"] == [{"key": "b", "effect": "NoExecute"}]
    assert "taints" not in patched(target, {"spec": {"taints": None}}, NODE)["spec"]


def test_conditions_are_merged_by_type():
    target = {
        "metadata": {"name": "n"},
        "status": {"conditions": [{"type": "A", "status": "True"}]},
    }
    patch = {"status": {"conditions": [{"type": "B", "status": "False"}]}}
    kinds = [c["type"] for c in patched(target, patch, NODE)["status"]["conditions"]]
    assert kinds == ["A", "B"]


def test_ports_and_mounts_have_keys_of_their_own():
    target = pod(
        {
            "name": "a",
            "image": "i",
            "ports": [{"containerPort": 1, "name": "x"}],
            "volumeMounts": [{"mountPath": "/a", "name": "v"}],
        }
    )
    container = {
        "name": "a",
        "ports": [{"containerPort": 1, "name": "y"}, {"containerPort": 2}],
        "volumeMounts": [{"mountPath": "/a", "name": "w"}],
    }
    result = patched(target, {"spec": {"containers": [container]}})["spec"]["containers"][0]
    assert result["ports"] == [{"containerPort": 1, "name": "y"}, {"containerPort": 2}]
    assert result["volumeMounts"] == [{"mountPath": "/a", "name": "w"}]


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"containers": [{"image": "no name"}]}},
        {"spec": {"containers": ["text"]}},
        {"$patch": "explode"},
        {"spec": {"$retainKeys": "name"}},
    ],
)
def test_malformed_directives_are_refused(patch):
    with pytest.raises(PatchError) as caught:
        strategic_merge_patch(POD, containers(("a", "1")), patch)
    assert caught.value.status == 400


def test_custom_resources_take_no_strategic_patch():
    with pytest.raises(PatchError) as caught:
        strategic_merge_patch(widget_kind(), widget(), {})
    assert caught.value.status == 415
