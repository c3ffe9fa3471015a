"""Who uses the GPUs."""

from datetime import UTC, datetime

import pytest

from clusterops.cli import top
from clusterops.cli.options import Format
from clusterops.cli.usage import NodeUse, usage

NOW = datetime(2026, 11, 30, 19, 10, tzinfo=UTC)
GPU = "nvidia.com/gpu"


def node(name: str, gpus: int, *, ready: bool = True, **spec: object) -> dict:
    condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
    status = {"allocatable": {GPU: str(gpus)}, "conditions": [condition]}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def pod(job: str, gpus: int, on: str | None, phase: str = "Running") -> dict:
    container = {"name": "t", "resources": {"limits": {GPU: str(gpus)}}}
    return {
        "metadata": {"namespace": "research", "labels": {"clusterops.io/job": job}},
        "spec": {"containers": [container], **({"nodeName": on} if on else {})},
        "status": {"phase": phase},
    }


def job(name: str, **status: object) -> dict:
    annotations = {"clusterops.io/user": f"{name}'s owner"}
    metadata = {"namespace": "research", "name": name, "annotations": annotations}
    return {"metadata": metadata, "status": status}


NODES = [node("n0", 4), node("n1", 4), node("n2", 2, ready=False)]
PODS = [
    pod("big", 4, "n0"),
    pod("big", 1, "n1"),
    pod("small", 2, "n1"),
    pod("small", 2, "n1", "Succeeded"),
    pod("waits", 4, None, "Pending"),
]
JOBS = [
    job("small", phase="Running", gpus=2),
    job(
        "big",
        phase="Running",
        gpus=5,
        ranSeconds=100.0,
        attempts=[
            {"number": 1, "endedAt": "x"},
            {"number": 2, "startedAt": "2026-11-30T19:00:00Z"},
        ],
        counts={"lostGpuSeconds": 350.0},
    ),
    job("waits", phase="Starting", gpus=4),
    job("done", phase="Succeeded", gpus=1, ranSeconds=50.0),
]


def test_each_gpu_shows_who_holds_it() -> None:
    found = usage(NODES, PODS, JOBS, NOW)
    assert [(each.name, each.picture, each.used) for each in found.nodes] == [
        ("n0", "AAAA", 4),
        ("n1", "BBA.", 3),
        ("n2", "..", 0),
    ]
    assert [(each.name, each.letter, each.gpus) for each in found.jobs] == [
        ("big", "A", 5),
        ("small", "B", 2),
        ("done", "", 0),
        ("waits", "", 0),
    ]


def test_gpu_time_is_that_of_all_attempts_and_the_running_one() -> None:
    (big, *_, done, _) = usage(NODES, PODS, JOBS, NOW).jobs
    assert (big.running_seconds, big.gpu_seconds, big.lost_gpu_seconds) == (600.0, 3500.0, 350.0)
    assert (done.running_seconds, done.gpu_seconds) == (0.0, 50.0)
    assert big.user == "big's owner"


@pytest.mark.parametrize(
    ("made", "state"),
    [
        (node("n", 1), "Ready"),
        (node("n", 1, ready=False), "NotReady"),
        (node("n", 1, unschedulable=True), "Cordoned"),
        (node("n", 1, taints=[{"key": "clusterops.io/health"}], unschedulable=True), "Faulty"),
    ],
)
def test_a_node_shows_the_worst_that_is_known_of_it(made: dict, state: str) -> None:
    assert usage([made], [], [], NOW).nodes[0].state == state


def test_more_than_a_node_has_is_marked() -> None:
    assert NodeUse("n", "Ready", 2, 3, (("A", 3),)).picture == "AA+"


def test_the_page_sums_up_and_leaves_out_what_holds_nothing(capsys) -> None:
    found = usage(NODES, PODS, JOBS, NOW)
    assert top.summary(found) == ("10 GPUs on 3 nodes: 7 used by 2 jobs, 1 free, 2 out of use")
    top.show(found, Format.TABLE, None, every=False)
    said = capsys.readouterr().out
    assert "research/big" in said
    assert "10.0%" in said
    assert "research/done" not in said
    top.show(found, Format.TABLE, None, every=True)
    assert "research/done" in capsys.readouterr().out
    top.show(found, Format.TABLE, 1, every=False)
    said = capsys.readouterr()
    assert "research/small" not in said.out
    assert "3 more rows are not shown" in said.err
