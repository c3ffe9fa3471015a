"""Laws of schemas, patches and field ownership, over generated objects."""

import contextlib
import copy

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from support.apiserver_kinds import builtin, pod, widget, widget_kind

from clusterops.apiserver.causes import Refused
from clusterops.apiserver.field_set import compare, difference, leaves, of_value, union
from clusterops.apiserver.managed_fields import apply, track_update
from clusterops.apiserver.patching import (
    PatchError,
    json_patch,
    merge_patch,
    strategic_merge_patch,
)
from clusterops.apiserver.protobuf import decode
from clusterops.apiserver.selectors import parse_labels
from clusterops.apiserver.structure import ANYTHING
from clusterops.apiserver.table import render

WIDGET = widget_kind()
POD = builtin("Pod")
SPEC = WIDGET.schema.root.properties["spec"]
NOW = "2026-01-01T00:00:00Z"

law = settings(max_examples=60, deadline=None)

names = st.sampled_from(["a", "b", "c"])
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("xy", max_size=2)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(names, values, max_size=3)

specs = st.fixed_dictionaries(
    {"owner": st.sampled_from(["me", "you"])},
    optional={
        "size": st.integers(1, 3),
        "colour": st.sampled_from(["red", "green"]),
        "labels": st.dictionaries(names, st.sampled_from(["1", "2"]), max_size=3),
        "tags": st.lists(names, unique=True, max_size=3),
        "args": st.lists(names, max_size=2),
        "parts": st.lists(
            st.fixed_dictionaries({"name": names}, optional={"count": st.integers(1, 3)}),
            unique_by=lambda part: part["name"],
            max_size=3,
        ),
    },
)
managers = st.sampled_from(["alice", "bob", "carol"])


