"""Torch-free training jobs for tests of the whole: manifests, what they left, what they must leave."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

MANIFEST = """
apiVersion: clusterops.io/v1alpha1
kind: TrainingJob
metadata: {{name: {name}, namespace: default}}
spec:
  queueName: local
  priorityClassName: {priority}
  template:
    spec:
      containers:
        - name: trainer
          image: none
          command: [python, -m, clusterops.train.examples.counter]
          args: [--steps, "{steps}", --step-seconds, "{step_seconds}"]
          resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}
          volumeMounts: [{{name: v, mountPath: /checkpoints}}]
      volumes: [{{name: v, persistentVolumeClaim: {{claimName: checkpoints}}}}]
  checkpoint: {{directory: /checkpoints/{name}, gracePeriodSeconds: 10}}
"""


def manifest(
    name: str, *, steps: int, priority: str = "low", gpus: int = 4, step_seconds: float = 0.05
) -> str:
    """A TrainingJob of one pod in the queue that local mode makes."""
    return MANIFEST.format(
        name=name, steps=steps, priority=priority, gpus=gpus, step_seconds=step_seconds
    )


def checkpoints(state: Path, job: str) -> Path:
    """Where a job's checkpoints lie in a state folder."""
    return state / "volumes" / "default" / "checkpoints" / job


def result(state: Path, job: str) -> dict[str, Any]:
    """What a finished job wrote."""
    loaded: dict[str, Any] = json.loads((checkpoints(state, job) / "result.json").read_text())
    return loaded


def overlaps(state: Path, job: str) -> list[Any]:
    """Processes that were still alive when another attempt of the job began; must be empty."""
    lines = (checkpoints(state, job) / "attempts.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines if line.endswith("}")]
    return [entry for entry in entries if entry.get("overlaps")]


def undisturbed_digest(folder: Path, steps: int) -> str:
    """The digest of the same job run by hand with nothing in its way."""
    argv = [sys.executable, "-m", "clusterops.train.examples.counter"]
    argv += ["--steps", str(steps), "--step-seconds", "0", "--out", str(folder)]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    return str(json.loads((folder / "result.json").read_text())["stateSha256"])
