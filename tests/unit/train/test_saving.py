"""Saves that fail: which end a training, which are only told, and what is left behind."""
# What raises here is a whole session, with what the job does in it.
# ruff: noqa: PT012

import errno
import os
import random
import signal
from pathlib import Path

import pytest
from support.train_jobs import Walk, walk

from clusterops import train
from clusterops.train.disk import PosixDisk
from clusterops.train.reader import survey


def checkpoints(folder: Path) -> list[int]:
    return sorted(one.manifest.step for one in survey(PosixDisk(), folder)[0])


def raise_term() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class BadDisk:
    """Fails every sync of a file with `code` while it is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.code = 0
        real = PosixDisk.sync

        def sync(disk: PosixDisk, handle: int) -> None:
            if self.code:
                raise OSError(self.code, os.strerror(self.code))
            real(disk, handle)

        monkeypatch.setattr(PosixDisk, "sync", sync)


@pytest.fixture
def bad_disk(monkeypatch: pytest.MonkeyPatch) -> BadDisk:
    return BadDisk(monkeypatch)


def test_a_background_save_that_fails_for_good_surfaces_at_a_later_step(
    tmp_path: Path, bad_disk: BadDisk
) -> None:
    with pytest.raises(train.SaveFailed, match=r"step 1 could not be written.*Read-only"):
        with train.session(total_steps=10_000, checkpoint_dir=tmp_path, save_every_steps=1) as run:
            run.resume(job=Walk())
            bad_disk.code = errno.EROFS
            for _ in run.steps():
                run.report()
    assert not list(tmp_path.glob(".staging*"))


def save_in_time(run: train.Session) -> None:
    """Lets the background save end, so that what follows does not depend on the thread's speed."""
    assert run._state is not None
    if run._state.in_flight:
        assert run._state._saver._in_flight is not None
        assert run._state._saver._in_flight.task.wait(60.0)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_does_not_end_training_and_is_told_once(
    tmp_path: Path, bad_disk: BadDisk, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    undisturbed, _ = walk(None, total=12)
    random.seed(3)
    job = Walk()
    problems = []
    with train.session(total_steps=12, checkpoint_dir=tmp_path, save_every_steps=2) as run:
        run.resume(job=job)
        for step in run.steps():
            save_in_time(run)
            bad_disk.code = code if 3 <= step < 9 else 0
            if 3 <= step < 9:
                assert run.durable_step == 2
            problems.append(run._heartbeat().problem)
            job.step()
            run.report()
    assert job.trail == undisturbed.trail
    assert run.durable_step == 12
    assert os.strerror(code) in problems[8]
    assert (problems[3], problems[-1]) == ("", "")
    told = [one for one in caplog.messages if "not saved" in one or "works again" in one]
    assert len(told) == 2, told
    assert "step 4 could not be written" in told[0]
    assert told[1] == "saving works again: step 10 is durable"
    assert not list(tmp_path.glob(".staging*"))


def test_a_folder_that_cannot_be_made_is_tried_again_only_when_a_save_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    real = PosixDisk.make_directory

    def full(disk: PosixDisk, path: Path) -> None:
        tried.append(path.name)
        if len(tried) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(disk, path)

    monkeypatch.setattr(PosixDisk, "make_directory", full)
    _, run = walk(tmp_path, total=12, save_every_steps=4)
    assert [name[-2:] for name in tried] == ["04", "08", "12"]
    assert run.durable_step == 12


@pytest.mark.parametrize("notice", [True, False])
def test_on_notice_and_at_the_end_a_full_disk_is_a_failure(
    tmp_path: Path, bad_disk: BadDisk, notice: bool
) -> None:
    job = Walk()
    with pytest.raises(train.SaveFailed, match=r"step 6 could not be written.*No space"):
        with train.session(
            total_steps=9 if notice else 6, checkpoint_dir=tmp_path, save_every_steps=4
        ) as run:
            run.resume(job=job)
            for step in run.steps():
                save_in_time(run)
                bad_disk.code = errno.ENOSPC if step >= 4 else 0
                if notice and step == 5:
                    raise_term()
                job.step()
                run.report()
    assert checkpoints(tmp_path) == [4]
    assert run.durable_step == 4


def test_a_notice_saves_although_the_save_before_it_was_refused(
    tmp_path: Path, bad_disk: BadDisk
) -> None:
    with pytest.raises(train.Leave):
        with train.session(total_steps=9, checkpoint_dir=tmp_path, save_every_steps=4) as run:
            run.resume(job=Walk())
            for step in run.steps():
                save_in_time(run)
                bad_disk.code = 0
                if step == 3:
                    bad_disk.code = errno.ENOSPC
                if step == 4:
                    raise_term()
                run.report()
    assert checkpoints(tmp_path) == [5]


def test_a_checkpoint_to_keep_that_was_refused_is_made_next_time(
    tmp_path: Path, bad_disk: BadDisk
) -> None:
    with train.session(
        total_steps=5, checkpoint_dir=tmp_path, save_every_steps=2, keep_every_seconds=1e-9
    ) as run:
        run.resume(job=Walk())
        before = run._progress._permanent_at
        for step in run.steps():
            save_in_time(run)
            if step == 3:  # the save of step 2 has been refused, and the boundary has collected it
                assert run._progress._permanent_at == before
            bad_disk.code = errno.ENOSPC if step == 1 else 0
            if step == 2:
                assert not run.durable_step
            run.report()
