"""From eviction to the preemptor's pods started, in local mode with real processes.

A counter job that saves in well under 0.2 s fills the node; an urgent one displaces it. Measured from
the urgent job's submission until it is Running. The baseline is the same urgent job started on an
empty node, so that the difference is what preemption costs: notice, save, release, admission.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.local_run import LocalRun, eventually

ROUNDS = 5
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
          command: [python, -m, clusterops.train.examples.counter, --steps, "{steps}", --step-seconds, "0.02"]
          resources: {{limits: {{nvidia.com/gpu: 4}}}}
          volumeMounts: [{{name: v, mountPath: /c}}]
      volumes: [{{name: v, persistentVolumeClaim: {{claimName: c}}}}]
  checkpoint: {{directory: /c/{name}, gracePeriodSeconds: 20}}
"""


def submit(run: LocalRun, name: str, priority: str, steps: int) -> float:
    """Submits a counter job; the monotonic time at which the server had it."""
    run.kubectl(
        "apply", "-f", "-", stdin=MANIFEST.format(name=name, priority=priority, steps=steps)
    )
    return time.monotonic()


def started(run: LocalRun, job: str) -> bool:
    return run.phase(job) in ("Running", "Succeeded")


def main() -> None:
    empty, taken = [], []
    with tempfile.TemporaryDirectory(prefix="clusterops-bench-") as folder:
        run = LocalRun(Path(folder) / "state", nodes=1, gpus=4)
        run.start()
        try:
            for number in range(ROUNDS):
                begun = submit(run, f"alone-{number}", "high", 5)
                eventually(lambda n=number: started(run, f"alone-{n}"), "the job to start", 30)
                empty.append(time.monotonic() - begun)
                eventually(lambda n=number: run.phase(f"alone-{n}") == "Succeeded", "its end", 30)
            submit(run, "victim", "low", 100_000)
            for number in range(ROUNDS):
                eventually(lambda: run.phase("victim") == "Running", "the victim to run", 60)
                begun = submit(run, f"urgent-{number}", "high", 5)
                eventually(lambda n=number: started(run, f"urgent-{n}"), "the preemptor", 60)
                taken.append(time.monotonic() - begun)
                eventually(lambda n=number: run.phase(f"urgent-{n}") == "Succeeded", "its end", 60)
        finally:
            run.kubectl(
                "delete", "trainingjob", "victim", "-n", "default", "--wait=false", check=False
            )
            run.stop()
    print(
        f"submit to running, empty node      median {statistics.median(empty):.2f} s, max {max(empty):.2f} s"
    )
    print(
        f"submit to running, after eviction  median {statistics.median(taken):.2f} s, max {max(taken):.2f} s"
    )
    print(
        f"preemption adds {statistics.median(taken) - statistics.median(empty):.2f} s (at most 2 s)"
    )


if __name__ == "__main__":
    main()
