"""Claims: numbered, exclusive, never forgotten, and somebody's."""

import threading
from pathlib import Path

import pytest

from clusterops.train import fencing
from clusterops.train.disk import PosixDisk
from clusterops.train.errors import DirectoryRefused, StaleAttempt
from clusterops.train.manifest import Identity

DISK = PosixDisk()


def job(name: str = "llm", attempt: int = 1, uid: str = "u") -> Identity:
    return Identity("research", name, uid, attempt)


def test_each_claim_is_one_above_the_highest(tmp_path: Path) -> None:
    assert fencing.claim(DISK, tmp_path, job()) == 1
    (tmp_path / "epoch_000041.json").write_text("torn by a crash")
    assert fencing.claim(DISK, tmp_path, job()) == 42
    assert [one.identity for one in fencing.claims(DISK, tmp_path)] == [job(), None, job()]


def test_claims_at_the_same_time_get_different_numbers(tmp_path: Path) -> None:
    numbers: list[int] = []
    threads = [
        threading.Thread(target=lambda: numbers.append(fencing.claim(DISK, tmp_path, job())))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(numbers) == list(range(1, 9))


def test_only_the_newest_claim_may_commit(tmp_path: Path) -> None:
    first = fencing.claim(DISK, tmp_path, job())
    fencing.require_newest(DISK, tmp_path, first)
    (tmp_path / "epoch_000009.json").touch()  # claimed, not yet filled
    with pytest.raises(StaleAttempt, match="epoch 9, this one is 1"):
        fencing.require_newest(DISK, tmp_path, first)


def test_an_earlier_attempt_of_the_same_job_is_refused(tmp_path: Path) -> None:
    fencing.claim(DISK, tmp_path, job(attempt=3))
    with pytest.raises(StaleAttempt, match="attempt 3 of this job"):
        fencing.claim(DISK, tmp_path, job(attempt=2))
    assert fencing.claim(DISK, tmp_path, job(attempt=3)) == 2  # a restarted container
    assert fencing.claim(DISK, tmp_path, job(attempt=1, uid="recreated")) == 3


def test_the_newest_readable_claim_says_whose_the_directory_is(tmp_path: Path) -> None:
    fencing.claim(DISK, tmp_path, job("one"))
    with pytest.raises(DirectoryRefused, match="research/one"):
        fencing.claim(DISK, tmp_path, job("two"))
    fencing.claim(DISK, tmp_path, job("two"), adopt=True)
    with pytest.raises(DirectoryRefused, match="research/two"):
        fencing.claim(DISK, tmp_path, job("one"))
    with pytest.raises(DirectoryRefused, match="a job without an operator"):
        fencing.claim(DISK, tmp_path, Identity())


def test_a_job_without_an_operator_may_return_to_its_directory(tmp_path: Path) -> None:
    assert [fencing.claim(DISK, tmp_path, Identity()) for _ in range(2)] == [1, 2]
