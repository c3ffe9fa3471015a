"""Field ownership: who owns what after each kind of write, and when an apply is refused."""

import copy

import pytest
from support.apiserver_kinds import builtin, pod, widget, widget_kind

from clusterops.apiserver.managed_fields import LAST_APPLIED, apply, track_update
from clusterops.apiserver.ownership import UPDATE_ENTRIES_LIMIT
from clusterops.apiserver.patching import PatchError

WIDGET = widget_kind()
POD = builtin("Pod")
T1, T2, T3 = (f"2026-01-0{n}T00:00:00Z" for n in (1, 2, 3))


def applied(live, obj, manager="me", *, kind=WIDGET, force=False, now=T1, subresource=""):
    result = apply(kind, live, obj, manager, force=force, now=now, subresource=subresource)
    kind.schema.default(result)
    return result


def updated(old, change, manager="updater", *, kind=WIDGET, now=T2, subresource=""):
    new = copy.deepcopy(old) if old is not None else {}
    change(new)
    kind.schema.default(new)
    track_update(kind, old, new, manager, now=now, subresource=subresource)
    return new


def owned(obj):
    return {(e["manager"], e["operation"]): e["fieldsV1"] for e in obj["metadata"]["managedFields"]}


def test_list_types_come_from_the_schema_even_for_empty_lists():
    live = updated(None, lambda o: o.update(widget()))
    live = updated(
        live,
        lambda o: o.update(status={"conditions": [{"type": "A", "status": "True"}]}),
        "a",
        subresource="status",
    )
    mine = {**widget(), "status": {"conditions": []}}
    result = applied(live, mine, "b", subresource="status")
    assert result["status"]["conditions"] == [{"type": "A", "status": "True"}]
    mine["status"]["conditions"] = [{"type": "B", "status": "False"}]
    result = applied(result, mine, "b", subresource="status")
    assert [c["type"] for c in result["status"]["conditions"]] == ["A", "B"]
    assert applied(result, {**widget(), "status": {}}, "b", subresource="status")["status"][
        "conditions"
    ] == [{"type": "A", "status": "True"}]


def test_atomic_lists_have_one_owner():
    live = applied(None, widget(args=["a"]), "one")
    with pytest.raises(PatchError) as caught:
        applied(live, widget(args=["a", "b"]), "two")
    assert [c.field for c in caught.value.causes] == [".spec.args"]
    assert caught.value.status == 409


def test_sets_are_united():
    live = applied(None, widget(tags=["a"]), "one")
    live = applied(live, widget(tags=["b"]), "two")
    assert live["spec"]["tags"] == ["a", "b"]
    assert owned(live)["two", "Apply"]["f:spec"]["f:tags"] == {'v:"b"': {}}
    assert applied(live, widget(), "one")["spec"]["tags"] == ["b"]


def test_several_conflicts_are_listed_by_owner():
    live = applied(None, widget(size=1, colour="red"), "one")
    live = updated(live, lambda o: o["spec"].update(labels={"x": "1"}), "two")
    obj = widget(size=2, colour="green", labels={"x": "2"})
    with pytest.raises(PatchError) as caught:
        applied(live, obj, "three", now=T3)
    assert caught.value.message == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .spec.colour\n- .spec.size\n'
        f'conflicts with "two" using example.io/v1 at {T2}:\n- .spec.labels.x'
    )
    assert {c.reason for c in caught.value.causes} == {"FieldManagerConflict"}


def test_a_subresource_is_named_in_the_conflict():
    live = updated(None, lambda o: o.update(widget()))
    live = updated(live, lambda o: o.update(status={"phase": "A"}), "ctl", subresource="status")
    with pytest.raises(PatchError, match=r'"ctl" with subresource "status" using example\.io/v1'):
        applied(live, {**widget(), "status": {"phase": "B"}}, "me", subresource="status")


def test_a_field_given_up_goes_unless_somebody_else_owns_it():
    live = applied(None, widget(colour="red", size=3), "one")
    live = applied(live, widget(size=3), "two")
    live = applied(live, widget(), "one")
    assert live["spec"] == {"owner": "me", "size": 3}


def test_a_field_set_by_an_update_stays_when_an_applier_gives_it_up():
    live = applied(None, widget(colour="red"), "one")
    live = updated(live, lambda o: o["spec"].update(colour="green"), "two")
    assert "f:colour" not in owned(live)["one", "Apply"]["f:spec"]
    assert applied(live, widget(), "one")["spec"]["colour"] == "green"


def test_an_update_takes_ownership_and_a_removal_ends_it():
    live = updated(None, lambda o: o.update(widget(colour="red")), "one", now=T1)
    live = updated(live, lambda o: o["spec"].update(colour="green"), "two")
    assert "f:colour" not in owned(live)["one", "Update"]["f:spec"]
    assert owned(live)["two", "Update"] == {"f:spec": {"f:colour": {}}}
    live = updated(live, lambda o: o["spec"].pop("colour"), "one", now=T3)
    assert ("two", "Update") not in owned(live)


def test_nobody_owns_identity_and_what_the_server_writes():
    live = updated(None, lambda o: o.update(widget()), "one")
    assert "f:metadata" not in owned(live)["one", "Update"]
    assert set(owned(live)["one", "Update"]) == {"f:spec"}


