"""A valid manifest as a file."""

from pathlib import Path

import pytest

MANIFEST = """\
apiVersion: clusterops.io/v1alpha1
kind: TrainingJob
metadata:
  name: llm-7b
  namespace: research
spec:
  queueName: research
  priorityClassName: low
  replicas: 2
  template:
    spec:
      containers:
        - name: trainer
          image: trainer:1
          command: [python, train.py]
          resources: {limits: {nvidia.com/gpu: 4}}
          volumeMounts: [{name: kept, mountPath: /checkpoints}]
      volumes: [{name: kept, persistentVolumeClaim: {claimName: kept}}]
  checkpoint: {directory: /checkpoints/llm-7b}
"""


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    """A manifest of one job."""
    file = tmp_path / "job.yaml"
    file.write_text(MANIFEST)
    return file
