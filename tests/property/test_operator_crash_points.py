"""The operator is killed just before and just after each of its writes, once; nothing is lost."""

import pytest
from support.operator_chaos import check_end
from support.operator_world import NAMESPACE, World

from clusterops.api.reasons import Cause, Phase
from clusterops.operator.failpoints import WRITE_POINTS

# Not part of this life: runtime `containers` alone makes Services.
ELSEWHERE = {"create-service"}


async def _life(world: World) -> None:
    """Passes every write point: preemption, its cancellation, suspension, failure, TTL, deletion."""
    world.lag = False
    world.submit("victim", total=60, save_seconds=6)
    world.submit("doomed", total=1000, gpus=1, save_seconds=6)
    world.submit("flaky", total=12, gpus=1, replicas=1, fail_at={1: 3}, ttlSecondsAfterFinished=5)
    await world.run(6)
    world.submit("fleeting", priority="urgent", replicas=1, gpus=8, total=5)
    await world.run(1.5)
    world.delete("fleeting")
    await world.run(4)
    backing_off = world.workload("flaky")
    assert backing_off is not None
    if (
        "admission" not in backing_off["status"]
    ):  # a queue that stops and starts overwrites the hold
        world._condition(backing_off, ("QuotaReserved", False, "Inadmissible", ""))
    await world.run(4)
    world.submit("urgent", priority="urgent", replicas=2, gpus=4, total=10)
    await world.run(40)
    world.edit("victim", suspend=True)
    await world.run(15)
    world.edit("victim", suspend=False)
    await world.run(5)
    for workload in world.server.all("workloads"):
        if workload["metadata"]["name"].startswith("trainingjob-doomed"):
            name = workload["metadata"]["name"]
            world.server.delete("workloads", NAMESPACE, name, None, None)
    await world.run(20)
    world.edit("doomed", suspend=True)
    await world.run(25)
    finished_by_others = world.workload("doomed")
    if finished_by_others is not None:
        world._condition(finished_by_others, ("Finished", True, "OwnerNotFound", ""))
    world.edit("doomed", suspend=False)
    await world.run(20)
    world.delete("doomed")
    await world.until_final("victim", "doomed", "flaky", "urgent", "fleeting", within=600)
    await world.run(60)


def _check(world: World) -> None:
    check_end(world, ["victim", "urgent"])
    for gone in ("doomed", "flaky", "fleeting"):
        assert world.job(gone) is None
        assert world.workload(gone) is None
    victim = world.job("victim")
    assert victim is not None
    assert victim.status.phase is Phase.SUCCEEDED
    assert victim.status.counts.user_errors == 0
    causes = {attempt.cause for attempt in victim.status.attempts}
    assert causes <= {Cause.PREEMPTED, Cause.SUSPENDED, Cause.EVICTED, Cause.COMPLETED}


async def test_this_life_passes_every_write_point() -> None:
    world = World(1)
    await _life(world)
    passed = {passage.partition(":")[2] for passage in world.passages}
    assert passed | ELSEWHERE == set(WRITE_POINTS)
    _check(world)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("point", [p for p in WRITE_POINTS if p not in ELSEWHERE])
async def test_killed_at(side: str, point: str) -> None:
    world = World(1)
    world.crash_at = (f"{side}:{point}", 1)
    await _life(world)
    assert world.crashes == 1
    _check(world)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("point", [p for p in WRITE_POINTS if p not in ELSEWHERE])
async def test_killed_at_the_second_time(side: str, point: str) -> None:
    world = World(2)
    world.crash_at = (f"{side}:{point}", 2)
    await _life(world)
    _check(world)
