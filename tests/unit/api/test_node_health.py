"""NodeHealth: the daemon's half and the operator's half."""

import pytest

from clusterops.api.node_health import NodeHealth, Rung, Verdict
from clusterops.api.validation import problems

HEALTH = {
    "apiVersion": "clusterops.io/v1alpha1",
    "kind": "NodeHealth",
    "metadata": {"name": "gpu-node-7"},
    "spec": {
        "remediation": {
            "incident": "i-1",
            "bootId": "b-1",
            "rung": "reset_gpu",
            "state": "Running",
            "expires": "2026-11-30T19:00:00Z",
            "ticket": None,
        }
    },
    "status": {
        "verdict": "ResetGpu",
        "since": "2026-11-30T18:00:00Z",
        "gpus": [
            {
                "uuid": "GPU-1",
                "busId": "0000:3b:00.0",
                "serial": "123",
                "verdict": "ResetGpu",
                "evidence": [
                    {
                        "source": "kmsg",
                        "observedAt": "2026-11-30T18:00:00Z",
                        "code": 95,
                        "text": "NVRM",
                    }
                ],
            }
        ],
        "incidents": [
            {
                "id": "i-1",
                "verdict": "ResetGpu",
                "openedAt": "2026-11-30T18:00:00Z",
                "gpus": ["GPU-1"],
            }
        ],
    },
}


def test_a_full_object_is_valid() -> None:
    assert problems(NodeHealth, HEALTH) == ()
    health = NodeHealth.from_wire(HEALTH)
    assert health.status is not None
    assert health.status.verdict is Verdict.RESET_GPU
    assert health.spec.remediation is not None
    assert health.spec.remediation.rung is Rung.RESET_GPU


def test_an_object_that_was_just_created_is_valid() -> None:
    fresh = {key: HEALTH[key] for key in ("apiVersion", "kind", "metadata")}
    assert problems(NodeHealth, fresh) == ()


@pytest.mark.parametrize("field", ["verdict", "since", "gpus"])
def test_what_is_no_verdict_is_refused_by_name(field: str) -> None:
    wrong = {**HEALTH, "status": {**HEALTH["status"], field: "Sick"}}
    assert [problem.field for problem in problems(NodeHealth, wrong)] == [f"status.{field}"]
