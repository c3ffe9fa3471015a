"""Deleting objects: at once, after finalizers, after a grace period, many together."""

from support.apiserver_world import PODS, WIDGETS, World, pod, widget


async def _running_pod(world: World, name: str = "a", **metadata: object) -> dict:
    made = await world.post(PODS, pod(name, **metadata))
    target = {"kind": "Node", "name": "n1"}
    await world.post(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})
    return made


async def test_a_custom_resource_is_gone_at_once_and_its_uid_is_answered(world: World) -> None:
    made = await world.post(WIDGETS, widget("a"))
    answer = await world.delete(f"{WIDGETS}/a")
    assert answer["status"] == "Success"
    assert answer["details"]["uid"] == made["metadata"]["uid"]
    assert (await world.request("GET", f"{WIDGETS}/a")).status == 404


async def test_finalizers_keep_an_object_until_the_last_is_gone(world: World) -> None:
    await world.post(WIDGETS, widget("a", finalizers=["example.io/x", "example.io/y"]))
    marked = await world.delete(f"{WIDGETS}/a")
    assert marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["generation"] == 2
    assert await world.delete(f"{WIDGETS}/a") == marked
    await world.patch(f"{WIDGETS}/a", {"metadata": {"finalizers": ["example.io/y"]}})
    assert (await world.get(f"{WIDGETS}/a"))["metadata"]["finalizers"] == ["example.io/y"]
    await world.patch(f"{WIDGETS}/a", {"metadata": {"finalizers": None}})
    assert (await world.request("GET", f"{WIDGETS}/a")).status == 404


async def test_a_wrong_uid_or_revision_is_a_conflict(world: World) -> None:
    await world.post(WIDGETS, widget("a"))
    for precondition in ({"uid": "no"}, {"resourceVersion": "1"}):
        answer = await world.request("DELETE", f"{WIDGETS}/a", {"preconditions": precondition})
        assert answer.status == 409
        assert "Precondition failed" in answer.message
    assert (await world.request("GET", f"{WIDGETS}/a")).status == 200


async def test_a_scheduled_pod_stays_until_the_node_lets_go(world: World) -> None:
    await _running_pod(world)
    marked = await world.delete(f"{PODS}/a")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert (await world.get(f"{PODS}/a"))["metadata"]["deletionTimestamp"]
    await world.delete(f"{PODS}/a", {"gracePeriodSeconds": 0})
    assert (await world.request("GET", f"{PODS}/a")).status == 404


async def test_a_shorter_grace_period_moves_the_deadline_forward_only(world: World) -> None:
    await _running_pod(world)
    first = await world.delete(f"{PODS}/a", {"gracePeriodSeconds": 60})
    shorter = await world.delete(f"{PODS}/a", {"gracePeriodSeconds": 10})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 10
    assert shorter["metadata"]["deletionTimestamp"] < first["metadata"]["deletionTimestamp"]
    longer = await world.delete(f"{PODS}/a", {"gracePeriodSeconds": 300})
    assert longer == shorter


async def test_unscheduled_and_finished_pods_go_at_once(world: World) -> None:
    await world.post(PODS, pod("waiting"))
    await world.delete(f"{PODS}/waiting")
    assert (await world.request("GET", f"{PODS}/waiting")).status == 404
    await _running_pod(world, "done")
    await world.patch(f"{PODS}/done/status", {"status": {"phase": "Succeeded"}})
    await world.delete(f"{PODS}/done")
    assert (await world.request("GET", f"{PODS}/done")).status == 404


async def test_a_pod_with_finalizers_waits_for_both(world: World) -> None:
    await _running_pod(world, finalizers=["example.io/x"])
    await world.delete(f"{PODS}/a")
    await world.patch(f"{PODS}/a", {"metadata": {"finalizers": None}})
    assert (await world.request("GET", f"{PODS}/a")).status == 200
    await world.delete(f"{PODS}/a", {"gracePeriodSeconds": 0})
    assert (await world.request("GET", f"{PODS}/a")).status == 404


async def test_an_eviction_deletes_with_grace(world: World) -> None:
    await _running_pod(world)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    answer = await world.request("POST", f"{PODS}/a/eviction", eviction)
    assert answer.status == 201
    assert (await world.get(f"{PODS}/a"))["metadata"]["deletionTimestamp"]


async def test_a_collection_is_deleted_by_selector_and_listed(world: World) -> None:
    for number in range(6):
        labels = {"side": "left" if number % 2 else "right"}
        await world.post(WIDGETS, widget(f"w{number}", labels=labels))
    answer = await world.delete(f"{WIDGETS}?labelSelector=side%3Dleft")
    assert answer["kind"] == "WidgetList"
    assert [item["metadata"]["name"] for item in answer["items"]] == ["w1", "w3", "w5"]
    left = (await world.get(WIDGETS))["items"]
    assert [item["metadata"]["name"] for item in left] == ["w0", "w2", "w4"]


async def test_what_cannot_be_read_is_refused(world: World) -> None:
    await world.post(WIDGETS, widget("a"))
    for body in ({"gracePeriodSeconds": "soon"}, {"propagationPolicy": "Sideways"}):
        assert (await world.request("DELETE", f"{WIDGETS}/a", body)).status == 400
    assert (await world.request("GET", f"{WIDGETS}/a")).status == 200
