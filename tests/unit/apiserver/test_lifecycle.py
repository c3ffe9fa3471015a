"""What the server does by itself: owners and dependents, namespaces, definitions."""

from pathlib import Path
from typing import Any

from support.apiserver_world import CONFIG_MAPS, PODS, WIDGETS, World, pod, running_world, widget

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _owned(name: str, *owners: dict[str, Any], blocks: bool = False) -> dict[str, Any]:
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
        for owner in owners
    ]
    return widget(name, ownerReferences=references)


async def test_dependents_follow_their_owner_through_generations(world: World) -> None:
    owner = await world.post(WIDGETS, widget("owner"))
    child = await world.post(WIDGETS, _owned("child", owner))
    await world.post(WIDGETS, _owned("grandchild", child))
    await world.post(WIDGETS, widget("stranger"))
    await world.delete(f"{WIDGETS}/owner")
    await world.until_gone(f"{WIDGETS}/child")
    await world.until_gone(f"{WIDGETS}/grandchild")
    await world.get(f"{WIDGETS}/stranger")


async def test_a_dependent_with_another_owner_stays_and_forgets_the_first(world: World) -> None:
    first = await world.post(WIDGETS, widget("first"))
    second = await world.post(WIDGETS, widget("second"))
    await world.post(WIDGETS, _owned("child", first, second))
    watch = await world.watch(f"{WIDGETS}?watch=1&resourceVersion={world.server.state.revision}")
    await world.delete(f"{WIDGETS}/first")
    deleted, changed = await watch.take(2)
    assert (deleted["type"], changed["type"]) == ("DELETED", "MODIFIED")
    references = changed["object"]["metadata"]["ownerReferences"]
    assert [reference["name"] for reference in references] == ["second"]


async def test_an_object_whose_owner_never_was_is_collected(world: World) -> None:
    ghost = {
        "apiVersion": "example.io/v1",
        "kind": "Widget",
        "metadata": {"name": "ghost", "uid": "00000000-0000-4000-8000-000000000000"},
    }
    await world.post(WIDGETS, _owned("child", ghost))
    await world.until_gone(f"{WIDGETS}/child")


async def test_an_owner_of_a_kind_that_is_not_served_is_taken_to_exist(world: World) -> None:
    foreign = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "uid": "00000000-0000-4000-8000-000000000000"},
    }
    await world.post(WIDGETS, _owned("child", foreign))
    probe = await world.post(WIDGETS, widget("probe"))
    await world.post(WIDGETS, _owned("probed", probe))
    await world.delete(f"{WIDGETS}/probe")
    await world.until_gone(f"{WIDGETS}/probed")  # by now the collector has looked at both
    await world.get(f"{WIDGETS}/child")


async def test_foreground_deletion_waits_for_dependents_that_block(world: World) -> None:
    owner = await world.post(WIDGETS, widget("owner"))
    child = _owned("child", owner, blocks=True)
    child["metadata"]["finalizers"] = ["example.io/hold"]
    await world.post(WIDGETS, child)
    watch = await world.watch(f"{WIDGETS}?watch=1&resourceVersion={world.server.state.revision}")
    marked = await world.delete(f"{WIDGETS}/owner", {"propagationPolicy": "Foreground"})
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    events = await watch.take(2)
    assert [event["object"]["metadata"]["name"] for event in events] == ["owner", "child"]
    assert events[1]["object"]["metadata"]["deletionTimestamp"]
    await world.get(f"{WIDGETS}/owner")
    await world.patch(f"{WIDGETS}/child", {"metadata": {"finalizers": None}})
    await world.until_gone(f"{WIDGETS}/owner")


async def test_orphans_stay_without_their_owner(world: World) -> None:
    owner = await world.post(WIDGETS, widget("owner"))
    await world.post(WIDGETS, _owned("child", owner))
    await world.delete(f"{WIDGETS}/owner", {"propagationPolicy": "Orphan"})
    await world.until_gone(f"{WIDGETS}/owner")
    assert "ownerReferences" not in (await world.get(f"{WIDGETS}/child"))["metadata"]


async def test_a_namespace_goes_with_everything_in_it(world: World) -> None:
    await world.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    for path, body in (
        (WIDGETS, widget("a")),
        (CONFIG_MAPS, {"metadata": {"name": "a"}}),
        (PODS, pod("a")),
    ):
        await world.post(path.replace("default", "team"), body)
    marked = await world.delete("/api/v1/namespaces/team")
    assert marked["status"]["phase"] == "Terminating"
    await world.until_gone("/api/v1/namespaces/team")
    assert (await world.get("/api/v1/pods"))["items"] == []


async def test_a_terminating_namespace_takes_nothing_new(world: World) -> None:
    await world.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    path = WIDGETS.replace("default", "team")
    await world.post(path, widget("held", finalizers=["example.io/hold"]))
    await world.delete("/api/v1/namespaces/team")
    answer = await world.request("POST", path, widget("late"))
    assert answer.status == 403
    assert answer.message.endswith("because it is being terminated")
    await world.patch(f"{path}/held", {"metadata": {"finalizers": None}})
    await world.until_gone("/api/v1/namespaces/team")


async def test_a_definition_goes_after_the_objects_of_its_kind(world: World) -> None:
    await world.post(WIDGETS, widget("free"))
    await world.post(WIDGETS, widget("held", finalizers=["example.io/hold"]))
    await world.delete(f"{CRDS}/widgets.example.io")
    await world.until_gone(f"{WIDGETS}/free")
    assert (await world.request("POST", WIDGETS, widget("late"))).status == 405
    await world.patch(f"{WIDGETS}/held", {"metadata": {"finalizers": None}})
    await world.until_gone(f"{CRDS}/widgets.example.io")
    assert (await world.request("GET", WIDGETS)).json["reason"] == "NotFound"


async def test_a_restart_goes_on_with_deletions_under_way(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    async with running_world(folder) as world:
        owner = await world.post(WIDGETS, widget("owner"))
        child = _owned("child", owner, blocks=True)
        child["metadata"]["finalizers"] = ["example.io/hold"]
        await world.post(WIDGETS, child)
        await world.delete(f"{WIDGETS}/owner", {"propagationPolicy": "Foreground"})
    async with running_world(folder) as world:
        await world.patch(f"{WIDGETS}/child", {"metadata": {"finalizers": None}})
        await world.until_gone(f"{WIDGETS}/owner")
        await world.until_idle()
