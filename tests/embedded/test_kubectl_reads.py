"""get, watch, describe, wait, logs, events, explain, discovery: what the real kubectl shows."""

import json

import pytest
from support.apiserver_kinds import pod, widget, widget_crd
from support.apiserver_kubectl import Kubectl, wait_until
from support.embedded import EmbeddedServer

pytestmark = [pytest.mark.embedded, pytest.mark.kubectl]


def create_widget(kubectl: Kubectl, name="a", **spec):
    obj = widget(**spec)
    obj["metadata"] = {"name": name}
    kubectl("create", "-f", kubectl.file(obj))


def create_pod(kubectl: Kubectl, **spec):
    obj = pod(**spec)
    obj["metadata"] = {"name": "p"}
    kubectl("create", "-f", kubectl.file(obj))


def set_status(server: EmbeddedServer, path: str, status):
    answer = server.request(
        "PATCH",
        f"{path}/status",
        {"status": status},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert answer.status == 200, answer.content


def widget_path(kubectl: Kubectl, name="a"):
    return f"/apis/example.io/v1/namespaces/{kubectl.namespace}/widgets/{name}"


def test_get_shows_the_columns_of_the_kind(kubectl: Kubectl, widgets):
    create_widget(kubectl, size=3)
    header, row = kubectl("get", "widgets").rows
    assert header == ["NAME", "SIZE", "READY", "AGE"]
    assert row[:2] == ["a", "3"]
    header, row = kubectl("get", "wg", "-o", "wide").rows
    assert header == ["NAME", "SIZE", "READY", "OWNER", "AGE"]
    assert row[2] == "me"
    assert kubectl("get", "widgets", "--no-headers", "-l", "x=y").out == ""


def test_get_in_all_namespaces_and_with_labels(kubectl: Kubectl, widgets):
    create_widget(kubectl)
    kubectl("label", "widget", "a", "tier=one")
    rows = kubectl("get", "widgets", "-A", "--show-labels", "-l", "tier=one").rows
    mine = [row for row in rows if row[0] == kubectl.namespace]
    assert rows[0] == ["NAMESPACE", "NAME", "SIZE", "READY", "AGE", "LABELS"]
    assert mine[0][1] == "a"
    assert mine[0][-1] == "tier=one"


def test_get_prints_whole_objects_in_every_format(kubectl: Kubectl, widgets):
    create_widget(kubectl, size=3)
    assert kubectl("get", "widget", "a", "-o", "name").out == "widget.example.io/a\n"
    assert kubectl("get", "widget", "a", "-o", "jsonpath={.spec.size}").out == "3"
    listed = kubectl("get", "widgets", "-o", "json").json
    assert listed["kind"] == "List"
    assert [item["kind"] for item in listed["items"]] == ["Widget"]
    text = kubectl("get", "widget", "a", "-o", "yaml").out
    assert "apiVersion: example.io/v1\nkind: Widget\n" in text
    assert "managedFields" not in text
    shown = kubectl("get", "widget", "a", "-o", "yaml", "--show-managed-fields").out
    assert "manager: kubectl-create" in shown
    assert kubectl("get", "widgets", "-o", "custom-columns=N:.metadata.name").rows == [["N"], ["a"]]


def test_get_sorts_and_pages(kubectl: Kubectl, widgets):
    for name, size in (("a", 3), ("b", 1), ("c", 2)):
        create_widget(kubectl, name, size=size)
    rows = kubectl("get", "widgets", "--sort-by=.spec.size", "--no-headers").rows
    assert [row[0] for row in rows] == ["b", "c", "a"]
    rows = kubectl("get", "widgets", "--chunk-size=2", "--no-headers").rows
    assert [row[0] for row in rows] == ["a", "b", "c"]


def test_get_selects_by_field(kubectl: Kubectl):
    create_pod(kubectl, nodeName="one")
    assert (
        kubectl("get", "pods", "--field-selector=spec.nodeName=one", "-o", "name").out == "pod/p\n"
    )
    assert kubectl("get", "pods", "--field-selector=spec.nodeName!=one", "-o", "name").out == ""
    outcome = kubectl.try_("get", "pods", "--field-selector=spec.nonsense=1")
    assert outcome.code == 1
    assert "field label not supported: spec.nonsense" in outcome.err


def test_nothing_found_is_said_so(kubectl: Kubectl):
    outcome = kubectl("get", "pods")
    assert outcome.out == ""
    assert outcome.err == f"No resources found in {kubectl.namespace} namespace.\n"


@pytest.mark.parametrize("form", ["wide", "yaml", "json"])
def test_watching_prints_each_change(kubectl: Kubectl, embedded_server, widgets, form):
    create_widget(kubectl, size=3)
    with kubectl.start("get", "widgets", "-w", "-o", form) as watch:
        watch.wait_for(
            lambda out: '"name": "a"' in out or "name: a" in out or "a " in out, "object"
        )
        set_status(embedded_server, widget_path(kubectl), {"phase": "Watched"})
        kubectl("patch", "widget", "a", "--type=merge", "-p", '{"spec":{"size":44}}')
        out = watch.wait_for(lambda out: "44" in out, "change")
    if form == "wide":
        assert out.splitlines()[0].split() == ["NAME", "SIZE", "READY", "OWNER", "AGE"]
        assert out.count("NAME") == 1
    if form == "yaml":
        assert "phase: Watched" in out
    if form == "json":
        assert '"phase": "Watched"' in out


def test_watching_one_object_by_name_sees_it_go(kubectl: Kubectl, widgets):
    create_widget(kubectl)
    create_widget(kubectl, "other")
    with kubectl.start("get", "widget", "a", "-w", "--output-watch-events") as watch:
        watch.wait_for(lambda out: "a " in out, "object")
        kubectl("delete", "widget", "other")
        kubectl("delete", "widget", "a")
        out = watch.wait_for(lambda out: "DELETED" in out, "deletion")
    assert "other" not in out


def test_describe_shows_an_object_with_its_events(kubectl: Kubectl, embedded_server, widgets):
    create_widget(kubectl, size=3)
    uid = kubectl.get("widget", "a")["metadata"]["uid"]
    event = {
        "metadata": {"name": "a.1", "namespace": kubectl.namespace},
        "involvedObject": {
            "apiVersion": "example.io/v1", "kind": "Widget", "name": "a",
            "namespace": kubectl.namespace, "uid": uid,
        },
        "type": "Normal", "reason": "Grown", "message": "has grown", "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "tester"},
    }  # fmt: skip
    assert embedded_server.request("POST", kubectl.path("events"), event).status == 201
    out = kubectl("describe", "widget", "a").out
    assert "Kind:         Widget" in out
    assert "Grown" in out
    assert "has grown" in out
    out = kubectl("events", "--for", "widget/a").out
    assert "Widget/a" in out
    assert "has grown" in out
    rows = kubectl("get", "events").rows
    assert rows[0] == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert rows[1][1:] == ["Normal", "Grown", "widget/a", "has", "grown"]


def test_describe_of_pods_and_nodes(kubectl: Kubectl, embedded_server):
    create_pod(kubectl, nodeName=f"node-{kubectl.namespace}")
    out = kubectl("describe", "pod", "p").out
    assert f"Node:         node-{kubectl.namespace}/" in out
    assert "busybox:1" in out
    node = {"metadata": {"name": f"node-{kubectl.namespace}"}}
    assert embedded_server.request("POST", "/api/v1/nodes", node).status == 201
    out = kubectl("describe", "node", f"node-{kubectl.namespace}").out
    assert "Non-terminated Pods:          (1 in total)" in out
    kubectl("delete", "node", f"node-{kubectl.namespace}")


def test_wait_for_a_condition_ends_when_it_holds(kubectl: Kubectl, embedded_server, widgets):
    create_widget(kubectl)
    with kubectl.start("wait", "--for=condition=Ready", "widget/a", "--timeout=30s") as waiting:
        set_status(
            embedded_server,
            widget_path(kubectl),
            {"conditions": [{"type": "Ready", "status": "True"}]},
        )
        assert waiting.wait() == 0
        assert waiting.out == "widget.example.io/a condition met\n"
    assert kubectl("wait", "--for=condition=Ready", "widget/a").code == 0
    outcome = kubectl.try_("wait", "--for=condition=Other", "widget/a", "--timeout=300ms")
    assert outcome.code == 1
    assert "timed out waiting for the condition on widgets/a" in outcome.err


def test_wait_for_a_value_and_for_the_end(kubectl: Kubectl, embedded_server, widgets):
    create_widget(kubectl)
    set_status(embedded_server, widget_path(kubectl), {"phase": "Done"})
    assert kubectl("wait", "--for=jsonpath={.status.phase}=Done", "widget/a").code == 0
    with kubectl.start("wait", "--for=delete", "widget/a", "--timeout=30s") as waiting:
        kubectl("delete", "widget", "a")
        assert waiting.wait() == 0
    assert kubectl("wait", "--for=delete", "widget/a").out == ""


def test_logs_follow_until_the_container_ends(kubectl: Kubectl, embedded_server):
    create_pod(kubectl, nodeName="n", restartPolicy="Never")
    waiting = kubectl.try_("logs", "p")
    assert waiting.code == 1
    assert "is waiting to start" in waiting.err
    uid = kubectl.get("pod", "p")["metadata"]["uid"]
    folder = embedded_server.pod_logs / f"{kubectl.namespace}_p_{uid}" / "main"
    folder.mkdir(parents=True)
    log = folder / "0.log"
    log.write_text("2026-01-01T00:00:00.000000001Z stdout F one\n")

    def container(**state):
        status = {"name": "main", "image": "busybox:1", "imageID": "", "ready": False,
                  "restartCount": 0, "state": state}  # fmt: skip
        phase = "Running" if "running" in state else "Succeeded"
        set_status(
            embedded_server,
            kubectl.path("pods", "p"),
            {"phase": phase, "containerStatuses": [status]},
        )

    container(running={"startedAt": "2026-01-01T00:00:00Z"})
    assert kubectl("logs", "p").out == "one\n"
    with kubectl.start("logs", "-f", "p", "--timestamps") as logs:
        logs.wait_for(lambda out: "one" in out, "first line")
        with log.open("a") as more:
            more.write("2026-01-01T00:00:01.000000001Z stdout P tw\n")
            more.write("2026-01-01T00:00:01.000000002Z stdout F o\n")
        logs.wait_for(lambda out: "two" in out, "second line")
        container(terminated={"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z",
                              "finishedAt": "2026-01-01T00:00:02Z"})  # fmt: skip
        assert logs.wait() == 0
        assert logs.out.startswith("2026-01-01T00:00:00.000000001Z one\n")
    assert kubectl("logs", "p", "--tail=1").out == "two\n"


def test_logs_of_nothing_are_told_as_such(kubectl: Kubectl):
    outcome = kubectl.try_("logs", "nobody")
    assert outcome.code == 1
    assert 'pods "nobody" not found' in outcome.err
    create_pod(kubectl, nodeName="n")
    outcome = kubectl.try_("logs", "p", "-c", "other")
    assert outcome.code == 1
    assert "container other is not valid for pod p" in outcome.err


def test_explain_describes_fields(kubectl: Kubectl, widgets):
    out = kubectl("explain", "widgets.spec.parts").out
    assert "KIND:       Widget" in out
    assert "FIELD: parts <[]Object>" in out
    assert "count\t<integer>" in out
    out = kubectl("explain", "tj").out
    assert "KIND:       TrainingJob" in out
    assert "metadata\t<ObjectMeta>" in out
    assert "restartPolicy\t<string>" in kubectl("explain", "pod.spec").out
    assert "FIELD: ports <[]ContainerPort>" in kubectl("explain", "pod.spec.containers.ports").out
    outcome = kubectl.try_("explain", "widgets.spec.nothing")
    assert outcome.code == 1
    assert 'field "nothing" does not exist' in outcome.err


def test_api_resources_and_versions(kubectl: Kubectl, widgets):
    rows = kubectl("api-resources").rows
    assert ["widgets", "wg", "example.io/v1", "true", "Widget"] in rows
    assert ["pods", "po", "v1", "true", "Pod"] in rows
    assert ["nodes", "no", "v1", "false", "Node"] in rows
    assert ["trainingjobs", "tj", "clusterops.io/v1alpha1", "true", "TrainingJob"] in rows
    names = kubectl("api-resources", "--verbs=list", "-o", "name").out.split()
    assert "tokenreviews.authentication.k8s.io" not in names
    assert "widgets.example.io" in names
    versions = kubectl("api-versions").out.split()
    assert {"v1", "example.io/v1", "coordination.k8s.io/v1"} <= set(versions)


def test_get_all_lists_the_category(kubectl: Kubectl, widgets):
    create_widget(kubectl)
    create_pod(kubectl)
    names = kubectl("get", "all", "-o", "name").out.split()
    assert set(names) == {"pod/p", "widget.example.io/a"}


def test_a_kind_appears_with_its_crd_and_goes_with_it(kubectl: Kubectl):
    crd = widget_crd()
    crd["metadata"]["name"] = "gadgets.short.example.io"
    crd["spec"]["group"] = "short.example.io"
    crd["spec"]["names"] = {"plural": "gadgets", "kind": "Gadget"}
    kubectl("apply", "-f", kubectl.file(crd))
    assert kubectl("wait", "--for=condition=Established", "crd/gadgets.short.example.io").code == 0
    obj = {**widget(), "apiVersion": "short.example.io/v1", "kind": "Gadget"}
    obj["metadata"] = {"name": "g"}
    kubectl("create", "-f", kubectl.file(obj))
    assert kubectl("get", "gadgets", "-o", "name").out == "gadget.short.example.io/g\n"
    assert "gadgets.short.example.io" in kubectl("get", "crd").out
    kubectl("delete", "crd", "gadgets.short.example.io")
    assert kubectl.try_("get", "gadgets").code == 1


def test_a_crd_that_cannot_be_served_is_refused(kubectl: Kubectl):
    crd = widget_crd()
    crd["metadata"]["name"] = "bads.example.io"
    crd["spec"]["names"] = {"plural": "bads", "kind": "Bad"}
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["x-kubernetes-validations"] = [{"rule": "self.nothing > 1"}]
    outcome = kubectl.try_("create", "-f", kubectl.file(crd))
    assert outcome.code == 1
    assert "undefined field 'nothing'" in outcome.err


def test_auth_tells_who_and_whether(kubectl: Kubectl):
    assert kubectl("auth", "whoami").rows[1] == ["Username", "admin"]
    who = kubectl("auth", "whoami", "-o", "json").json
    assert "system:masters" in who["status"]["userInfo"]["groups"]
    assert kubectl("auth", "can-i", "create", "pods").out == "yes\n"
    assert kubectl("auth", "can-i", "delete", "trainingjobs", "--subresource=status").out == "yes\n"


def test_a_wrong_token_is_unauthorized(kubectl: Kubectl):
    outcome = kubectl.try_("get", "pods", "--token=nonsense")
    assert outcome.code == 1
    assert "You must be logged in to the server" in outcome.err


def test_raw_paths_and_versions(kubectl: Kubectl):
    assert kubectl("get", "--raw", "/readyz").out == "ok"
    assert "gitVersion" in kubectl("get", "--raw", "/version").json
    assert "serverVersion" in kubectl("version", "-o", "json").json
    assert "is running at" in kubectl("cluster-info").out


def test_top_says_that_there_are_no_metrics(kubectl: Kubectl):
    outcome = kubectl.try_("top", "pods")
    assert outcome.code == 1
    assert "Metrics API not available" in outcome.err


def test_events_can_be_watched(kubectl: Kubectl, embedded_server):
    create_pod(kubectl)
    with kubectl.start("events", "-w") as watch:
        # The watch has no start of its own: what is made before it is open is shown too.
        event = {
            "metadata": {"generateName": "p.", "namespace": kubectl.namespace},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": kubectl.namespace},
            "type": "Warning", "reason": "Odd", "message": json.dumps("strange"),
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }  # fmt: skip

        def seen():
            embedded_server.request("POST", kubectl.path("events"), event)
            return "Odd" in watch.out

        wait_until(seen, "the event")
