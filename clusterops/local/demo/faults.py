"""Chapter "faults": a GPU falls off the bus under a running job, and nobody has to get up for it.

1. A job trains and saves now and then. Its node's kernel says that a GPU has left the bus (Xid 79).
2. The node takes no more jobs, the job starts again on the other node where it last saved.
3. The node is rebooted. The checks after it find the GPU missing: the vendor gets a ticket, once.
4. The board is replaced. The node is given back when it has proven that it is well, and not before.
"""

import copy
from collections.abc import Mapping
from typing import Any

from clusterops.api import names
from clusterops.local import machines
from clusterops.local.demo import preemption, undisturbed
from clusterops.local.demo.report import FaultReport
from clusterops.local.demo.stage import DemoFailed, Stage
from clusterops.local.demo.timeline import NodeStory

STEPS_BEFORE_THE_FAULT = 70
CHAPTER_SECONDS = 60.0
_JOB = "counter-long.yaml"


async def play(stage: Stage) -> FaultReport:
    """Plays the chapter and measures it.

    Raises:
        DemoFailed: something that had to happen did not.
    """
    job = preemption.load(stage.manifests / "examples" / _JOB)
    name = job["metadata"]["name"]
    story = stage.timeline.story(name)
    await stage.apply(stage.manifests / "queues")
    await stage.apply(stage.manifests / "examples" / _JOB)
    await stage.until(
        lambda: story.last_step >= STEPS_BEFORE_THE_FAULT,
        f"{name} to train {STEPS_BEFORE_THE_FAULT} steps",
        CHAPTER_SECONDS,
    )
    node = await _node_of(stage, job)
    await stage.clusterops("health", "inject", "bus", "--node", node, "--stays")
    line_at = _written_at(stage, node)
    await stage.until(lambda: story.resumed_at is not None, f"{name} to go on", CHAPTER_SECONDS)
    resumed_on = await _node_of(stage, job)
    await stage.until(lambda: bool(_node(stage, node).tickets), "a ticket", CHAPTER_SECONDS)
    verdict_at = _first(stage.timeline.verdicts.get(node, ()), line_at)
    await stage.clusterops("health", "tickets")
    stage.say("", "the vendor replaces the board")
    await stage.clusterops("health", "inject", "replaced", "--node", node)
    await stage.until(
        lambda: _node(stage, node).state == "Done", f"{node} to be given back", CHAPTER_SECONDS
    )
    await stage.until(lambda: bool(story.outcome), f"{name} to finish", CHAPTER_SECONDS)
    tickets = sorted(path.name for path in stage.mode.folder.tickets.glob("*.json"))
    state, reference = await _states(stage, job)
    (first, *_) = story.status["attempts"]
    return FaultReport(
        elapsed_seconds=round(stage.now(), 2),
        job=name,
        outcome=story.outcome,
        node=node,
        resumed_on=resumed_on,
        cause=str(first.get("cause") or ""),
        line_to_verdict_seconds=round(verdict_at - line_at, 2),
        line_to_resumed_seconds=round((story.resumed_at or 0.0) - line_at, 2),
        # Printed or reported, whichever is more: what the job did last, nobody may have heard.
        last_step=max(story.reached, int(first.get("lastStep") or 0)),
        saved_step=int(first.get("durableStep") or 0),
        resumed_step=story.resumed_step,
        tickets=len(tickets),
        given_back=not await _tainted(stage, node),
        state_sha256=state,
        undisturbed_sha256=reference,
    )


async def _node_of(stage: Stage, job: Mapping[str, Any]) -> str:
    metadata = job["metadata"]
    pods, _ = await stage.mode.client.list(
        names.PODS,
        metadata["namespace"],
        label_selector=f"{names.LABEL_JOB}={metadata['name']}",
    )
    running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
    if len(running) != 1:
        raise DemoFailed(f"{metadata['name']} runs in {len(running)} pods, one was expected")
    return str(running[0]["spec"]["nodeName"])


def _written_at(stage: Stage, node: str) -> float:
    """When the newest line of the node's kernel log was written: it carries the kernel's own time."""
    newest = machines.machine(stage.mode.folder, node).kmsg.read_text().splitlines()[-1]
    microseconds = newest.split(",", 3)[2]
    return int(microseconds) / 1e6 - stage.started


def _node(stage: Stage, name: str) -> NodeStory:
    return stage.timeline.nodes.get(name, NodeStory(name))


def _first(moments: tuple[float, ...], after: float) -> float:
    return min((moment for moment in moments if moment >= after), default=after)


async def _states(stage: Stage, job: Mapping[str, Any]) -> tuple[str, str]:
    """What the job ended with, and what the same job ends with undisturbed and without its pauses."""
    finished = undisturbed.read_result(preemption.checkpoints(stage, job))
    hurried = copy.deepcopy(dict(job))
    container = hurried["spec"]["template"]["spec"]["containers"][0]
    container["command"].append("--step-seconds=0")
    folder = stage.mode.folder.root / "undisturbed" / job["metadata"]["name"]
    reference = await undisturbed.run(hurried, folder, CHAPTER_SECONDS)
    return finished.sha256, reference.sha256


async def _tainted(stage: Stage, node: str) -> bool:
    found = await stage.mode.client.get(names.NODES, None, node)
    taints = (found.get("spec") or {}).get("taints") or ()
    return any(taint.get("key") == names.TAINT_HEALTH for taint in taints)