def test_an_update_that_changes_nothing_changes_no_entry():
    live = updated(None, lambda o: o.update(widget()), "one", now=T1)
    assert updated(live, lambda _: None, "two", now=T3) == live


def test_applying_the_same_again_gives_the_same_bytes():
    live = applied(None, widget(size=3, parts=[{"name": "a"}]), now=T1)
    assert applied(live, widget(size=3, parts=[{"name": "a"}]), now=T3) == live


def test_managed_fields_may_be_sent_in_an_update_and_forgotten():
    live = updated(None, lambda o: o.update(widget()), "one", now=T1)
    sent = [
        {"manager": "kubectl", "operation": "Apply", "apiVersion": "example.io/v1", "time": T1,
         "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:owner": {}}}}
    ]  # fmt: skip
    moved = updated(live, lambda o: o["metadata"].update(managedFields=sent), "two")
    assert owned(moved) == {("kubectl", "Apply"): {"f:spec": {"f:owner": {}}}}
    cleared = updated(moved, lambda o: o["metadata"].update(managedFields=[{}]), "two")
    assert "managedFields" not in cleared["metadata"]


def test_a_status_write_cannot_send_managed_fields():
    live = updated(None, lambda o: o.update(widget()), "one", now=T1)

    def change(obj):
        obj["metadata"]["managedFields"] = [{}]
        obj["status"] = {"phase": "A"}

    assert set(owned(updated(live, change, "two", subresource="status"))) == {
        ("one", "Update"),
        ("two", "Update"),
    }


@pytest.mark.parametrize("manager", ["", "me"])
def test_a_body_that_claims_owners_or_comes_from_nobody_is_refused(manager):
    obj = widget()
    if manager:
        obj["metadata"]["managedFields"] = [{"manager": "x"}]
    with pytest.raises(PatchError) as caught:
        apply(WIDGET, None, obj, manager, force=True, now=T1)
    assert caught.value.status == 400


def test_the_main_endpoint_applies_no_status():
    result = applied(None, {**widget(), "status": {"phase": "A"}})
    assert "status" not in result


def test_kubectl_takes_over_what_it_applied_client_side():
    text = '{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"owner":"me","size":2}}'

    def create(obj):
        obj.update(widget(size=2))
        obj["metadata"]["annotations"] = {LAST_APPLIED: text}

    live = updated(None, create, "kubectl-client-side-apply", now=T1)
    with pytest.raises(PatchError):
        applied(live, widget(size=3), "somebody")
    result = applied(live, widget(size=3), "kubectl")
    assert result["spec"]["size"] == 3
    assert '"size":3' in result["metadata"]["annotations"][LAST_APPLIED]
    changed = updated(live, lambda o: o["spec"].update(size=7), "other")
    with pytest.raises(PatchError):
        applied(changed, widget(size=3), "kubectl")


def test_a_key_given_twice_reaches_validation():
    live = applied(None, widget(parts=[{"name": "a"}]))
    result = applied(live, widget(parts=[{"name": "b"}, {"name": "b"}]))
    assert [c.field for c in WIDGET.schema.validate(result)] == ["spec.parts[1]"]


def test_the_many_update_entries_are_folded():
    live = updated(None, lambda o: o.update(widget(labels={"x": "0"})), "first", now=T1)
    for number in range(UPDATE_ENTRIES_LIMIT + 5):
        key = f"k{number}"
        live = updated(live, lambda o, k=key: o["spec"]["labels"].update({k: "1"}), key)
    entries = live["metadata"]["managedFields"]
    assert len(entries) == UPDATE_ENTRIES_LIMIT
    assert "ancient-changes" in {e["manager"] for e in entries}
    with pytest.raises(PatchError, match="ancient-changes"):
        applied(live, widget(labels={"k0": "2"}))


def test_the_result_shares_nothing_with_its_sources():
    live = applied(None, widget(labels={"a": "1"}))
    body = widget(labels={"a": "1"}, free={"x": {}})
    result = apply(WIDGET, live, body, "me", force=False, now=T2)
    result["spec"]["labels"]["a"] = "changed"
    result["spec"]["free"]["x"]["y"] = 1
    assert live["spec"]["labels"] == {"a": "1"}
    assert body["spec"]["free"] == {"x": {}}


def test_containers_of_a_pod_are_owned_one_by_one():
    live = applied(None, pod({"name": "a", "image": "1"}), "one", kind=POD)
    with pytest.raises(PatchError) as caught:
        applied(live, pod({"name": "a", "image": "2"}), "two", kind=POD)
    assert caught.value.causes[0].field == '.spec.containers[name="a"].image'
    assert caught.value.message == (
        'Apply failed with 1 conflict: conflict with "one": .spec.containers[name="a"].image'
    )


def test_a_port_is_the_same_with_and_without_its_default_protocol():
    ports = [{"containerPort": 80}]
    live = applied(None, pod({"name": "a", "image": "1", "ports": ports}), kind=POD)
    again = [{"containerPort": 80, "protocol": "TCP"}]
    result = applied(live, pod({"name": "a", "image": "1", "ports": again}), kind=POD, now=T2)
    assert result["spec"]["containers"][0]["ports"] == again
