"""Getting and listing."""

from support.apiserver_world import CONFIG_MAPS, WIDGETS, World, widget

TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
PARTIAL = {"accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}


async def _fill(world: World, count: int, path: str = WIDGETS) -> None:
    for number in range(count):
        labels = {"parity": "odd" if number % 2 else "even"}
        await world.post(path, widget(f"w{number:02}", number, labels=labels))


def _names(answer: dict) -> list[str]:
    return [item["metadata"]["name"] for item in answer["items"]]


async def test_a_missing_object_is_not_found_in_kubernetes_words(world: World) -> None:
    answer = await world.request("GET", f"{WIDGETS}/a")
    assert answer.status == 404
    assert answer.message == 'widgets.example.io "a" not found'
    assert (await world.request("GET", f"{CONFIG_MAPS}/a")).message == 'configmaps "a" not found'


async def test_a_list_is_sorted_and_carries_the_revision(world: World) -> None:
    for name in ("c", "a", "b"):
        await world.post(WIDGETS, widget(name))
    listed = await world.get(WIDGETS)
    assert listed["kind"] == "WidgetList"
    assert _names(listed) == ["a", "b", "c"]
    assert listed["metadata"]["resourceVersion"] == str(world.server.state.revision)


async def test_pages_are_of_one_snapshot_whatever_happens_between_them(world: World) -> None:
    await _fill(world, 7)
    first = await world.get(f"{WIDGETS}?limit=3")
    assert first["metadata"]["remainingItemCount"] == 4
    await world.delete(f"{WIDGETS}/w03")
    await world.post(WIDGETS, widget("w035"))
    await world.patch(f"{WIDGETS}/w04", {"spec": {"size": 99}})
    names, sizes = _names(first), [item["spec"]["size"] for item in first["items"]]
    token = first["metadata"]["continue"]
    while token:
        page = await world.get(f"{WIDGETS}?limit=3&continue={token}")
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        names += _names(page)
        sizes += [item["spec"]["size"] for item in page["items"]]
        token = page["metadata"].get("continue")
    assert names == [f"w{number:02}" for number in range(7)]
    assert sizes == list(range(7))


async def test_pages_stay_within_their_namespace(world: World) -> None:
    await world.post("/api/v1/namespaces", {"metadata": {"name": "z-other"}})
    await _fill(world, 4)
    await _fill(world, 3, WIDGETS.replace("default", "z-other"))
    page = await world.get(f"{WIDGETS}?limit=2")
    assert page["metadata"]["remainingItemCount"] == 2
    last = await world.get(f"{WIDGETS}?limit=9&continue={page['metadata']['continue']}")
    assert _names(page) + _names(last) == ["w00", "w01", "w02", "w03"]
    assert "continue" not in last["metadata"]
    everywhere = await world.get("/apis/example.io/v1/widgets?limit=5")
    assert everywhere["metadata"]["remainingItemCount"] == 2


async def test_pages_of_a_selection_tell_no_count_and_end_exactly(world: World) -> None:
    await _fill(world, 8)
    path = f"{WIDGETS}?limit=2&labelSelector=parity%3Dodd"
    first = await world.get(path)
    assert "remainingItemCount" not in first["metadata"]
    second = await world.get(f"{path}&continue={first['metadata']['continue']}")
    assert _names(first) + _names(second) == ["w01", "w03", "w05", "w07"]
    assert "continue" not in second["metadata"]


async def test_a_token_that_is_too_old_or_not_ours_is_refused(world: World) -> None:
    await _fill(world, 3)
    token = (await world.get(f"{WIDGETS}?limit=1"))["metadata"]["continue"]
    await world.delete(f"{WIDGETS}/w00")
    world.server.state._snapshots.clear()  # as after five minutes, or a restart
    expired = await world.request("GET", f"{WIDGETS}?limit=1&continue={token}")
    assert (expired.status, expired.json["reason"]) == (410, "Expired")
    assert (await world.request("GET", f"{WIDGETS}?continue=xyz")).status == 400


async def test_a_revision_of_the_future_times_out(world: World) -> None:
    future = world.server.state.revision + 100
    answer = await world.request("GET", f"{WIDGETS}?resourceVersion={future}")
    assert answer.status == 504
    assert answer.message.startswith(f"Too large resource version: {future}")


async def test_an_exact_revision_is_served_while_it_is_known(world: World) -> None:
    made = await world.post(WIDGETS, widget("a"))
    revision = made["metadata"]["resourceVersion"]
    path = f"{WIDGETS}?resourceVersion={revision}&resourceVersionMatch=Exact"
    assert _names(await world.get(path)) == ["a"]
    await world.delete(f"{WIDGETS}/a")
    assert (await world.request("GET", path)).status == 410


async def test_fields_select_names_without_looking_at_others(world: World) -> None:
    await _fill(world, 3)
    listed = await world.get(f"{WIDGETS}?fieldSelector=metadata.name%3Dw01")
    assert _names(listed) == ["w01"]
    elsewhere = await world.get(f"{WIDGETS}?fieldSelector=metadata.namespace%3Delsewhere")
    assert _names(elsewhere) == []
    answer = await world.request("GET", f"{WIDGETS}?fieldSelector=spec.colour%3Dgrey")
    assert answer.status == 400


async def test_tables_and_metadata_are_made_on_request(world: World) -> None:
    await _fill(world, 2)
    table = (await world.request("GET", WIDGETS, headers=TABLE)).json
    assert table["kind"] == "Table"
    assert [row["cells"][0] for row in table["rows"]] == ["w00", "w01"]
    bare = (await world.request("GET", f"{WIDGETS}?includeObject=None", headers=TABLE)).json
    assert bare["rows"][0]["object"] is None
    partial = (await world.request("GET", WIDGETS, headers=PARTIAL)).json
    assert partial["kind"] == "PartialObjectMetadataList"
    assert "spec" not in partial["items"][0]


async def test_generated_clients_that_like_protobuf_get_json(world: World) -> None:
    headers = {"accept": "application/vnd.kubernetes.protobuf,application/json"}
    answer = await world.request("GET", WIDGETS, headers=headers)
    assert answer.headers["content-type"] == "application/json"
    refused = await world.request("GET", WIDGETS, headers={"accept": "text/html"})
    assert refused.status == 406
