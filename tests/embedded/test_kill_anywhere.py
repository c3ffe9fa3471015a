"""`kill -9` of all of local mode, at random instants and at every listed write point.

Jobs' own processes live on, as they would when a machine's services crash. Whatever the instant: all
jobs finish, none ran twice at once, and each ends in exactly the state of an undisturbed run.

CLUSTEROPS_KILLS=50 sets how many random instants; CLUSTEROPS_SOAK=1 takes every write point of every
part instead of a few.
"""

import os
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support import counter_job
from support.local_run import LocalRun, eventually

from clusterops.apiserver import failpoints as apiserver_points
from clusterops.operator import failpoints as operator_points

pytestmark = [pytest.mark.embedded, pytest.mark.slow, pytest.mark.timeout(1800)]

SOAK = "CLUSTEROPS_SOAK" in os.environ
KILLS = int(os.environ.get("CLUSTEROPS_KILLS", "50" if SOAK else "5"))
SEED = int(os.environ.get("CLUSTEROPS_SEED", "1"))
FINISH_SECONDS = 180.0

LOW_STEPS, URGENT_STEPS = 300, 20
# At a write point everything happens early; a short job suffices.
SHORT_STEPS = 120


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LocalRun]:
    run = LocalRun(tmp_path / "state")
    yield run
    if run.process is not None and run.process.poll() is None:
        run.stop()
    assert run.leftover_processes() == []


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    return {
        steps: counter_job.undisturbed_digest(tmp_path_factory.mktemp(f"{steps}"), steps)
        for steps in (LOW_STEPS, SHORT_STEPS, URGENT_STEPS)
    }


def submit(run: LocalRun, steps: int) -> None:
    for name in ("low-a", "low-b"):
        run.kubectl("apply", "-f", "-", stdin=counter_job.manifest(name, steps=steps))


def submit_urgent(run: LocalRun) -> None:
    urgent = counter_job.manifest("urgent", steps=URGENT_STEPS, priority="high")
    run.kubectl("apply", "-f", "-", stdin=urgent)


def all_finished_undisturbed(run: LocalRun, expected: dict[int, str], low_steps: int) -> None:
    jobs = {"low-a": low_steps, "low-b": low_steps, "urgent": URGENT_STEPS}
    eventually(
        lambda: all(run.phase(job) == "Succeeded" for job in jobs),
        f"all jobs to succeed; state in {run.folder}",
        FINISH_SECONDS,
    )
    for job, steps in jobs.items():
        assert counter_job.overlaps(run.folder, job) == []
        assert counter_job.result(run.folder, job)["stateSha256"] == expected[steps]
        counts = run.jobs()[job]["status"]["counts"]
        assert counts["userErrors"] == 0, f"{job}: a crash of ours was charged to its user"


def test_at_random_instants(run: LocalRun, expected: dict[int, str]):
    chance = random.Random(SEED)
    print(f"seed {SEED}, {KILLS} kills")
    run.start()
    submit(run, LOW_STEPS)
    for kill in range(KILLS):
        if kill == KILLS // 3:
            submit_urgent(run)
        # Some instants fall into the start itself, some long after it.
        time.sleep(chance.uniform(0.0, 2.0))
        run.kill()
        run.start(wait=chance.random() < 0.7)
        if kill == KILLS // 3 - 1:
            run.wait_ready()
    run.wait_ready()
    all_finished_undisturbed(run, expected, LOW_STEPS)


def write_points() -> list[tuple[str, str]]:
    """(environment variable, value) of every write point of the API server and the operator."""
    points = [
        (apiserver_points.ENVIRONMENT, f"{point}:9") for point in apiserver_points.WRITE_POINTS
    ]
    points += [
        (operator_points.ENVIRONMENT, f"{side}:{point}:1")
        for point in operator_points.WRITE_POINTS
        for side in ("before", "after")
    ]
    return points


FEW = (
    (apiserver_points.ENVIRONMENT, f"{apiserver_points.COMMIT_AFTER}:60"),
    (operator_points.ENVIRONMENT, "before:release-quota:1"),
    (operator_points.ENVIRONMENT, "after:release-quota:1"),
    (operator_points.ENVIRONMENT, "after:create-pod:1"),
)


@pytest.mark.parametrize(
    ("variable", "passage"), write_points() if SOAK else FEW, ids=lambda value: str(value)
)
def test_at_a_write_point(run: LocalRun, expected: dict[int, str], variable: str, passage: str):
    run.environment = {variable: passage}
    run.start(wait=False)
    killed_part = "apiserver" if variable == apiserver_points.ENVIRONMENT else "operator"
    if run.comes_up(20.0):
        for step in (partial(submit, steps=SHORT_STEPS), submit_urgent):
            try:
                step(run)
                run.wait_phase("low-a", "Running", 15.0)
            except AssertionError:
                break  # the point was reached: the server is down at this instant
        run.restarted_within(killed_part, 15.0)
    run.kill()
    run.environment = {}
    run.start()
    submit(run, SHORT_STEPS)
    submit_urgent(run)
    all_finished_undisturbed(run, expected, SHORT_STEPS)
