"""Creating and changing objects, as a client sees it."""

import asyncio
from pathlib import Path

import pytest
from support.apiserver_world import (
    CONFIG_MAPS,
    MERGE,
    PODS,
    WIDGETS,
    World,
    pod,
    running_world,
    widget,
    widget_definition,
)

APPLY = {"content-type": "application/apply-patch+yaml"}


async def test_a_new_object_gets_uid_time_generation_and_revision(world: World) -> None:
    made = await world.post(WIDGETS, widget("a"))
    metadata = made["metadata"]
    assert metadata["namespace"] == "default"
    assert metadata["generation"] == 1
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0
    assert made["spec"] == {"size": 1, "colour": "grey"}
    assert await world.get(f"{WIDGETS}/a") == made


async def test_generated_names_are_distinct_and_keep_their_prefix(world: World) -> None:
    made = await asyncio.gather(
        *(world.post(WIDGETS, widget(generateName="w-")) for _ in range(20))
    )
    names = {obj["metadata"]["name"] for obj in made}
    assert len(names) == 20
    assert all(name.startswith("w-") and len(name) == 7 for name in names)


async def test_a_second_create_of_a_name_is_refused(world: World) -> None:
    await world.post(WIDGETS, widget("a"))
    answer = await world.request("POST", WIDGETS, widget("a"))
    assert answer.status == 409
    assert answer.json["reason"] == "AlreadyExists"
    assert answer.message == 'widgets.example.io "a" already exists'
    assert answer.json["details"] == {"name": "a", "group": "example.io", "kind": "widgets"}


async def test_of_many_creates_of_one_name_at_once_exactly_one_wins(world: World) -> None:
    answers = await asyncio.gather(
        *(world.request("POST", WIDGETS, widget("a", size)) for size in range(16))
    )
    assert sorted(answer.status for answer in answers) == [201] + [409] * 15
    winner = next(answer.json for answer in answers if answer.status == 201)
    assert await world.get(f"{WIDGETS}/a") == winner


async def test_an_object_in_a_missing_namespace_is_refused(world: World) -> None:
    answer = await world.request("POST", WIDGETS.replace("default", "nowhere"), widget("a"))
    assert answer.status == 404
    assert answer.message == 'namespaces "nowhere" not found'


