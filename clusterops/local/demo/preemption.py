"""Chapter "preemption": an urgent job takes GPUs from a running one, which loses nothing.

1. A job of low priority fills the cluster and trains.
2. A short job of high priority needs half of its GPUs. The first is told, saves, gives its GPUs back.
3. The urgent job runs and finishes; the first comes back by itself and goes on where it saved.
4. Both end with exactly the weights of the same runs undisturbed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from clusterops.api.reasons import Phase
from clusterops.local.demo import undisturbed
from clusterops.local.demo.report import DemoReport, JobReport
from clusterops.local.demo.stage import GPUS_PER_NODE, NODES, Stage

STEPS_BEFORE_THE_URGENT_JOB = 60
CHAPTER_SECONDS = 120.0


async def play(stage: Stage) -> DemoReport:
    """Plays the chapter and measures it.

    Raises:
        DemoFailed: something that had to happen did not.
    """
    return await contest(stage, "train-low.yaml", "train-high.yaml", STEPS_BEFORE_THE_URGENT_JOB)


async def contest(stage: Stage, running: str, urgent: str, steps_before: int) -> DemoReport:
    """One example runs, and after some steps has to make room for another.

    Raises:
        DemoFailed: something that had to happen did not.
    """
    examples = stage.manifests / "examples"
    low, high = (load(examples / name) for name in (running, urgent))
    low_name, high_name = low["metadata"]["name"], high["metadata"]["name"]
    timeline = stage.timeline

    await stage.apply(stage.manifests / "queues")
    await stage.apply(examples / running)
    await stage.until(
        lambda: timeline.story(low_name).last_step >= steps_before,
        f"{low_name} to train {steps_before} steps",
        CHAPTER_SECONDS,
    )
    stage.say("", "something more urgent arrives")
    await stage.apply(examples / urgent)
    await stage.until(
        lambda: timeline.story(high_name).first_step_at is not None,
        f"{high_name} to take its first step",
        CHAPTER_SECONDS,
    )
    await stage.until(
        lambda: all(timeline.story(name).outcome for name in (low_name, high_name)),
        "both jobs to finish",
        CHAPTER_SECONDS,
    )
    stage.say("", "the same training runs once more, undisturbed, to compare the weights")
    reports = [await _report(stage, job) for job in (low, high)]
    first_step = timeline.story(high_name).first_step_at
    notice = timeline.story(low_name).notice_at
    return DemoReport(
        elapsed_seconds=round(stage.now(), 2),
        eviction_to_preemptor_first_step_seconds=round((first_step or 0.0) - (notice or 0.0), 2),
        peak_gpus=timeline.peak_gpus(),
        quota_gpus=NODES * GPUS_PER_NODE,
        jobs=reports,
    )


async def _report(stage: Stage, job: Mapping[str, Any]) -> JobReport:
    name = job["metadata"]["name"]
    story = stage.timeline.story(name)
    counts = story.status.get("counts") or {}
    finished = (
        undisturbed.read_result(checkpoints(stage, job))
        if story.outcome == Phase.SUCCEEDED
        else undisturbed.Result(None, "")
    )
    reference = await undisturbed.run(
        job, stage.mode.folder.root / "undisturbed" / name, CHAPTER_SECONDS
    )
    return JobReport(
        name=name,
        outcome=story.outcome,
        attempts=int(counts.get("attempts") or 0),
        preemptions=int(counts.get("preemptions") or 0),
        lost_steps=int(counts.get("lostSteps") or 0),
        notice_seconds=round(story.notice_seconds, 2),
        final_loss=finished.final_loss,
        weights_sha256=finished.sha256,
        undisturbed_sha256=reference.sha256,
    )


def checkpoints(stage: Stage, job: Mapping[str, Any]) -> Path:
    """Where a job's checkpoint directory lies on this machine: below the claim that it is mounted
    from.
    """
    directory = Path(job["spec"]["checkpoint"]["directory"])
    pod = job["spec"]["template"]["spec"]
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["volumes"]
        if "persistentVolumeClaim" in volume
    }
    for mount in pod["containers"][0]["volumeMounts"]:
        if directory.is_relative_to(mount["mountPath"]) and mount["name"] in claims:
            volumes = stage.mode.folder.volumes / str(job["metadata"]["namespace"])
            return volumes / str(claims[mount["name"]]) / directory.relative_to(mount["mountPath"])
    raise ValueError(f"{directory} lies in no persistent volume claim of the job")


def load(path: Path) -> dict[str, Any]:
    """One object of the shipped manifests."""
    loaded = yaml.safe_load(path.read_text())
    if not isinstance(loaded, dict):
        raise TypeError(f"{path} must hold one object")
    return loaded
