"""A valid job as decoded JSON, to be bent by each test."""

import copy
from typing import Any

import pytest

JOB: dict[str, Any] = {
    "apiVersion": "clusterops.io/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "llm-7b", "namespace": "research"},
    "spec": {
        "queueName": "research",
        "priorityClassName": "high",
        "replicas": 2,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "trainer",
                        "image": "trainer:1",
                        "command": ["python", "train.py"],
                        "resources": {"limits": {"nvidia.com/gpu": 4}},
                        "volumeMounts": [{"name": "kept", "mountPath": "/checkpoints"}],
                    }
                ],
                "volumes": [{"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}],
            }
        },
        "checkpoint": {"directory": "/checkpoints/llm-7b"},
    },
}


@pytest.fixture
def job() -> dict[str, Any]:
    """A fresh valid TrainingJob."""
    return copy.deepcopy(JOB)


@pytest.fixture
def container(job: dict[str, Any]) -> dict[str, Any]:
    """The container of that job."""
    return job["spec"]["template"]["spec"]["containers"][0]
