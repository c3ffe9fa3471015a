"""A training job without torch: counts steps with a small pseudo-random state.

    python -m clusterops.train.examples.counter --steps 200 --step-seconds 0.02 --out DIR

What it computes depends on every single step, so that the hash in `result.json` shows whether one was
lost or done twice. Each attempt adds a line to `attempts.jsonl` when it starts and when it ends, and
names earlier ones of the same machine that still live: two writers at once cannot stay unnoticed.
"""

import argparse
import hashlib
import json
import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clusterops import train
from clusterops.train.examples.results import say, write_result

ATTEMPTS_FILE = "attempts.jsonl"
MIX = 6364136223846793005


class Counter:
    """The state that is trained: a number that every step stirs with the next random one."""

    def __init__(self, seed: int) -> None:
        self.value = seed
        self.steps = 0

    def step(self) -> None:
        """One step of training."""
        self.value = (self.value * MIX + random.getrandbits(64) + self.steps) % (1 << 64)
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        """All of it."""
        return {"value": self.value, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where it was saved."""
        self.value, self.steps = state["value"], state["steps"]

    def digest(self) -> str:
        """What two equal runs have in common."""
        return hashlib.sha256(f"{self.steps}:{self.value}".encode()).hexdigest()


class Attempts:
    """The file in which attempts note that they began and ended."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ATTEMPTS_FILE

    def began(self, step: int) -> None:
        """Notes this process, and the processes of earlier attempts that are still alive."""
        last = {(one["pid"], one["started"]): one["event"] for one in self.read()}
        living = [
            pid
            for (pid, started), event in last.items()
            if event == "began" and _start_time(pid) == started
        ]
        self._add({"event": "began", "step": step, "overlaps": living})

    def ended(self, step: int) -> None:
        """Notes that this process stops training."""
        self._add({"event": "ended", "step": step})

    def read(self) -> list[dict[str, Any]]:
        """All whole lines; a killed writer may leave half of one."""
        if not self._path.exists():
            return []
        lines = self._path.read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def _add(self, entry: dict[str, Any]) -> None:
        pid = os.getpid()
        line = json.dumps({"pid": pid, "started": _start_time(pid), **entry})
        # A leading newline keeps this line apart from one that was torn by a kill.
        with self._path.open("a") as target:
            target.write(f"\n{line}\n")
            target.flush()
            os.fsync(target.fileno())


def main(arguments: list[str] | None = None) -> None:
    """The job."""
    options = _options(arguments)
    random.seed(options.seed)
    counter = Counter(options.seed)
    with train.session(
        total_steps=options.steps,
        checkpoint_dir=options.out,
        save_every_steps=options.save_every,
    ) as run:
        resumed = run.resume(counter=counter)
        if run.directory is None:
            raise SystemExit("counter: give --out DIR, or run as a job with a checkpoint directory")
        attempts = Attempts(run.directory)
        attempts.began(resumed.step)
        say(f"start at step {resumed.step}/{options.steps}")
        try:
            for step in run.steps():
                time.sleep(options.step_seconds)  # the work
                counter.step()
                run.report(value=counter.value)
                if (step + 1) % options.log_every == 0:
                    say(f"step {step + 1}/{options.steps} value {counter.value:016x}")
        finally:
            attempts.ended(run.step)
        write_result(
            run.directory,
            {"steps": counter.steps, "stateSha256": counter.digest(), "job": "counter"},
        )


def _start_time(pid: int) -> int | None:
    """When a process began, in clock ticks since boot: tells it from a later one of the same number.
    None when it is gone.
    """
    try:
        # The name in parentheses may hold spaces; the 20th field behind it is the start time.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="counter", description="A training job without torch.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step-seconds", type=float, default=0.02)
    parser.add_argument("--save-every", type=int, default=5, help="steps between checkpoints")
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="checkpoint directory when run by hand")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
