"""Small training jobs without torch, for tests of sessions."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clusterops import train


class Walk:
    """A state that depends on every step and every random number drawn."""

    def __init__(self) -> None:
        self.value = 0
        self.trail: list[int] = []

    def step(self) -> None:
        self.value = (self.value * 31 + random.randrange(1000)) % 1_000_003
        self.trail.append(self.value)

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "trail": list(self.trail)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.value, self.trail = state["value"], list(state["trail"])


class Crash(Exception):
    """A job's own error."""


def walk(
    folder: Path | None,
    *,
    total: int = 20,
    crash_before: int | None = None,
    seed: int = 3,
    **options: Any,
) -> tuple[Walk, train.Session]:
    """Trains from the newest checkpoint, or afresh, to the end or to a crash in one step."""
    random.seed(seed)
    job = Walk()
    with train.session(total_steps=total, checkpoint_dir=folder, **options) as run:
        run.resume(job=job)
        for step in run.steps():
            if step == crash_before:
                raise Crash(f"before step {step}")
            job.step()
            run.report(value=job.value)
    return job, run
