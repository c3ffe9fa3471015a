"""kill -9 and TERM at random steps: the run goes on and ends with the very weights of an undisturbed one."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import random
import signal

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(300)]
pytest.importorskip("torch")

from support import rlhf_torch_runs as runs

from clusterops.train.errors import EXIT_CODE_LEFT
from rlhf import sample_rows
from rlhf.doctor.diagnosis import diagnose
from rlhf.run_folder import RunFolder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    runs.run(folder)
    return folder


def same(folder, other) -> None:
    """Weights to the last bit, and every sample of every step, once and in order."""
    assert runs.final_weights(folder) == runs.final_weights(other)
    mine, theirs = (
        [(row.seq, row.draw, row.reward, row.response_digest) for row in sample_rows.read(path)]
        for path in (RunFolder(folder).samples, RunFolder(other).samples)
    )
    assert mine == theirs
    found = diagnose(folder)
    assert found.healthy, found.verdict


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random_steps_it_ends_with_the_same_weights(undisturbed, tmp_path, seed):
    chance = random.Random(seed)
    folder = tmp_path / "killed"
    for step in sorted(chance.sample(range(6), 2)):
        process = runs.start(folder)
        runs.wait_for_step(process, folder, step)
        process.kill()
        runs.ended(process)
    runs.run(folder)
    same(folder, undisturbed)


def test_told_to_leave_it_saves_at_once_and_goes_on_where_it_was(undisturbed, tmp_path):
    folder = tmp_path / "told"
    words = ("checkpoints.every_steps=100",)
    process = runs.start(folder, *words)
    runs.wait_for_step(process, folder, 2)
    process.send_signal(signal.SIGTERM)
    code, output = runs.ended(process)
    assert code == EXIT_CODE_LEFT, output
    assert "leaving as asked" in (folder / "report.html").read_text()
    output = runs.run(folder, *words)
    assert "resumed after step" in output
    same(folder, undisturbed)


def test_a_lost_rollout_process_is_replaced_within_the_run(undisturbed, tmp_path):
    folder = tmp_path / "lost"
    process = runs.start(folder)
    runs.wait_for_step(process, folder, 0)
    for pid in runs.children(process.pid, "rlhf.rollout_worker"):
        runs.kill(pid)
    code, output = runs.ended(process)
    assert code == 0, output
    same(folder, undisturbed)


def test_a_lost_pipeline_ends_the_run_by_name_and_it_can_be_started_again(undisturbed, tmp_path):
    folder = tmp_path / "pipeline"
    process = runs.start(folder)
    runs.wait_for_step(process, folder, 1)
    for pid in runs.children(process.pid, "rlhf.pipeline"):
        runs.kill(pid)
    code, output = runs.ended(process)
    assert code == 1
    assert "the pipeline process is gone" in output
    runs.run(folder)
    same(folder, undisturbed)


def test_no_process_outlives_the_run_that_was_killed(tmp_path):
    folder = tmp_path / "orphans"
    process = runs.start(folder)
    runs.wait_for_step(process, folder, 0)
    below = [
        pid
        for module in ("rlhf.pipeline", "rlhf.rollout_worker")
        for pid in runs.children(process.pid, module)
    ]
    assert len(below) == 2
    process.kill()
    runs.ended(process)
    assert all(runs.gone(pid) for pid in below)
