"""Who uses the GPUs: pure, from nodes, pods and jobs to rows and a small picture of letters.

Each job has a letter, each GPU of a node a place: the letter of the job that holds it, a dot where
it is free. GPU time counts from the moment all pods of an attempt ran; a job that changed its size
is counted at its present size.
"""

import string
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from clusterops.api import names
from clusterops.api.pod_template import gpus as gpus_of
from clusterops.cli.identity import submitter
from clusterops.cli.output import parse_time

Json = Mapping[str, Any]
Key = tuple[str, str]

LETTERS = string.ascii_uppercase + string.ascii_lowercase
FREE, SHARED, OVER = ".", "*", "+"
_ENDED = ("Succeeded", "Failed")


class JobUse(NamedTuple):
    """A job and what it holds now. `gpu_seconds` and `lost_gpu_seconds` are of its whole life;
    `letter` is empty for a job that holds nothing.
    """

    namespace: str
    name: str
    user: str
    phase: str
    letter: str
    gpus: int
    running_seconds: float
    gpu_seconds: float
    lost_gpu_seconds: float
    steps_per_second: float | None


class NodeUse(NamedTuple):
    """A node. `holders` are (letter, GPUs) of those that use it, largest first."""

    name: str
    state: str
    gpus: int
    used: int
    holders: tuple[tuple[str, int], ...]

    @property
    def picture(self) -> str:
        """A sign for each GPU."""
        held = "".join(letter * count for letter, count in self.holders)
        return held[: self.gpus] + FREE * (self.gpus - len(held)) + OVER * (len(held) > self.gpus)


class Usage(NamedTuple):
    """Everything at one moment, jobs that hold most first."""

    nodes: tuple[NodeUse, ...]
    jobs: tuple[JobUse, ...]


def usage(
    nodes: Iterable[Json], pods: Iterable[Json], jobs: Iterable[Json], now: datetime
) -> Usage:
    """What is held where, and by whom. Pods that have ended, or are on no node, hold nothing."""
    held: dict[str, dict[Key, int]] = {}
    for pod in pods:
        key, node, count = _holding(pod)
        if count:
            on_node = held.setdefault(node, {})
            on_node[key] = on_node.get(key, 0) + count
    totals: dict[Key, int] = {}
    for on_node in held.values():
        for key, count in on_node.items():
            totals[key] = totals.get(key, 0) + count
    order = sorted(totals, key=lambda key: (-totals[key], key))
    letters = {
        key: LETTERS[place] if place < len(LETTERS) else SHARED for place, key in enumerate(order)
    }
    found = [_job(job, totals, letters, now) for job in jobs]
    return Usage(
        tuple(_node(node, held, letters) for node in nodes),
        tuple(
            sorted(found, key=lambda job: (-job.gpus, -job.gpu_seconds, job.namespace, job.name))
        ),
    )


def _holding(pod: Json) -> tuple[Key, str, int]:
    metadata = pod["metadata"]
    job = (metadata.get("labels") or {}).get(names.LABEL_JOB, "")
    spec = pod.get("spec") or {}
    node = spec.get("nodeName") or ""
    ended = (pod.get("status") or {}).get("phase") in _ENDED
    return (metadata["namespace"], job), node, 0 if ended or not node else gpus_of({"spec": spec})


def _node(node: Json, held: Mapping[str, Mapping[Key, int]], letters: Mapping[Key, str]) -> NodeUse:
    name = node["metadata"]["name"]
    status = node.get("status") or {}
    amount = str((status.get("allocatable") or {}).get(names.RESOURCE_GPU) or "0")
    here = held.get(name, {})
    holders = sorted(here.items(), key=lambda each: (-each[1], each[0]))
    return NodeUse(
        name,
        _state(node),
        int(amount) if amount.isdecimal() else 0,
        sum(here.values()),
        tuple((letters[key], count) for key, count in holders),
    )


def _state(node: Json) -> str:
    """The worst that is known of a node."""
    spec = node.get("spec") or {}
    conditions = (node.get("status") or {}).get("conditions") or ()
    if not any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
        return "NotReady"
    if any(taint.get("key") == names.TAINT_HEALTH for taint in spec.get("taints") or ()):
        return "Faulty"
    return "Cordoned" if spec.get("unschedulable") else "Ready"


def _job(job: Json, totals: Mapping[Key, int], letters: Mapping[Key, str], now: datetime) -> JobUse:
    metadata, status = job["metadata"], job.get("status") or {}
    key = (metadata["namespace"], metadata["name"])
    attempts: Sequence[Json] = status.get("attempts") or ()
    started = parse_time(attempts[-1].get("startedAt")) if attempts else None
    open_since = started if attempts and not attempts[-1].get("endedAt") else None
    running = max(0.0, (now - open_since).total_seconds()) if open_since is not None else 0.0
    ran = float(status.get("ranSeconds") or 0.0) + running
    return JobUse(
        *key,
        submitter(metadata.get("annotations")),
        str(status.get("phase") or "Pending"),
        letters.get(key, ""),
        totals.get(key, 0),
        running,
        ran * int(status.get("gpus") or 0),
        float((status.get("counts") or {}).get("lostGpuSeconds") or 0.0),
        (status.get("progress") or {}).get("stepsPerSecond"),
    )
