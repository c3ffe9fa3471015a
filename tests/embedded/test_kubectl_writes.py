"""create, apply, patch, edit, label, replace, diff, delete: what the real kubectl does here."""

import json

import pytest
from support.apiserver_kinds import pod, widget
from support.apiserver_kubectl import Kubectl, wait_until

pytestmark = [pytest.mark.embedded, pytest.mark.kubectl]


def training_job(name="llm", **spec):
    return {
        "apiVersion": "clusterops.io/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "queueName": "research",
            "template": {"spec": {"containers": [{"name": "main", "image": "trainer:1"}]}},
            **spec,
        },
    }


def plain(obj):
    """An object without a namespace, so that kubectl's own is taken."""
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "namespace"}}


def widget_in(**spec):
    return plain(widget(**spec))


@pytest.mark.parametrize("kind", ["TrainingJob", "Pod"])
def test_apply_creates_then_finds_nothing_to_do_then_configures(kubectl: Kubectl, kind):
    obj = training_job() if kind == "TrainingJob" else plain(pod())
    name = f"{kind.lower()}.clusterops.io/llm" if kind == "TrainingJob" else "pod/p"
    path = kubectl.file(obj)
    assert kubectl("apply", "-f", path).out == f"{name} created\n"
    before = kubectl.get(kind, obj["metadata"]["name"])["metadata"]["resourceVersion"]
    assert kubectl("apply", "-f", path).out == f"{name} unchanged\n"
    obj["metadata"]["labels"] = {"tier": "one"}
    assert kubectl("apply", "-f", kubectl.file(obj)).out == f"{name} configured\n"
    found = kubectl.get(kind, obj["metadata"]["name"])
    assert found["metadata"]["labels"] == {"tier": "one"}
    assert found["metadata"]["resourceVersion"] != before
    del obj["metadata"]["labels"]
    kubectl("apply", "-f", kubectl.file(obj))
    assert "labels" not in kubectl.get(kind, obj["metadata"]["name"])["metadata"]


