"""What a person should know about a job before it costs them."""

import pytest

from clusterops.cli import cautions


def job(*, directory: str | None = None, status: dict | None = None, **limits: str) -> dict:
    resources = {name.replace("gpu", "nvidia.com/gpu"): value for name, value in limits.items()}
    container = {"name": "t", "command": ["x"], "resources": {"limits": resources}}
    return {
        "metadata": {"name": "llm", "namespace": "research"},
        "spec": {
            "template": {"spec": {"containers": [container]}},
            **({"checkpoint": {"directory": directory}} if directory else {}),
        },
        "status": status or {},
    }


def node(name: str, **allocatable: str) -> dict:
    amounts = {key.replace("gpu", "nvidia.com/gpu"): value for key, value in allocatable.items()}
    return {"metadata": {"name": name}, "status": {"allocatable": amounts}}


NODES = [node("small", gpu="2", cpu="64"), node("large", gpu="4", cpu="8"), node("bare", cpu="96")]


def test_a_pod_larger_than_any_node_is_told_with_the_largest() -> None:
    assert cautions.outsized(job(gpu="8"), NODES) == (
        "each of its pods asks for 8 nvidia.com/gpu, and the largest node, large, has 4"
    )
    assert "asks for 100 cpu, and the largest node, bare, has 96" in cautions.outsized(
        job(cpu="100"), NODES
    )


def test_a_pod_that_no_single_node_holds_altogether_is_told_too() -> None:
    said = cautions.outsized(job(gpu="4", cpu="32"), NODES)
    assert "no single node has 32 cpu and 4 nvidia.com/gpu" in said
    assert "large" in said


@pytest.mark.parametrize(
    ("limits", "nodes"),
    [
        ({"gpu": "4"}, NODES),
        ({"gpu": "2", "cpu": "64"}, NODES),
        ({}, NODES),
        ({"gpu": "8"}, []),  # nodes that nobody may see, or that come with the job
        ({"cpu": "8", "memory": "1Gi"}, [node("silent")]),  # it does not say how much it has
        ({"cpu": "1"}, [node("odd", cpu="many")]),
        ({"gpu": "several"}, NODES),  # the queue refuses it in words of its own
    ],
)
def test_nothing_is_said_of_a_pod_that_may_fit(limits: dict, nodes: list) -> None:
    assert cautions.outsized(job(**limits), nodes) == ""


def test_a_job_that_saves_nowhere_starts_over() -> None:
    assert "it starts over" in cautions.starts_over(job())
    assert cautions.starts_over(job(directory="/checkpoints/llm")) == ""
    by_itself = {"progress": {"step": 9, "durableStep": 5}}
    assert cautions.starts_over(job(status=by_itself)) == "", "it saves by means of its own"
