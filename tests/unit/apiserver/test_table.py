"""Tables: cells as kubectl prints them."""

import msgspec
import pytest
from support.apiserver_kinds import builtin, pod, widget, widget_kind

from clusterops.apiserver.ages import human_duration, seconds_since_epoch
from clusterops.apiserver.jsonpath import compile_path
from clusterops.apiserver.table import partial_metadata, render

NOW = seconds_since_epoch("2026-01-01T01:00:00Z")
CREATED = "2026-01-01T00:50:55Z"


def table(kind, *objects, **options):
    bodies = [msgspec.json.encode(obj) for obj in objects]
    return msgspec.json.decode(render(kind, bodies, now=NOW, **options))


def cells(kind, obj):
    obj["metadata"].setdefault("creationTimestamp", CREATED)
    answer = table(kind, obj)
    names = [c["name"] for c in answer["columnDefinitions"]]
    return dict(zip(names, answer["rows"][0]["cells"], strict=True))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "<invalid>"), (-1.5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"),
        (599, "9m59s"), (600, "10m"), (10_799, "179m"), (10_800, "3h"), (11_000, "3h3m"),
        (28_800, "8h"), (172_799, "47h"), (172_800, "2d"), (180_000, "2d2h"), (691_200, "8d"),
        (86_400 * 729, "729d"), (86_400 * 730, "2y"), (86_400 * 800, "2y70d"),
        (86_400 * 365 * 8, "8y"),
    ],
)  # fmt: skip
def test_durations_read_as_kubectl_words_them(seconds, words):
    assert human_duration(seconds) == words


def test_a_custom_resource_shows_its_printer_columns():
    obj = widget(size=3)
    obj["status"] = {
        "conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "True"}]
    }
    assert cells(widget_kind(), obj) == {
        "Name": "a", "Size": 3, "Ready": "True", "Owner": "me", "Age": "9m5s",
    }  # fmt: skip


def test_what_is_missing_in_a_custom_resource_is_null():
    obj = widget(size="a text")
    assert cells(widget_kind(), obj)["Size"] is None
    assert cells(widget_kind(), obj)["Ready"] is None


def test_columns_of_wide_output_have_priority_one():
    columns = table(widget_kind())["columnDefinitions"]
    assert {c["name"]: c["priority"] for c in columns}["Owner"] == 1
    assert columns[0]["format"] == "name"


