"""Server-side apply through the real kubectl: owners, conflicts, force, and the way there."""

import json

import pytest
from support.apiserver_kinds import pod, widget
from support.apiserver_kubectl import Kubectl

pytestmark = [pytest.mark.embedded, pytest.mark.kubectl]


def widget_in(**spec):
    obj = widget(**spec)
    obj["metadata"] = {"name": "a"}
    return obj


def server_apply(kubectl: Kubectl, obj, manager="kubectl", *more):
    path = kubectl.file(obj, name=f"{manager}.yaml")
    return kubectl.try_("apply", "--server-side", f"--field-manager={manager}", "-f", path, *more)


def owners(kubectl: Kubectl):
    out = kubectl("get", "widget", "a", "-o", "json", "--show-managed-fields").json
    return {(e["manager"], e["operation"]): e["fieldsV1"] for e in out["metadata"]["managedFields"]}


def test_applying_creates_and_owns(kubectl: Kubectl, widgets):
    outcome = server_apply(kubectl, widget_in(size=2, parts=[{"name": "x"}]))
    assert outcome.out == "widget.example.io/a serverside-applied\n"
    assert owners(kubectl) == {
        ("kubectl", "Apply"): {
            "f:spec": {
                "f:owner": {},
                "f:size": {},
                "f:parts": {'k:{"name":"x"}': {".": {}, "f:name": {}}},
            }
        }
    }
    version = kubectl.get("widget", "a")["metadata"]["resourceVersion"]
    assert server_apply(kubectl, widget_in(size=2, parts=[{"name": "x"}])).code == 0
    assert kubectl.get("widget", "a")["metadata"]["resourceVersion"] == version


def test_another_value_is_a_conflict_until_it_is_forced(kubectl: Kubectl, widgets):
    server_apply(kubectl, widget_in(size=2), "alice")
    outcome = server_apply(kubectl, widget_in(size=3), "bob")
    assert outcome.code == 1
    assert 'Apply failed with 1 conflict: conflict with "alice": .spec.size' in outcome.err
    assert "--force-conflicts" in outcome.err
    assert kubectl.get("widget", "a")["spec"]["size"] == 2
    assert server_apply(kubectl, widget_in(size=3), "bob", "--force-conflicts").code == 0
    assert kubectl.get("widget", "a")["spec"]["size"] == 3
    assert "f:size" not in owners(kubectl)["alice", "Apply"]["f:spec"]


def test_the_same_value_is_shared_not_a_conflict(kubectl: Kubectl, widgets):
    server_apply(kubectl, widget_in(size=2), "alice")
    assert server_apply(kubectl, widget_in(size=2), "bob").code == 0
    server_apply(kubectl, widget_in(), "alice")
    assert kubectl.get("widget", "a")["spec"]["size"] == 2
    server_apply(kubectl, widget_in(colour="red"), "bob")
    assert kubectl.get("widget", "a")["spec"]["size"] == 1  # nobody's any more: the default


def test_an_update_owns_too(kubectl: Kubectl, widgets):
    server_apply(kubectl, widget_in(size=2))
    kubectl("patch", "widget", "a", "--type=merge", "-p", '{"spec":{"size":5}}')
    outcome = server_apply(kubectl, widget_in(size=2))
    assert outcome.code == 1
    assert 'conflict with "kubectl-patch" using example.io/v1' in outcome.err
    assert ".spec.size" in outcome.err


def test_each_owner_keeps_its_items_of_a_list(kubectl: Kubectl, widgets):
    server_apply(kubectl, widget_in(parts=[{"name": "x"}]), "alice")
    server_apply(kubectl, widget_in(parts=[{"name": "y", "count": 3}]), "bob")
    parts = kubectl.get("widget", "a")["spec"]["parts"]
    assert parts == [{"name": "x", "count": 1}, {"name": "y", "count": 3}]
    server_apply(kubectl, widget_in(), "alice")
    assert kubectl.get("widget", "a")["spec"]["parts"] == [{"name": "y", "count": 3}]


def test_client_side_apply_moves_to_server_side_without_a_conflict(kubectl: Kubectl, widgets):
    kubectl("apply", "-f", kubectl.file(widget_in(size=2, colour="red")))
    outcome = server_apply(kubectl, widget_in(size=3))
    assert outcome.code == 0, outcome.err
    found = kubectl.get("widget", "a")
    assert found["spec"]["size"] == 3
    assert "colour" not in found["spec"]
    last = json.loads(
        found["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
    )
    assert last["spec"]["size"] == 3
    # And back again.
    kubectl("apply", "-f", kubectl.file(widget_in(size=4)))
    assert kubectl.get("widget", "a")["spec"]["size"] == 4


def test_managed_fields_in_a_body_are_refused(kubectl: Kubectl, widgets):
    obj = widget_in()
    obj["metadata"]["managedFields"] = [
        {"manager": "x", "operation": "Apply", "apiVersion": "example.io/v1",
         "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}
    ]  # fmt: skip
    outcome = server_apply(kubectl, obj)
    assert outcome.code == 1
    assert "metadata.managedFields must be nil" in outcome.err


def test_a_misspelt_field_is_refused_when_applied(kubectl: Kubectl, widgets):
    outcome = server_apply(kubectl, widget_in(sice=1))
    assert outcome.code == 1
    assert "spec.sice" in outcome.err
    assert kubectl.try_("get", "widget", "a").code == 1


def test_applying_a_pod(kubectl: Kubectl):
    obj = pod({"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}]})
    obj["metadata"] = {"name": "p"}
    assert server_apply(kubectl, obj).out == "pod/p serverside-applied\n"
    outcome = server_apply(
        kubectl, {**obj, "spec": {"containers": [{"name": "a", "image": "a:2"}]}}, "other"
    )
    assert 'conflict with "kubectl": .spec.containers[name="a"].image' in outcome.err


def test_a_dry_run_and_a_diff_store_nothing(kubectl: Kubectl, widgets):
    server_apply(kubectl, widget_in(size=2))
    version = kubectl.get("widget", "a")["metadata"]["resourceVersion"]
    outcome = server_apply(kubectl, widget_in(size=3), "kubectl", "--dry-run=server")
    assert "serverside-applied (server dry run)" in outcome.out
    path = kubectl.file(widget_in(size=4))
    difference = kubectl.try_("diff", "--server-side", "-f", path)
    assert difference.code == 1
    assert "+  size: 4" in difference.out
    assert kubectl.get("widget", "a")["metadata"]["resourceVersion"] == version


def test_the_status_is_applied_apart(kubectl: Kubectl, widgets):
    server_apply(kubectl, widget_in(size=2))
    obj = {**widget_in(size=9), "status": {"phase": "Good"}}
    outcome = server_apply(kubectl, obj, "reporter", "--subresource=status")
    assert outcome.code == 0, outcome.err
    found = kubectl.get("widget", "a")
    assert found["spec"]["size"] == 2
    assert found["status"] == {"phase": "Good"}
    server_apply(kubectl, widget_in(size=2))
    assert kubectl.get("widget", "a")["status"] == {"phase": "Good"}
