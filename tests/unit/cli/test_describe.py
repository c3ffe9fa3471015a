"""The page about one job."""

from typing import Any

from clusterops.cli import describe


def page(counts: dict[str, Any], attempt: dict[str, Any]) -> str:
    container = {"name": "t", "command": ["train"], "resources": {}}
    job = {
        "metadata": {"name": "llm", "namespace": "research"},
        "spec": {"queueName": "research", "template": {"spec": {"containers": [container]}}},
        "status": {"phase": "Requeued", "attempt": 1, "counts": counts, "attempts": [attempt]},
    }
    return "\n".join(describe.page({"job": job, "pods": [], "events": []}))


ENDED = {
    "number": 1,
    "startedAt": "2026-11-30T19:00:00Z",
    "endedAt": "2026-11-30T19:02:15Z",
    "cause": "Evicted",
    "nodes": ["n0", "n0", "n1"],
}


def test_each_attempt_lists_its_nodes_once() -> None:
    shown = page({"attempts": 1, "lostSteps": 0}, {**ENDED, "lostSteps": 0})
    assert "n0, n1" in shown
    assert "0 steps lost" in shown


def test_lost_steps_that_nobody_knows_are_called_unknown() -> None:
    shown = page({"attempts": 1, "lostGpuSeconds": 540.0}, {**ENDED, "lostGpuSeconds": 540.0})
    assert "0 steps lost" not in shown
    assert "how many steps are lost is unknown" in shown
    assert "540 GPU seconds count as lost" in shown
    row = next(line for line in shown.split("\n") if "n0, n1" in line)
    assert "unknown" in row
