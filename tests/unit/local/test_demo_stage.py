"""A chapter waits as long as something goes forward, and no longer."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from clusterops.local.demo.stage import DemoFailed, Stage
from clusterops.local.demo.timeline import JobStory


@pytest.fixture
def stage() -> Stage:
    return Stage(SimpleNamespace(), Path(), lambda _: None)


async def test_a_slow_machine_is_no_failure(stage: Stage) -> None:
    """Longer than the patience in all, but never without a step for as long."""
    story = stage.timeline.jobs.setdefault("job", JobStory("job", phase="Running"))

    async def train() -> None:
        for step in range(1, 7):
            await asyncio.sleep(0.5)
            story.last_step = step
            stage._changed.set()

    training = asyncio.create_task(train())
    await stage.until(lambda: story.last_step == 6, "six steps", 2.0)
    await training


async def test_nothing_going_forward_ends_the_wait(stage: Stage) -> None:
    stage.timeline.jobs["job"] = JobStory("job", phase="Running", last_step=3)
    with pytest.raises(DemoFailed, match=r"for the moon.*without a step forward.*'Running'"):
        await stage.until(lambda: False, "the moon", 0.05)


async def test_a_job_that_never_ends_starting_anew_is_not_waited_for_for_ever(stage: Stage) -> None:
    story = stage.timeline.jobs.setdefault("job", JobStory("job", phase="Running"))

    def never() -> bool:
        story.last_step += 1
        return False

    with pytest.raises(DemoFailed):
        await stage.until(never, "its end", 0.02)


async def test_a_failed_job_ends_the_wait_at_once(stage: Stage) -> None:
    stage.timeline.jobs["job"] = JobStory("job", outcome="Failed", status={"message": "no disk"})
    with pytest.raises(DemoFailed, match="no disk"):
        await stage.until(lambda: False, "its end", 60.0)