def oracle(target, patch):
    """RFC 7386, section 2, word for word."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict):
        target = {}
    result = copy.deepcopy(target)
    for name, value in patch.items():
        if value is None:
            if name in result:
                del result[name]
        else:
            result[name] = oracle(result.get(name), value)
    return result


@law
@given(values, values)
def test_merge_patch_is_what_the_rfc_defines(target, patch):
    before = copy.deepcopy(target)
    assert merge_patch(target, patch) == oracle(target, patch)
    assert target == before


@law
@given(objects, objects)
def test_a_merge_patch_applied_twice_changes_no_more(target, patch):
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


def pointers(value, at=""):
    yield at
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, child in children:
        yield from pointers(child, f"{at}/{key}")


@law
@given(target=objects, value=values, choices=st.data())
def test_json_patch_add_then_remove_restores_an_object(target, value, choices):
    parent = choices.draw(st.sampled_from(list(pointers(target))))
    holder = target
    for part in parent.split("/")[1:]:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    if not isinstance(holder, dict | list):
        return
    path = f"{parent}/-" if isinstance(holder, list) else f"{parent}/new"
    gone = f"{parent}/{len(holder)}" if isinstance(holder, list) else path
    added = json_patch(target, [{"op": "add", "path": path, "value": value}])
    again = [{"op": "test", "path": gone, "value": value}, {"op": "remove", "path": gone}]
    assert json_patch(added, again) == target


@law
@given(target=objects, choices=st.data())
def test_json_patch_tests_find_every_value_where_it_is(target, choices):
    pointer = choices.draw(st.sampled_from(list(pointers(target))))
    value = target
    for part in pointer.split("/")[1:]:
        value = value[int(part)] if isinstance(value, list) else value[part]
    assert json_patch(target, [{"op": "test", "path": pointer, "value": value}]) == target


@law
@given(objects, values)
def test_json_patch_refuses_or_answers_but_never_breaks(target, patch):
    operations = patch if isinstance(patch, list) else [patch]
    with contextlib.suppress(PatchError):
        json_patch(target, operations)


@law
@given(objects)
def test_pruning_and_defaulting_are_idempotent(spec):
    for schema, obj in (
        (WIDGET.schema, widget(**spec)),
        (POD.schema, {**pod(), "spec": {**pod()["spec"], **spec}}),
    ):
        schema.prune(obj)
        assert schema.prune(obj) == []
        schema.default(obj)
        once = copy.deepcopy(obj)
        schema.default(obj)
        assert obj == once
        assert schema.prune(obj) == []


@law
@given(values)
def test_validation_words_every_failure_and_never_breaks(anything):
    for schema in (WIDGET.schema, POD.schema):
        for obj in (
            {"metadata": {"name": "a"}, "spec": anything},
            {"metadata": anything, "spec": {}},
        ):
            schema.prune(obj)
            schema.default(obj)
            for cause in schema.validate(obj):
                assert cause.field
                assert cause.message


@law
@given(specs)
def test_valid_objects_have_no_causes(spec):
    obj = widget(**spec)
    WIDGET.schema.default(obj)
    assert WIDGET.schema.prune(obj) == []
    assert WIDGET.schema.validate(obj) == []


def serve(live, spec, manager, *, force=False):
    """An apply as the server does it: applied, then defaulted."""
    result = apply(WIDGET, live, widget(**copy.deepcopy(spec)), manager, force=force, now=NOW)
    WIDGET.schema.default(result)
    return result


def update(live, change, manager="updater"):
    new = copy.deepcopy(live)
    new["spec"] = merge_patch(new["spec"], change)
    WIDGET.schema.default(new)
    track_update(WIDGET, live, new, manager, now=NOW)
    return new


histories = st.lists(st.tuples(managers, specs), min_size=1, max_size=5)


def replay(history):
    live = None
    for manager, spec in history:
        live = serve(live, spec, manager, force=True)
    return live


@law
@given(histories, managers, specs)
def test_applying_twice_gives_the_same_object(history, manager, spec):
    live = serve(replay(history), spec, manager, force=True)
    assert serve(live, spec, manager) == live


@law
@given(histories, managers, specs)
def test_what_was_applied_is_there_afterwards(history, manager, spec):
    found = serve(replay(history), spec, manager, force=True)["spec"]
    for name, value in spec.items():
        if name in ("tags", "parts", "labels"):
            continue
        assert found[name] == value
    assert set(spec.get("tags", ())) <= set(found.get("tags", ()))
    assert (spec.get("labels") or {}).items() <= (found.get("labels") or {}).items()
    there = {part["name"]: part for part in found.get("parts", ())}
    for part in spec.get("parts", ()):
        assert part.items() <= there[part["name"]].items()


@law
@given(histories, managers, specs)
def test_nobody_overwrites_another_without_force(history, manager, spec):
    live = replay(history)
    after = None
    try:
        after = serve(live, spec, manager)
    except PatchError as error:
        refusal = error
    if after is None:
        assert refusal.status == 409
        assert refusal.causes
        return
    changed, removed = compare(SPEC, live["spec"], after["spec"])
    touched = union(changed or {}, removed or {})
    for entry in live["metadata"]["managedFields"]:
        if entry["manager"] == manager:
            continue
        theirs = {tuple(path) for path in leaves(entry["fieldsV1"].get("f:spec", {}))}
        # What another manager owns is neither changed nor gone.
        assert not theirs & set(leaves(touched)), (entry, touched)


@law
@given(histories, managers)
def test_a_lone_owner_takes_its_fields_away_again(history, manager):
    others = [(m, s) for m, s in history if m != manager]
    mine = {"owner": "me", "size": 3, "colour": "red", "args": ["z"]}
    before = replay(others) if others else serve(None, {"owner": "me"}, "base")
    live = serve(before, mine, manager, force=True)
    gone = serve(live, {"owner": "me"}, manager, force=True)["spec"]
    owned_by_others = {
        path[0]
        for entry in live["metadata"]["managedFields"]
        if entry["manager"] != manager
        for path in leaves(entry["fieldsV1"].get("f:spec", {}))
    }
    for name in ("colour", "args"):
        if f"f:{name}" not in owned_by_others:
            assert name not in gone


@law
@given(histories, specs)
def test_an_update_owns_exactly_what_it_changed(history, change):
    live = replay(history)
    after = update(live, change)
    assert after["spec"] == update(after, change)["spec"]
    changed, _ = compare(SPEC, live["spec"], after["spec"])
    mine = next(
        (
            e["fieldsV1"]["f:spec"]
            for e in after["metadata"]["managedFields"]
            if e["manager"] == "updater"
        ),
        {},
    )
    assert set(leaves(mine)) == set(leaves(changed or {}))


@law
@given(histories, specs)
def test_every_field_that_is_owned_exists(history, change):
    live = update(replay(history), change)
    existing = set(leaves(of_value(WIDGET.schema.root, {"spec": live["spec"]})))
    for entry in live["metadata"]["managedFields"]:
        assert set(leaves({"f:spec": entry["fieldsV1"].get("f:spec", {})})) <= existing


@law
@given(objects, objects)
def test_sets_of_fields_behave_like_sets(first, second):
    left, right = of_value(ANYTHING, first), of_value(ANYTHING, second)
    paths = set(leaves(left)), set(leaves(right))
    assert set(leaves(union(left, right))) == paths[0] | paths[1]
    assert set(leaves(difference(left, right))) == paths[0] - paths[1]


container_lists = st.lists(
    st.fixed_dictionaries({"name": names, "image": st.sampled_from(["1", "2"])}),
    unique_by=lambda c: c["name"],
    min_size=1,
)


@law
@given(container_lists, container_lists)
def test_a_strategic_merge_keeps_every_name_once_and_takes_the_patch(target, patch):
    result = strategic_merge_patch(POD, pod(*target), {"spec": {"containers": patch}})
    found = {c["name"]: c["image"] for c in result["spec"]["containers"]}
    assert len(found) == len(result["spec"]["containers"])
    assert found == {c["name"]: c["image"] for c in [*target, *patch]}


@law
@given(container_lists, container_lists)
def test_the_order_of_a_strategic_merge_is_the_one_given(target, patch):
    order = [{"name": c["name"]} for c in patch]
    result = strategic_merge_patch(
        POD, pod(*target), {"spec": {"$setElementOrder/containers": order, "containers": patch}}
    )
    found = [c["name"] for c in result["spec"]["containers"]]
    assert [n for n in found if n in {c["name"] for c in patch}] == [c["name"] for c in patch]


@law
@given(st.binary(max_size=60))
def test_protobuf_bodies_are_read_or_refused(body):
    with contextlib.suppress(Refused):
        decode(b"k8s\x00" + body)


@law
@given(st.text("ab=!,() <>in", max_size=12))
def test_selectors_are_read_or_refused(text):
    with contextlib.suppress(Refused):
        selector = parse_labels(text)
        assert selector is None or selector.matches({"a": "b"}) in (True, False)


@law
@given(values, values)
def test_tables_of_odd_pods_are_still_tables(spec, status):
    obj = {"metadata": {"name": "p"}, "spec": {"containers": []}, "status": {}}
    obj["spec"] |= {"nodeName": spec if isinstance(spec, str) else "n"}
    body = msgspec.json.encode(obj)
    answer = msgspec.json.decode(render(POD, [body, body], now=0.0))
    assert len(answer["rows"]) == 2
    assert all(len(row["cells"]) == len(POD.columns) for row in answer["rows"])