def test_apply_changes_one_container_and_leaves_the_others(kubectl: Kubectl):
    obj = plain(pod({"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}))
    kubectl("apply", "-f", kubectl.file(obj))
    obj["spec"]["containers"][1]["image"] = "b:2"
    kubectl("apply", "-f", kubectl.file(obj))
    images = [c["image"] for c in kubectl.get("pod", "p")["spec"]["containers"]]
    assert images == ["a:1", "b:2"]


def test_apply_takes_out_what_the_manifest_no_longer_says(kubectl: Kubectl, widgets):
    kubectl("apply", "-f", kubectl.file(widget_in(size=2, colour="red")))
    kubectl("apply", "-f", kubectl.file(widget_in(size=2)))
    assert "colour" not in kubectl.get("widget", "a")["spec"]


def test_a_misspelt_field_is_refused_with_its_path(kubectl: Kubectl, widgets):
    outcome = kubectl.try_("create", "-f", kubectl.file(widget_in(sice=2)))
    assert outcome.code == 1
    assert "Error from server (BadRequest)" in outcome.err
    assert (
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: '
        'unknown field "spec.sice"' in outcome.err
    )
    assert kubectl.try_("get", "widget", "a").code == 1


def test_a_misspelt_field_is_a_warning_when_asked_for(kubectl: Kubectl, widgets):
    outcome = kubectl("create", "--validate=warn", "-f", kubectl.file(widget_in(sice=2)))
    assert outcome.out == "widget.example.io/a created\n"
    assert 'Warning: unknown field "spec.sice"' in outcome.err
    assert "sice" not in kubectl.get("widget", "a")["spec"]


def test_a_misspelt_field_of_a_pod_is_refused(kubectl: Kubectl):
    outcome = kubectl.try_("create", "-f", kubectl.file(plain(pod(restartPolicies="Never"))))
    assert outcome.code == 1
    assert 'strict decoding error: unknown field "spec.restartPolicies"' in outcome.err


def test_an_invalid_object_is_refused_with_every_cause(kubectl: Kubectl, widgets):
    outcome = kubectl.try_("create", "-f", kubectl.file(widget_in(size=0, colour="blue")))
    assert outcome.code == 1
    assert 'The Widget "a" is invalid:' in outcome.err
    assert "* spec.size: Invalid value: 0: spec.size in body should be greater" in outcome.err
    assert (
        '* spec.colour: Unsupported value: "blue": supported values: "red", "green"' in outcome.err
    )


def test_a_wrong_type_in_a_pod_is_a_bad_request(kubectl: Kubectl):
    outcome = kubectl.try_(
        "create", "-f", kubectl.file(plain(pod(terminationGracePeriodSeconds="x")))
    )
    assert outcome.code == 1
    assert "Error from server (BadRequest)" in outcome.err
    assert 'Pod in version "v1" cannot be handled as a Pod' in outcome.err


def test_an_unknown_kind_is_told_as_such(kubectl: Kubectl):
    obj = {**widget_in(), "apiVersion": "nowhere.io/v1"}
    outcome = kubectl.try_("create", "-f", kubectl.file(obj))
    assert outcome.code == 1
    assert 'no matches for kind "Widget" in version "nowhere.io/v1"' in outcome.err


def test_creating_twice_is_a_conflict(kubectl: Kubectl, widgets):
    path = kubectl.file(widget_in())
    assert kubectl("create", "-f", path).out == "widget.example.io/a created\n"
    outcome = kubectl.try_("create", "-f", path)
    assert outcome.code == 1
    assert "Error from server (AlreadyExists): " in outcome.err
    assert 'widgets.example.io "a" already exists' in outcome.err


def test_what_is_not_there_is_told_as_such(kubectl: Kubectl, widgets):
    outcome = kubectl.try_("get", "widget", "nobody")
    assert outcome.code == 1
    assert outcome.err == 'Error from server (NotFound): widgets.example.io "nobody" not found\n'
    outcome = kubectl.try_("get", "pod", "nobody")
    assert outcome.err == 'Error from server (NotFound): pods "nobody" not found\n'


def test_a_dry_run_on_the_server_stores_nothing(kubectl: Kubectl, widgets):
    path = kubectl.file(widget_in(size=3))
    assert kubectl("create", "--dry-run=server", "-f", path).out == (
        "widget.example.io/a created (server dry run)\n"
    )
    assert kubectl.try_("get", "widget", "a").code == 1
    kubectl("create", "-f", path)
    changed = kubectl.file(widget_in(size=4))
    assert "configured (server dry run)" in kubectl("apply", "--dry-run=server", "-f", changed).out
    assert "deleted" in kubectl("delete", "widget", "a", "--dry-run=server").out
    assert kubectl.get("widget", "a")["spec"]["size"] == 3


@pytest.mark.parametrize(
    ("kind", "patch", "size"),
    [
        ("merge", {"spec": {"size": 7}}, 7),
        ("json", [{"op": "replace", "path": "/spec/size", "value": 8}], 8),
    ],
)
def test_patching_a_custom_resource(kubectl: Kubectl, widgets, kind, patch, size):
    kubectl("create", "-f", kubectl.file(widget_in(size=2)))
    words = ("patch", "widget", "a", f"--type={kind}", "-p", json.dumps(patch))
    assert kubectl(*words).out == "widget.example.io/a patched\n"
    assert kubectl.get("widget", "a")["spec"]["size"] == size
    if kind == "merge":
        assert kubectl(*words).out == "widget.example.io/a patched (no change)\n"


def test_a_strategic_patch_of_a_custom_resource_is_refused(kubectl: Kubectl, widgets):
    kubectl("create", "-f", kubectl.file(widget_in()))
    outcome = kubectl.try_("patch", "widget", "a", "-p", '{"spec":{"size":2}}')
    assert outcome.code == 1
    assert outcome.err.startswith(
        "error: application/strategic-merge-patch+json is not supported by example.io/v1, Kind=Widget"
    )


def test_a_strategic_patch_of_a_pod_merges_containers_by_name(kubectl: Kubectl):
    kubectl(
        "create",
        "-f",
        kubectl.file(plain(pod({"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}))),
    )
    patch = {"spec": {"containers": [{"name": "b", "image": "b:2"}]}}
    assert kubectl("patch", "pod", "p", "-p", json.dumps(patch)).out == "pod/p patched\n"
    images = [c["image"] for c in kubectl.get("pod", "p")["spec"]["containers"]]
    assert images == ["a:1", "b:2"]


def test_a_json_patch_whose_test_fails_changes_nothing(kubectl: Kubectl, widgets):
    kubectl("create", "-f", kubectl.file(widget_in(size=2)))
    patch = [
        {"op": "replace", "path": "/spec/size", "value": 9},
        {"op": "test", "path": "/spec/owner", "value": "somebody else"},
    ]
    outcome = kubectl.try_("patch", "widget", "a", "--type=json", "-p", json.dumps(patch))
    assert outcome.code == 1
    assert outcome.err == (
        "The request is invalid: the server rejected our request due to an error in our request: "
        "testing value /spec/owner failed: test failed\n"
    )
    assert kubectl.get("widget", "a")["spec"]["size"] == 2


def test_the_status_is_patched_apart_from_the_rest(kubectl: Kubectl, widgets):
    kubectl("create", "-f", kubectl.file(widget_in(size=2)))
    patch = json.dumps({"spec": {"size": 9}, "status": {"phase": "Ready"}})
    kubectl("patch", "widget", "a", "--type=merge", "-p", patch, "--subresource=status")
    found = kubectl.get("widget", "a")
    assert found["spec"]["size"] == 2
    assert found["status"] == {"phase": "Ready"}
    assert found["metadata"]["generation"] == 1
    other = json.dumps({"spec": {"size": 3}, "status": {"phase": "Other"}})
    kubectl("patch", "widget", "a", "--type=merge", "-p", other)
    found = kubectl.get("widget", "a")
    assert (found["spec"]["size"], found["status"]["phase"]) == (3, "Ready")
    assert found["metadata"]["generation"] == 2


def test_labels_and_annotations_come_and_go(kubectl: Kubectl, widgets):
    kubectl("create", "-f", kubectl.file(widget_in()))
    assert kubectl("label", "widget", "a", "tier=one").out == "widget.example.io/a labeled\n"
    outcome = kubectl.try_("label", "widget", "a", "tier=two")
    assert outcome.code == 1
    assert "already has a value (one), and --overwrite is false" in outcome.err
    kubectl("label", "widget", "a", "tier=two", "--overwrite")
    assert kubectl("annotate", "widget", "a", "note=hello there").out == (
        "widget.example.io/a annotated\n"
    )
    meta = kubectl.get("widget", "a")["metadata"]
    assert meta["labels"] == {"tier": "two"}
    assert meta["annotations"] == {"note": "hello there"}
    assert kubectl("label", "widget", "a", "tier-").out == "widget.example.io/a unlabeled\n"
    kubectl("annotate", "widget", "a", "note-")
    meta = kubectl.get("widget", "a")["metadata"]
    assert not meta.get("labels")
    assert not meta.get("annotations")


def test_a_bad_label_is_refused_by_the_server(kubectl: Kubectl, widgets):
    obj = widget_in()
    obj["metadata"]["labels"] = {"a": "not a label!"}
    outcome = kubectl.try_("create", "-f", kubectl.file(obj))
    assert outcome.code == 1
    assert (
        'The Widget "a" is invalid: metadata.labels: Invalid value: "not a label!"' in outcome.err
    )


@pytest.mark.parametrize("kind", ["widget", "pod"])
def test_edit_saves_what_the_editor_wrote(kubectl: Kubectl, widgets, kind):
    obj = widget_in(size=2) if kind == "widget" else plain(pod({"name": "a", "image": "old"}))
    kubectl("create", "-f", kubectl.file(obj))
    name = obj["metadata"]["name"]
    change = "s/size: 2/size: 5/" if kind == "widget" else "s/image: old/image: new/"
    outcome = kubectl("edit", kind, name, environment={"KUBE_EDITOR": f"sed -i '{change}'"})
    assert f"/{name} edited" in outcome.out
    spec = kubectl.get(kind, name)["spec"]
    assert spec["size"] == 5 if kind == "widget" else spec["containers"][0]["image"] == "new"
    unchanged = kubectl("edit", kind, name, environment={"KUBE_EDITOR": "true"})
    assert "Edit cancelled, no changes made" in unchanged.out + unchanged.err


def test_edit_keeps_a_copy_of_what_was_refused(kubectl: Kubectl, widgets):
    kubectl("create", "-f", kubectl.file(widget_in(size=2)))
    # The second time the editor changes nothing, and kubectl gives up.
    outcome = kubectl.try_(
        "edit", "widget", "a", environment={"KUBE_EDITOR": "sed -i 's/size: 2/size: 0/'"}
    )
    assert outcome.code == 1
    assert "A copy of your changes has been stored to" in outcome.err
    copies = [path.read_text() for path in kubectl.folder.glob("kubectl*-edit-*.yaml")]
    assert any("# * spec.size: Invalid value: 0" in copy for copy in copies), copies
    assert kubectl.get("widget", "a")["spec"]["size"] == 2


def test_replace_refuses_a_stale_version(kubectl: Kubectl, widgets):
    kubectl("create", "-f", kubectl.file(widget_in(size=2)))
    stale = kubectl.get("widget", "a")
    kubectl("label", "widget", "a", "x=y")
    stale["spec"]["size"] = 3
    outcome = kubectl.try_("replace", "-f", kubectl.file(stale))
    assert outcome.code == 1
    assert (
        'Operation cannot be fulfilled on widgets.example.io "a": the object has been modified; '
        "please apply your changes to the latest version and try again" in outcome.err
    )
    fresh = kubectl.get("widget", "a")
    fresh["spec"]["size"] = 4
    assert kubectl("replace", "-f", kubectl.file(fresh)).out == "widget.example.io/a replaced\n"
    assert kubectl("replace", "-f", kubectl.file(widget_in(size=5))).code == 0
    assert kubectl.get("widget", "a")["spec"]["size"] == 5


def test_diff_tells_by_its_exit_code(kubectl: Kubectl, widgets):
    path = kubectl.file(widget_in(size=2))
    new = kubectl.try_("diff", "-f", path)
    assert new.code == 1
    assert "+  size: 2" in new.out
    kubectl("apply", "-f", path)
    assert kubectl.try_("diff", "-f", path).code == 0
    changed = kubectl.try_("diff", "-f", kubectl.file(widget_in(size=3)))
    assert changed.code == 1
    assert "-  size: 2\n+  size: 3" in changed.out
    by_server = kubectl.try_("diff", "--server-side", "-f", kubectl.file(widget_in(size=2)))
    assert by_server.code in (0, 1), by_server.err
    assert kubectl.get("widget", "a")["spec"]["size"] == 2


@pytest.mark.parametrize(
    ("words", "kind", "name"),
    [
        (("create", "configmap", "c", "--from-literal=a=1"), "configmap", "c"),
        (("create", "secret", "generic", "s", "--from-literal=a=1"), "secret", "s"),
        (("create", "serviceaccount", "robot"), "serviceaccount", "robot"),
        (("create", "service", "clusterip", "web", "--tcp=80:8080"), "service", "web"),
        (("run", "runner", "--image=busybox", "--restart=Never"), "pod", "runner"),
    ],
)
def test_generators_create_their_objects(kubectl: Kubectl, words, kind, name):
    assert f"{kind}/{name} created" in kubectl(*words).out
    found = kubectl.get(kind, name)
    if kind == "configmap":
        assert found["data"] == {"a": "1"}
    if kind == "secret":
        assert found["data"] == {"a": "MQ=="}
        assert found["type"] == "Opaque"


def test_create_namespace_and_delete_it_with_what_it_holds(kubectl: Kubectl):
    name = f"{kubectl.namespace}-extra"
    assert kubectl("create", "namespace", name).out == f"namespace/{name} created\n"
    kubectl("create", "configmap", "c", "-n", name)
    assert kubectl("delete", "namespace", name).out == f'namespace "{name}" deleted\n'
    assert kubectl.try_("get", "namespace", name).code == 1
    assert kubectl.try_("get", "configmap", "c", "-n", name).code == 1
    kubectl("delete", "namespace", name, "--ignore-not-found")


def test_objects_need_their_namespace(kubectl: Kubectl):
    outcome = kubectl.try_("create", "configmap", "c", "-n", "nowhere")
    assert outcome.code == 1
    assert 'namespaces "nowhere" not found' in outcome.err


def test_delete_by_label_takes_only_those(kubectl: Kubectl):
    for name, tier in (("a", "x"), ("b", "x"), ("c", "y")):
        kubectl("create", "configmap", name)
        kubectl("label", "configmap", name, f"tier={tier}")
    out = kubectl("delete", "configmap", "-l", "tier=x").out
    assert out == 'configmap "a" deleted\nconfigmap "b" deleted\n'
    assert kubectl("get", "configmap", "-o", "name").out.split() == ["configmap/c"]


def test_delete_waits_for_finalizers(kubectl: Kubectl, widgets):
    obj = widget_in()
    obj["metadata"]["finalizers"] = ["example.io/hold"]
    kubectl("create", "-f", kubectl.file(obj))
    outcome = kubectl.try_("delete", "widget", "a", "--timeout=500ms")
    assert outcome.code == 1
    assert "timed out waiting for the condition" in outcome.err
    assert "deletionTimestamp" in kubectl.get("widget", "a")["metadata"]
    with kubectl.start("delete", "widget", "a", "--wait") as deletion:
        deletion.wait_for(lambda out: "deleted" in out, "announcement")
        assert deletion.process.poll() is None
        kubectl("patch", "widget", "a", "--type=json", "-p",
                '[{"op":"remove","path":"/metadata/finalizers"}]')  # fmt: skip
        assert deletion.wait() == 0
    assert kubectl.try_("get", "widget", "a").code == 1


def test_an_unscheduled_pod_goes_at_once_and_a_scheduled_one_waits_for_its_node(kubectl: Kubectl):
    kubectl("create", "-f", kubectl.file(plain(pod())))
    assert kubectl("delete", "pod", "p").out == 'pod "p" deleted\n'
    kubectl("create", "-f", kubectl.file(plain(pod(nodeName="somewhere"))))
    with kubectl.start("delete", "pod", "p", "--grace-period=20") as deletion:
        deletion.wait_for(lambda out: "deleted" in out, "announcement")
        meta = wait_until(
            lambda: (
                m if "deletionTimestamp" in (m := kubectl.get("pod", "p")["metadata"]) else None
            ),
            "the deletion time",
        )
        assert meta["deletionGracePeriodSeconds"] == 20
        assert kubectl("get", "pod", "p").rows[1][2] == "Terminating"
        kubectl("delete", "pod", "p", "--grace-period=0", "--force", "--wait=false")
        assert deletion.wait() == 0


def test_what_an_owner_leaves_behind_is_collected(kubectl: Kubectl, widgets):
    kubectl("create", "-f", kubectl.file(widget_in()))
    owner = kubectl.get("widget", "a")["metadata"]
    child = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "child",
            "ownerReferences": [
                {"apiVersion": "example.io/v1", "kind": "Widget", "name": "a", "uid": owner["uid"]}
            ],
        },
    }
    kubectl("create", "-f", kubectl.file(child))
    kubectl("delete", "widget", "a")
    wait_until(lambda: kubectl.try_("get", "configmap", "child").code == 1, "the collection")
