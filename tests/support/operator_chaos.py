"""A random life of a small cluster from one seed: jobs, whims of users, faults, crashes, late views."""

import random

from support.operator_world import NAMESPACE, World

from clusterops.api.reasons import Cause, Phase
from clusterops.kube.errors import NotFound

FAULTS_SECONDS = 90.0
CALM_SECONDS = 1_500.0


async def live(seed: int) -> World:
    """Runs one life and returns the world for further checks; raises AssertionError for a broken law."""
    rng = random.Random(seed)
    world = World(
        seed,
        crash_rate=rng.choice([0.0, 0.02, 0.1]),
        failure_rate=rng.choice([0.0, 0.05]),
    )
    jobs = [f"job-{number}" for number in range(rng.randint(2, 4))]
    for name in jobs:
        _submit(world, rng, name)
    while world.clock.seconds < FAULTS_SECONDS:
        await world.step()
        if rng.random() < 0.06:
            _whim(world, rng, jobs)
        if rng.random() < 0.03:
            _fault(world, rng)
    # The faults stop: everything must come to an end.
    world.crash_rate = 0.0
    world.client.failure_rate = 0.0
    for node in ("node-0", "node-1"):
        world.node_ready(node, True)
    world.node_ready("node-2", rng.random() < 0.7)  # or it stays dead for good
    for name in jobs:
        if world.job(name) is not None:
            world.edit(name, suspend=False)
    await world.until_final(*jobs, within=CALM_SECONDS)
    await world.run(60.0)  # final jobs have let go of everything
    check_end(world, jobs)
    return world


def check_end(world: World, jobs: list[str]) -> None:
    """What must hold once every job is final."""
    for name in jobs:
        job = world.job(name)
        assert not world.laws.alive(name), f"{name} has ended and has pods"
        if job is None:
            continue
        status = job.status
        errors = world.user_errors.get(name, 0)
        assert status.counts.user_errors <= errors, f"{name} was charged errors it did not make"
        assert status.counts.attempts == status.attempt
        assert all(attempt.ended_at is not None for attempt in status.attempts)
        if status.phase is Phase.SUCCEEDED:
            assert world.durable[name] == world.plans[name]["total"]
        for attempt in status.attempts:
            trainer = world.trainers.get((name, attempt.number))
            closed_in = world.closed_in[(name, attempt.number)]
            acknowledged = trainer is not None and trainer.acknowledged_in == closed_in
            told = attempt.cause in (Cause.PREEMPTED, Cause.SUSPENDED, Cause.CANCELLED)
            if told and acknowledged:
                assert attempt.lost_steps == 0, f"{name} had saved and lost {attempt.lost_steps}"
        workload = world.workload(name)
        assert workload is None or not workload["metadata"].get("finalizers")


def _submit(world: World, rng: random.Random, name: str) -> None:
    spec = {}
    if rng.random() < 0.15:
        spec["activeDeadlineSeconds"] = rng.randint(20, 60)
    if rng.random() < 0.15:
        spec["ttlSecondsAfterFinished"] = rng.randint(0, 30)
    world.submit(
        name,
        replicas=rng.randint(1, 3),
        gpus=rng.randint(1, 2),
        priority=rng.choice(["low", "high", "urgent"]),
        total=rng.randint(10, 60),
        save_seconds=rng.choice([0.5, 2.0, 8.0]),
        obeys=rng.random() < 0.9,
        heartbeats=rng.random() < 0.9,
        fail_at={attempt: rng.randint(1, 30) for attempt in range(1, 8) if rng.random() < 0.2},
        backoffLimit=rng.randint(0, 3),
        **spec,
    )


def _whim(world: World, rng: random.Random, jobs: list[str]) -> None:
    name = rng.choice(jobs)
    job = world.job(name)
    if job is None or job.metadata.deleting:
        return
    wish = rng.random()
    if wish < 0.45:
        world.edit(name, suspend=not job.spec.suspend)
    elif wish < 0.5:
        world.edit(name, stop=rng.choice(["Checkpoint", "Now"]))
    elif wish < 0.55:
        world.delete(name)
    elif wish < 0.8:
        urgent = f"urgent-{len(jobs)}"
        if len(jobs) < 7:
            jobs.append(urgent)
            world.submit(urgent, replicas=2, gpus=rng.randint(2, 4), priority="urgent", total=10)
    else:
        world.edit(name, priorityClassName=rng.choice(["low", "high"]))


def _fault(world: World, rng: random.Random) -> None:
    kind = rng.random()
    try:
        if kind < 0.4:
            node = f"node-{rng.randrange(3)}"
            world.node_ready(node, rng.random() < 0.5)
        elif kind < 0.8:
            pods = world.server.all("pods")
            if pods:
                pod = rng.choice(pods)
                grace = rng.choice([0, 5, 30])
                world.server.delete("pods", NAMESPACE, pod["metadata"]["name"], None, grace)
        else:
            workloads = world.server.all("workloads")
            if workloads:
                name = rng.choice(workloads)["metadata"]["name"]
                world.server.delete("workloads", NAMESPACE, name, None, None)
    except NotFound:
        pass