async def test_a_stale_revision_is_a_conflict(world: World) -> None:
    made = await world.post(WIDGETS, widget("a"))
    await world.patch(f"{WIDGETS}/a", {"spec": {"size": 2}})
    answer = await world.request("PUT", f"{WIDGETS}/a", made)
    assert answer.status == 409
    assert answer.message == (
        'Operation cannot be fulfilled on widgets.example.io "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_of_many_updates_of_one_revision_exactly_one_wins(world: World) -> None:
    made = await world.post(WIDGETS, widget("a"))
    bodies = [{**made, "spec": {"size": size}} for size in range(2, 18)]
    answers = await asyncio.gather(*(world.request("PUT", f"{WIDGETS}/a", body) for body in bodies))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 15


async def test_an_update_of_a_custom_resource_must_name_its_revision(world: World) -> None:
    await world.post(WIDGETS, widget("a"))
    answer = await world.request("PUT", f"{WIDGETS}/a", widget("a", 3))
    assert answer.status == 422
    assert "metadata.resourceVersion" in answer.message


async def test_a_built_in_object_is_overwritten_without_a_revision(world: World) -> None:
    await world.post(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    body = {"metadata": {"name": "a"}, "data": {"x": "2"}}
    answer = await world.request("PUT", f"{CONFIG_MAPS}/a", body)
    assert answer.status == 200
    assert answer.json["data"] == {"x": "2"}


@pytest.mark.parametrize("patch", [{}, {"spec": {"size": 1}}, {"spec": {"unknown": 1}}])
async def test_a_write_that_changes_nothing_keeps_bytes_and_revision(
    world: World, patch: dict
) -> None:
    await world.post(WIDGETS, widget("a"))
    before = await world.request("GET", f"{WIDGETS}/a")
    answer = await world.request("PATCH", f"{WIDGETS}/a?fieldValidation=Ignore", patch, MERGE)
    assert answer.content == before.content
    watch = await world.watch(f"{WIDGETS}?watch=1&resourceVersion={world.server.state.revision}")
    assert watch.silent


async def test_generation_counts_changes_of_the_specification_only(world: World) -> None:
    await world.post(WIDGETS, widget("a"))
    labelled = await world.patch(f"{WIDGETS}/a", {"metadata": {"labels": {"x": "y"}}})
    assert labelled["metadata"]["generation"] == 1
    reported = await world.patch(f"{WIDGETS}/a/status", {"status": {"phase": "Up"}})
    assert reported["metadata"]["generation"] == 1
    changed = await world.patch(f"{WIDGETS}/a", {"spec": {"size": 2}})
    assert changed["metadata"]["generation"] == 2


async def test_each_endpoint_ignores_what_the_other_one_sets(world: World) -> None:
    made = await world.post(WIDGETS, {**widget("a"), "status": {"phase": "Lie"}})
    assert "status" not in made
    await world.patch(f"{WIDGETS}/a/status", {"spec": {"size": 9}, "status": {"phase": "Up"}})
    await world.patch(f"{WIDGETS}/a", {"spec": {"size": 2}, "status": {"phase": "Lie"}})
    found = await world.get(f"{WIDGETS}/a")
    assert (found["spec"]["size"], found["status"]) == (2, {"phase": "Up"})


async def test_what_only_the_server_sets_cannot_be_changed(world: World) -> None:
    made = await world.post(WIDGETS, widget("a"))
    lie = {"creationTimestamp": "1999-01-01T00:00:00Z", "generation": 77}
    changed = await world.patch(f"{WIDGETS}/a", {"metadata": lie, "spec": {"size": 2}})
    assert changed["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert changed["metadata"]["generation"] == 2
    answer = await world.request("PATCH", f"{WIDGETS}/a", {"metadata": {"uid": "no"}}, MERGE)
    assert answer.status == 409


async def test_unknown_fields_are_refused_warned_about_or_dropped(world: World) -> None:
    body = widget("a")
    body["spec"]["x"] = 1
    strict = await world.request("POST", f"{WIDGETS}?fieldValidation=Strict", body)
    assert strict.status == 400
    assert strict.message == (
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: '
        'unknown field "spec.x"'
    )
    warned = await world.request("POST", f"{WIDGETS}?fieldValidation=Warn&dryRun=All", body)
    assert warned.status == 201
    assert warned.headers["warning"] == r'299 - "unknown field \"spec.x\""'
    dropped = await world.request("POST", f"{WIDGETS}?fieldValidation=Ignore", body)
    assert "warning" not in dropped.headers
    assert "x" not in dropped.json["spec"]


async def test_an_invalid_object_is_refused_with_its_causes(world: World) -> None:
    answer = await world.request("POST", WIDGETS, widget("a", size=-1))
    assert answer.status == 422
    assert answer.message.startswith('Widget.example.io "a" is invalid: spec.size: ')
    assert answer.json["details"]["kind"] == "Widget"
    assert answer.json["details"]["causes"][0]["field"] == "spec.size"
    assert (await world.request("GET", f"{WIDGETS}/a")).status == 404


async def test_a_dry_run_answers_as_if_and_stores_nothing(world: World) -> None:
    answer = await world.request("POST", f"{WIDGETS}?dryRun=All", widget("a"))
    assert answer.status == 201
    assert answer.json["spec"]["colour"] == "grey"
    assert (await world.request("GET", f"{WIDGETS}/a")).status == 404
    await world.post(WIDGETS, widget("a"))
    patch = {"spec": {"size": 5}}
    tried = await world.request("PATCH", f"{WIDGETS}/a?dryRun=All", patch, MERGE)
    assert tried.json["spec"]["size"] == 5
    await world.request("DELETE", f"{WIDGETS}/a?dryRun=All")
    assert (await world.get(f"{WIDGETS}/a"))["spec"]["size"] == 1


async def test_apply_creates_merges_and_meets_other_owners(world: World) -> None:
    path = f"{WIDGETS}/a?fieldManager=one"
    created = await world.request("PATCH", path, widget("a", 1), APPLY)
    assert created.status == 201
    again = await world.request("PATCH", path, widget("a", 1), APPLY)
    assert again.status == 200
    assert again.content == created.content
    other = path.replace("one", "two")
    refused = await world.request("PATCH", other, widget("a", 2), APPLY)
    assert refused.status == 409
    assert refused.json["details"]["causes"][0]["reason"] == "FieldManagerConflict"
    forced = await world.request("PATCH", f"{other}&force=true", widget("a", 2), APPLY)
    assert forced.json["spec"]["size"] == 2


async def test_apply_must_say_who_applies(world: World) -> None:
    answer = await world.request("PATCH", f"{WIDGETS}/a", widget("a"), APPLY)
    assert answer.status == 422
    assert "fieldManager" in answer.message


async def test_a_custom_resource_takes_no_strategic_merge_patch(world: World) -> None:
    await world.post(WIDGETS, widget("a"))
    headers = {"content-type": "application/strategic-merge-patch+json"}
    assert (await world.request("PATCH", f"{WIDGETS}/a", {}, headers)).status == 415


async def test_a_definition_is_served_as_soon_as_it_is_stored(world: World) -> None:
    gadgets = "/apis/example.io/v1/namespaces/default/gadgets"
    assert (await world.request("GET", gadgets)).status == 404
    definition = widget_definition(plural="gadgets", singular="gadget", kind="Gadget")
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    made = await world.post(path, definition)
    conditions = {c["type"]: c["status"] for c in made["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    await world.post(gadgets, {**widget("a"), "kind": "Gadget"})
    names = [r["name"] for r in (await world.get("/apis/example.io/v1"))["resources"]]
    assert "gadgets" in names
    await world.delete(f"{path}/gadgets.example.io")
    await world.until_gone(f"{path}/gadgets.example.io")
    assert (await world.request("GET", gadgets)).status == 404


async def test_a_bad_definition_is_refused_with_its_reasons(world: World) -> None:
    definition = widget_definition(plural="gadgets", singular="gadget", kind="Gadget")
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["size"] = {"type": "whole number"}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    answer = await world.request("POST", path, definition)
    assert answer.status == 422
    assert "size" in answer.message


async def test_a_pod_is_bound_once(world: World) -> None:
    await world.post(PODS, pod("a"))
    binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}
    answer = await world.request("POST", f"{PODS}/a/binding", binding)
    assert answer.status == 201
    assert answer.json["status"] == "Success"
    bound = await world.get(f"{PODS}/a")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["status"]["conditions"][0]["type"] == "PodScheduled"
    again = await world.request("POST", f"{PODS}/a/binding", binding)
    assert again.status == 409
    assert 'already assigned to node "n1"' in again.message


async def test_an_object_that_its_definition_outgrew_is_refused_at_its_next_change(
    world: World,
) -> None:
    await world.post(WIDGETS, widget("a", 5))
    status = {"status": {"phase": "x"}}
    await world.patch(f"{WIDGETS}/a/status", status)
    definition = widget_definition()
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["size"]["maximum"] = 3
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await world.patch(f"{crds}/widgets.example.io", {"spec": definition["spec"]})
    answer = await world.request("PATCH", f"{WIDGETS}/a/status", {"status": {"phase": "y"}}, MERGE)
    assert answer.status == 422
    assert "less than or equal to 3" in answer.message


async def test_objects_from_before_a_restart_are_checked_as_a_whole(tmp_path: Path) -> None:
    async with running_world(tmp_path / "state") as world:
        await world.post(WIDGETS, widget("a", 5))
    definition = widget_definition()
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["size"]["maximum"] = 3
    async with running_world(tmp_path / "state", crds=(definition,)) as world:
        status = {"status": {"phase": "y"}}
        answer = await world.request("PATCH", f"{WIDGETS}/a/status", status, MERGE)
        assert answer.status == 422
