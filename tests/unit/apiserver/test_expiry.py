"""Events go an hour after their last change; nothing else does."""

import pytest
from support.apiserver_world import CONFIG_MAPS, World

from clusterops.apiserver.expiry import LIFETIME_SECONDS, EventExpiry

EVENTS = "/api/v1/namespaces/default/events"


def _event(name: str) -> dict:
    about = {"kind": "Pod", "name": "p", "namespace": "default"}
    return {"metadata": {"name": name}, "involvedObject": about, "reason": "R", "message": "m"}


@pytest.fixture
def clock() -> list[float]:
    return [1000.0]


@pytest.fixture
def expiry(world: World, clock: list[float]) -> EventExpiry:
    kind = world.server.kinds.find("", "v1", "events")
    found = world.server.expiry
    made = EventExpiry(world.server.state, found._deletion, kind, lambda: clock[0])
    world.server.state.observers.append(made.observe)
    return made


async def test_an_old_event_goes_and_a_changed_one_gets_another_hour(
    world: World, expiry: EventExpiry, clock: list[float]
) -> None:
    await world.post(CONFIG_MAPS, {"metadata": {"name": "kept"}})
    await world.post(EVENTS, _event("old"))
    await world.post(EVENTS, _event("repeated"))
    clock[0] += LIFETIME_SECONDS - 1
    await world.patch(f"{EVENTS}/repeated", {"count": 2})
    assert await expiry.sweep() == 0
    clock[0] += 1
    assert await expiry.sweep() == 1
    assert (await world.request("GET", f"{EVENTS}/old")).status == 404
    await world.get(f"{EVENTS}/repeated")
    clock[0] += LIFETIME_SECONDS
    assert await expiry.sweep() == 1
    assert (await world.get(EVENTS))["items"] == []
    await world.get(f"{CONFIG_MAPS}/kept")


async def test_after_a_restart_the_hour_starts_anew(
    world: World, expiry: EventExpiry, clock: list[float]
) -> None:
    world.server.state.observers.remove(expiry.observe)
    await world.post(EVENTS, _event("old"))
    expiry.load()
    clock[0] += LIFETIME_SECONDS - 1
    assert await expiry.sweep() == 0
    clock[0] += 1
    assert await expiry.sweep() == 1