def test_rows_carry_metadata_the_object_or_nothing():
    obj = widget(size=1)
    kind = widget_kind()
    assert table(kind, obj)["rows"][0]["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
    assert table(kind, obj, include="Object")["rows"][0]["object"] == obj
    assert table(kind, obj, include="None")["rows"][0]["object"] is None


def test_list_metadata_is_passed_on_and_watch_events_have_no_columns():
    answer = table(
        widget_kind(), resource_version="9", continue_token="c", remaining=3, with_columns=False
    )
    assert answer["metadata"] == {
        "resourceVersion": "9", "continue": "c", "remainingItemCount": 3,
    }  # fmt: skip
    assert answer["columnDefinitions"] == []
    assert answer["rows"] == []


def test_partial_metadata_keeps_only_metadata():
    body = msgspec.json.encode(widget(size=1))
    assert msgspec.json.decode(partial_metadata([body])[0])["metadata"]["name"] == "a"
    assert "spec" not in msgspec.json.decode(partial_metadata([body])[0])


def status(**fields):
    obj = pod({"name": "a", "image": "i"}, {"name": "b", "image": "i"})
    obj["status"] = {"phase": "Running", **fields}
    return obj


def container(name, *, ready=False, restarts=0, **state):
    return {"name": name, "ready": ready, "restartCount": restarts, "state": state}


@pytest.mark.parametrize(
    ("obj", "ready", "word"),
    [
        (pod(), "0/1", ""),
        (status(phase="Pending"), "0/2", "Pending"),
        (
            status(containerStatuses=[container("a", ready=True, running={}), container("b", ready=True, running={})]),
            "2/2",
            "Running",
        ),
        (
            status(containerStatuses=[container("a", waiting={"reason": "CrashLoopBackOff"})]),
            "0/2",
            "CrashLoopBackOff",
        ),
        (
            status(phase="Failed", containerStatuses=[container("a", terminated={"exitCode": 3})]),
            "0/2",
            "ExitCode:3",
        ),
        (
            status(phase="Succeeded", containerStatuses=[container("a", terminated={"exitCode": 0, "reason": "Completed"})]),
            "0/2",
            "Completed",
        ),
        (status(phase="Failed", reason="Evicted"), "0/2", "Evicted"),
    ],
)  # fmt: skip
def test_a_pod_is_summed_up_in_one_word(obj, ready, word):
    shown = cells(builtin("Pod"), obj)
    assert (shown["Ready"], shown["Status"]) == (ready, word)


def test_a_pod_on_its_way_out_is_terminating():
    obj = status()
    obj["metadata"]["deletionTimestamp"] = CREATED
    assert cells(builtin("Pod"), obj)["Status"] == "Terminating"


def test_restarts_tell_when_the_last_one_was():
    last = {"lastState": {"terminated": {"finishedAt": "2026-01-01T00:59:00Z"}}}
    obj = status(containerStatuses=[container("a", restarts=2) | last])
    assert cells(builtin("Pod"), obj)["Restarts"] == "2 (60s ago)"


def test_empty_cells_of_built_in_kinds_say_so():
    shown = cells(builtin("Pod"), pod())
    assert shown["Node"] == "<none>"
    assert shown["IP"] == "<none>"
    node = {"metadata": {"name": "n"}, "spec": {"unschedulable": True}}
    shown = cells(builtin("Node"), node)
    assert shown["Status"] == "Unknown,SchedulingDisabled"
    assert shown["Roles"] == "<none>"


def test_events_show_when_and_what():
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p"},
        "type": "Warning",
        "reason": "Bad",
        "message": "went wrong\n",
        "count": 3,
        "firstTimestamp": "2026-01-01T00:30:00Z",
        "lastTimestamp": "2026-01-01T00:59:00Z",
        "source": {"component": "tester"},
    }
    shown = cells(builtin("Event"), event)
    assert shown["Last Seen"] == "60s (x3 over 30m)"
    assert shown["Object"] == "pod/p"
    assert shown["Message"] == "went wrong"
    assert shown["Source"] == "tester"


def test_services_show_ports_and_addresses():
    service = {
        "metadata": {"name": "s"},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "selector": {"b": "2", "a": "1"},
            "ports": [
                {"port": 80, "protocol": "TCP"},
                {"port": 53, "nodePort": 30, "protocol": "UDP"},
            ],
        },
    }
    shown = cells(builtin("Service"), service)
    assert shown["Port(s)"] == "80/TCP,53:30/UDP"
    assert shown["Selector"] == "a=1,b=2"
    assert shown["External-IP"] == "<none>"


@pytest.mark.parametrize(
    ("path", "result"),
    [
        (".a.b", 1),
        (".a['b']", 1),
        (r".labels.x\.y/z", "dotted"),
        (".l[0].v", "first"),
        (".l[-1].v", "second"),
        (".l[*].v", "first"),
        (".l[?(@.k=='two')].v", "second"),
        (".l[?(@.n>1)].v", "second"),
        (".l[9].v", None),
        (".nothing.at.all", None),
    ],
)
def test_json_paths_of_columns(path, result):
    obj = {
        "a": {"b": 1},
        "labels": {"x.y/z": "dotted"},
        "l": [{"k": "one", "n": 1, "v": "first"}, {"k": "two", "n": 2, "v": "second"}],
    }
    assert compile_path(path)(obj) == result


@pytest.mark.parametrize("path", ["", "a.b", ".a[", ".a..b", ".a[?(@.x=~'y')]"])
def test_unsupported_json_paths_are_refused(path):
    with pytest.raises(ValueError):
        compile_path(path)
