"""Checkpoints against `torch.save` + fsync of the same state, in the same run.

    python tests/bench/bench_checkpoint.py [--megabytes 200 1024] [--rounds 5] [--folder DIR]

Prints, per size: the baseline; how long a background save blocks training (at most 0.5 of it); how
long a save on notice takes until it is durable (at most 1.3 of it); and how long a verified load takes
beside `torch.load`. The median of the rounds counts; the rounds take turns, so that a noisy machine is
noisy for all.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from clusterops.train.agreement import Alone
from clusterops.train.checkpoint import open_directory
from clusterops.train.manifest import Identity
from clusterops.train.restoring import restore
from clusterops.train.saving import Saver, Snapshot
from clusterops.train.serialization import encode

BLOCKS_AT_MOST = 0.5
NOTICE_AT_MOST = 1.3


def state_of(megabytes: int) -> dict[str, Any]:
    """A model and an Adam optimizer's two moments, in layers of 4 MB."""
    layers = max(1, megabytes // 12)
    generator = torch.Generator().manual_seed(1)

    def tensors() -> dict[str, torch.Tensor]:
        return {
            f"layer.{number}.weight": torch.rand(1024, 1024, generator=generator)
            for number in range(layers)
        }

    return {
        "model": tensors(),
        "optimizer": {"exp_avg": tensors(), "exp_avg_sq": tensors(), "step": 1000, "lr": 1e-4},
    }


def timed(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def torch_save(state: dict[str, Any], path: Path) -> None:
    with path.open("wb") as target:
        torch.save(state, target)
        target.flush()
        os.fsync(target.fileno())


def measure(megabytes: int, rounds: int, folder: Path) -> dict[str, float]:
    """Median seconds by what was measured."""
    state = state_of(megabytes)
    directory = open_directory(folder, Identity())
    saver = Saver(directory, Alone(), lambda _: None)
    seconds: dict[str, list[float]] = {}
    step = 0

    def note(name: str, action: Callable[[], Any]) -> None:
        seconds.setdefault(name, []).append(timed(action))

    def snapshot() -> Snapshot:
        nonlocal step
        step += 1
        return Snapshot(step, encode(state))

    baseline = folder / "baseline.pt"
    for _ in range(rounds):
        note("torch.save + fsync", lambda: torch_save(state, baseline))
        note("torch.load", lambda: torch.load(baseline, weights_only=True))
        baseline.unlink()
        note("background save blocks", lambda: saver.save_in_background(snapshot()))
        saver.finish()
        note("save on notice", lambda: saver.save_now(snapshot()))
        note("verified load", lambda: restore(directory, Alone()))
    return {name: statistics.median(values) for name, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[200, 1024])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write; default: the temporary folder")
    options = parser.parse_args()
    for megabytes in options.megabytes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            found = measure(megabytes, options.rounds, Path(folder))
        base, load = found["torch.save + fsync"], found["torch.load"]
        print(f"{megabytes} MB, median of {options.rounds} rounds")
        for name, value in found.items():
            other = load if name == "verified load" else base
            print(f"  {name:24} {value * 1000:9.1f} ms   ratio {value / other:5.2f}")
        for name, limit in (
            ("background save blocks", BLOCKS_AT_MOST),
            ("save on notice", NOTICE_AT_MOST),
        ):
            verdict = "kept" if found[name] <= limit * base else "MISSED"
            print(f"  target: {name} at most {limit} times torch.save + fsync: {verdict}")


if __name__ == "__main__":
    main()
