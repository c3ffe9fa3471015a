"""A real process, killed again and again, ends as one that was left alone: order, rewards, weights."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from rlhf import journal
from rlhf.doctor import order
from rlhf.journal import path_in

TESTS = Path(__file__).resolve().parents[1]
BATCHES = 24


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "support.rlhf_child", str(folder), str(BATCHES)],
        env={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"},
        stdout=subprocess.PIPE,
        text=True,
    )


def end_of(folder: Path) -> str:
    """The last line of an undisturbed life."""
    with start(folder) as process:
        out, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    return out.splitlines()[-1]


def killed_after(folder: Path, updates: int) -> None:
    """One life, killed once it has printed so many updates (0: as soon as it runs)."""
    with start(folder) as process:
        assert process.stdout is not None
        for _ in range(updates):
            if not process.stdout.readline():
                break
        process.kill()


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random_updates_it_ends_as_the_undisturbed_one(tmp_path, seed) -> None:
    chance = random.Random(seed)
    (tmp_path / "alone").mkdir()
    (tmp_path / "killed").mkdir()
    undisturbed = end_of(tmp_path / "alone")
    for _ in range(5):
        killed_after(tmp_path / "killed", chance.randrange(8))
    assert end_of(tmp_path / "killed") == undisturbed
    assert undisturbed.startswith("done ")
    proof = order.prove(journal.read(path_in(tmp_path / "killed")))
    assert (proof.faults, proof.delivered) == ([], BATCHES)
    assert proof.lives >= 2
