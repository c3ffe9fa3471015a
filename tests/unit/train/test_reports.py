"""Failures that others have reported of resuming, each as the test that would have caught it.

Numbers are those of the list of reports; what concerns rollouts, budgets and quotas is tested where
those live.
"""

# What raises here is a whole session, with what the job does in it.
# ruff: noqa: PT012

import random
from pathlib import Path
from typing import Any

import pytest
from support.train_jobs import Crash, Walk, walk

from clusterops import train

EPOCH = 12
BATCH = 3


def epochs(
    folder: Path | None, *, steps: int, stop_at: int | None = None, augment: bool = False
) -> list[Any]:
    """Trains over a data set of four batches an epoch; returns what each step saw."""
    random.seed(8)
    cursor = train.DataCursor(EPOCH, batch_size=BATCH, seed=4)
    seen: list[Any] = []
    with train.session(total_steps=steps, checkpoint_dir=folder, save_every_steps=1) as run:
        resumed = run.resume(cursor=cursor, seen=seen)
        seen = list(resumed.values["seen"])
        for step in run.steps():
            if step == stop_at:
                raise Crash
            batch = cursor.issue()
            seen.append([*batch.ids, random.random() if augment else None])
            cursor.consume(batch)
            run.values["seen"] = seen
            run.report()
            if run.directory is not None:
                run.save()
    return seen


def test_1_resuming_at_the_end_of_an_epoch_trains_the_next_one(tmp_path: Path) -> None:
    whole = epochs(None, steps=8)
    with pytest.raises(Crash):
        epochs(tmp_path, steps=8, stop_at=4)
    assert epochs(tmp_path, steps=8) == whole


@pytest.mark.parametrize("stop_at", [5, 6, 9])
def test_2_resuming_within_a_later_epoch_goes_on_in_that_epochs_order(
    tmp_path: Path, stop_at: int
) -> None:
    whole = epochs(None, steps=12)
    with pytest.raises(Crash):
        epochs(tmp_path, steps=12, stop_at=stop_at)
    assert epochs(tmp_path, steps=12) == whole
    assert whole[:4] != whole[4:8]


def test_3_random_augmentation_is_the_same_after_resuming_within_an_epoch(tmp_path: Path) -> None:
    whole = epochs(None, steps=8, augment=True)
    with pytest.raises(Crash):
        epochs(tmp_path, steps=8, stop_at=6, augment=True)
    assert epochs(tmp_path, steps=8, augment=True) == whole


def test_4_loading_and_saving_the_data_position_changes_nothing() -> None:
    cursor = train.DataCursor(EPOCH, batch_size=BATCH)
    for _ in range(20):
        state = cursor.state_dict()
        other = train.DataCursor(EPOCH, batch_size=BATCH)
        other.load_state_dict(state)
        assert other.state_dict() == state
        cursor.consume(cursor.issue())


def test_5_items_fetched_ahead_are_not_lost_by_a_kill(tmp_path: Path) -> None:
    """A loader runs five batches ahead and finishes them out of order."""
    chance = random.Random(2)
    trained: list[int] = []
    attempt = 0
    while len(trained) < 2 * EPOCH:
        attempt += 1
        assert attempt < 50, "no progress"
        cursor = train.DataCursor(EPOCH, batch_size=1, seed=1)
        with train.session(checkpoint_dir=tmp_path) as run:
            values = run.resume(cursor=cursor, trained=[]).values
            ahead = [cursor.issue() for _ in range(5)]
            for _ in run.steps():
                batch = ahead.pop(chance.randrange(len(ahead)))
                cursor.consume(batch)
                run.values["trained"].append(batch.ids[0])
                ahead.append(cursor.issue())
                run.report()
                if chance.random() < 0.2:
                    run.save()
                    break  # killed: what is in `ahead` is gone
            trained = list(values["trained"])
    # Exactly what the saved position says was consumed, each item once an epoch.
    state = cursor.state_dict()
    consumed = cursor._ids(0, state["frontier"])
    beyond = [one for start, stop in state["ahead"] for one in cursor._ids(start, stop)]
    assert sorted(trained) == sorted([*consumed, *beyond])
    assert attempt > 3


def test_6_nothing_is_restored_from_a_checkpoint_that_lacks_a_file(tmp_path: Path) -> None:
    walk(tmp_path, total=4, save_every_steps=2)
    walk(tmp_path, total=6)
    newest = max(tmp_path.glob("step_*"))
    (newest / "rank_00000.json").unlink()
    with train.session(total_steps=8, checkpoint_dir=tmp_path) as run:
        job = Walk()
        assert run.resume(job=job).step < 6
        assert len(job.trail) == run.step
        for _ in run.steps():
            job.step()
            run.report()


def test_7_between_staging_and_commit_the_older_checkpoints_stay(tmp_path: Path) -> None:
    walk(tmp_path, total=2)
    with pytest.raises(Crash), train.session(total_steps=9, checkpoint_dir=tmp_path, keep=1) as run:
        run.resume(job=Walk())
        assert run._state is not None
        run._state._directory.stage(5)
        raise Crash
    assert walk(tmp_path, total=2)[1].step == 2


@pytest.mark.parametrize("eighth", range(8))
def test_8_and_9_a_truncated_newest_is_not_taken_by_its_name(tmp_path: Path, eighth: int) -> None:
    walk(tmp_path, total=3)
    walk(tmp_path, total=6)
    file = max(tmp_path.glob("step_*")) / "rank_00000.json"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) * eighth // 8])
    job = Walk()
    with train.session(total_steps=6, checkpoint_dir=tmp_path) as run:
        assert run.resume(job=job).step == 3
        for _ in run.steps():
            job.step()
            run.report()
    undisturbed, _ = walk(None, total=6)
    assert job.trail == undisturbed.trail


def test_10_two_damaged_newest_fall_back_to_the_one_before_both(tmp_path: Path) -> None:
    for total in (2, 4, 6):
        walk(tmp_path, total=total, keep=3)
    for step in (4, 6):
        (tmp_path / f"step_{step:08d}" / "manifest.json").write_bytes(b"{")
    job, run = walk(tmp_path, total=8)
    undisturbed, _ = walk(None, total=8)
    assert job.trail == undisturbed.trail
    assert run.finished


def test_11_retention_goes_on_after_resuming(tmp_path: Path) -> None:
    for total in range(1, 12):
        walk(tmp_path, total=total)
    # The newest two, and what the last attempt resumed from.
    assert len(list(tmp_path.glob("step_*"))) <= 3


def test_12_the_first_run_and_a_later_one_are_one_call(tmp_path: Path) -> None:
    assert walk(tmp_path / "empty", total=2)[1].finished
    assert walk(tmp_path / "empty", total=4)[1].finished


def test_14_steps_go_on_from_the_saved_one(tmp_path: Path) -> None:
    walk(tmp_path, total=4)
    with train.session(total_steps=6, checkpoint_dir=tmp_path) as run:
        assert run.resume(job=Walk()).step == 4
        numbers = []
        for step in run.steps():
            numbers.append(step)
            run.report()
    assert numbers == [4, 5]


def test_19_plain_values_never_start_over(tmp_path: Path) -> None:
    """A step kept beside the model (of a replay buffer, say) comes back with it."""
    for total in (3, 6):
        with train.session(total_steps=total, checkpoint_dir=tmp_path) as run:
            run.resume(job=Walk(), buffer_version=0)
            assert run.values["buffer_version"] == run.step
            for _ in run.steps():
                run.values["buffer_version"] += 1
                run.report()
