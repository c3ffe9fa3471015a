"""Committing, falling back, fencing and pruning, with the power cut after every single call."""

from pathlib import Path
from typing import Any

import pytest
from support.train_disk import CrashingDisk, PowerCut

from clusterops.train import checkpoint, fencing
from clusterops.train.agreement import Alone
from clusterops.train.checkpoint import CheckpointDirectory, open_directory
from clusterops.train.disk import Disk, PosixDisk
from clusterops.train.errors import NothingToResume, StaleAttempt
from clusterops.train.manifest import CHECKPOINT_NAME, MANIFEST_NAME, Identity
from clusterops.train.restoring import restore
from clusterops.train.serialization import encode

ROOT = Path("/checkpoints")
JOB = Identity("research", "llm", "uid-1", 1)


def new_disk() -> CrashingDisk:
    disk = CrashingDisk()
    disk.make_directory(ROOT)
    disk.sync_directory(Path("/"))
    return disk


def content_of(step: int) -> dict[str, Any]:
    return {"step": step, "weights": bytes([step % 251]) * (5000 + step)}


def save(directory: CheckpointDirectory, step: int) -> checkpoint.Committed:
    directory.stage(step)
    files = directory.write(step, 0, encode(content_of(step)))
    return directory.commit(step, files, world_size=1, resume={})


def opened(disk: Disk, path: Path = ROOT, identity: Identity = JOB, **options: Any):
    return open_directory(path, identity, disk=disk, **options)


def newest(disk: Disk, path: Path = ROOT) -> dict[str, Any] | None:
    restored = restore(opened(disk, path), Alone())
    return None if restored is None else restored.shared


def run(disk: CrashingDisk, acknowledged: list[int]) -> None:
    """A job's life: three saves, the last of which prunes the first."""
    directory = opened(disk)
    for step in (10, 20, 30):
        save(directory, step)
        acknowledged.append(step)


def calls_in_a_life() -> int:
    disk = new_disk()
    before = disk.calls
    run(disk, [])
    return disk.calls - before


@pytest.mark.parametrize("seed", range(4))
def test_power_cut_after_any_call_leaves_the_last_acknowledged_checkpoint_or_a_newer_one(
    seed: int,
) -> None:
    total = calls_in_a_life()
    assert total > 60
    for cut in range(1, total + 1):
        disk = new_disk()
        disk.cut_after = disk.calls + cut
        acknowledged = [0]
        with pytest.raises(PowerCut):
            run(disk, acknowledged)
        survivor = disk.after_power_cut(seed * 1000 + cut)
        state = newest(survivor)
        step = 0 if state is None else state["step"]
        assert step >= acknowledged[-1], f"after {disk.log[-1]!r} at call {cut}"
        assert state is None or state == content_of(step), f"a mix at call {cut}"
        # And the next attempt goes on as if nothing had been.
        directory = opened(survivor)
        save(directory, step + 5)
        assert newest(survivor) == content_of(step + 5)


def test_kill_after_any_call_leaves_the_last_acknowledged_checkpoint_or_a_newer_one() -> None:
    for cut in range(1, calls_in_a_life() + 1):
        disk = new_disk()
        disk.cut_after = disk.calls + cut
        acknowledged = [0]
        with pytest.raises(PowerCut):
            run(disk, acknowledged)
        survivor = disk.after_kill()
        state = newest(survivor)
        step = 0 if state is None else state["step"]
        assert step >= acknowledged[-1]
        assert state is None or state == content_of(step)
        names = [entry.name for entry in survivor.entries(ROOT)]
        assert not [name for name in names if name.startswith((".staging", ".discarded"))]


def test_a_power_cut_while_an_older_lineage_is_replaced_mixes_nothing() -> None:
    """A stale attempt committed step 20 late; the new one comes to step 20 as well."""

    def life(disk: CrashingDisk) -> None:
        directory = opened(disk)
        save(directory, 20)

    def prepared() -> CrashingDisk:
        disk = new_disk()
        old = opened(disk)
        save(old, 10)
        save(old, 20)
        return disk

    disk = prepared()
    before = disk.calls
    life(disk)
    total = disk.calls - before
    for cut in range(1, total + 1):
        disk = prepared()
        disk.cut_after = disk.calls + cut
        with pytest.raises(PowerCut):
            life(disk)
        state = newest(disk.after_power_cut(cut))
        assert state in (content_of(10), content_of(20))


@pytest.mark.parametrize("eighth", range(8))
def test_newest_truncated_at_any_eighth_falls_back_to_the_one_before(eighth: int) -> None:
    disk = new_disk()
    directory = opened(disk)
    for step in (10, 20):
        save(directory, step)
    for name in (MANIFEST_NAME, "rank_00000.json", "rank_00000_000.safetensors"):
        copy = _copied(disk)
        file = copy.file(ROOT / "step_00000020" / name)
        del file.content[len(file.content) * eighth // 8 :]
        assert newest(copy) == content_of(10), name
        assert ".quarantined-1-step_00000020" in [entry.name for entry in copy.entries(ROOT)]


def test_any_flipped_byte_of_the_newest_falls_back_to_the_one_before() -> None:
    disk = new_disk()
    directory = opened(disk)
    for step in (10, 20):
        save(directory, step)
    for name in (MANIFEST_NAME, "rank_00000.json", "rank_00000_000.safetensors"):
        size = len(disk.file(ROOT / "step_00000020" / name).content)
        for position in {0, 7, 9, size // 2, size - 2}:
            copy = _copied(disk)
            copy.file(ROOT / "step_00000020" / name).content[position] ^= 0x10
            assert newest(copy) == content_of(10), (name, position)


def test_one_missing_file_refuses_the_whole_checkpoint() -> None:
    disk = new_disk()
    directory = opened(disk)
    for step in (10, 20):
        save(directory, step)
    disk.remove_file(ROOT / "step_00000020" / "rank_00000_000.safetensors")
    assert newest(disk) == content_of(10)


def test_a_directory_named_like_a_checkpoint_is_none_without_a_manifest() -> None:
    disk = new_disk()
    save(opened(disk), 10)
    disk.make_directory(ROOT / "step_00000099")
    assert newest(disk) == content_of(10)


def test_when_all_are_damaged_the_job_stops_instead_of_starting_over_silently() -> None:
    disk = new_disk()
    save(opened(disk), 10)
    disk.file(ROOT / "step_00000010" / MANIFEST_NAME).content.clear()
    for _ in range(2):  # the second attempt must not forget it
        with pytest.raises(NothingToResume, match="quarantined"):
            newest(disk)


def test_an_empty_directory_is_a_fresh_start() -> None:
    assert newest(new_disk()) is None


def test_newest_is_by_epoch_before_step() -> None:
    disk = new_disk()
    first = opened(disk)
    save(first, 50)
    save(first, 60)
    second = opened(disk)
    second.reject(ROOT / "step_00000060", 60, "for the test")
    save(second, 55)
    # A stale attempt that had checked before the claim now commits a higher step.
    stale = CheckpointDirectory(ROOT, JOB, 1, _Unfenced(disk))
    save(stale, 70)
    assert newest(disk) == content_of(55)


class _Unfenced:
    """Sees no claims: a writer in the instant between its check and its rename."""

    def __init__(self, disk: CrashingDisk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def entries(self, path: Path) -> Any:
        return [one for one in self._disk.entries(path) if not one.name.startswith("epoch_")]


@pytest.mark.parametrize("moment", ["before", "written"])
def test_a_writer_that_sees_a_higher_epoch_commits_nothing(moment: str) -> None:
    disk = new_disk()
    old = opened(disk)
    save(old, 10)
    if moment == "written":
        old.stage(20)
        files = old.write(20, 0, encode(content_of(20)))
        opened(disk)
        with pytest.raises(StaleAttempt, match="newer attempt"):
            old.commit(20, files, world_size=1, resume={})
    else:
        opened(disk)
        with pytest.raises(StaleAttempt, match="newer attempt"):
            save(old, 20)
    assert newest(disk) == content_of(10)


def test_a_claim_fences_before_anything_is_swept() -> None:
    disk = new_disk()
    old = opened(disk)
    old.stage(20)
    files = old.write(20, 0, encode(content_of(20)))
    fencing.claim(disk, ROOT, JOB)
    with pytest.raises(StaleAttempt, match="epoch 2, this one is 1"):
        old.commit(20, files, world_size=1, resume={})
    assert newest(disk) is None


@pytest.mark.parametrize("seed", range(8))
def test_a_claim_outlives_a_power_cut(seed: int) -> None:
    disk = new_disk()
    epoch = fencing.claim(disk, ROOT, JOB)
    survivor = disk.after_power_cut(seed)
    assert fencing.highest_epoch(survivor, ROOT) == epoch
    assert fencing.claims(survivor, ROOT)[0].identity == JOB


def test_a_stale_writer_whose_staging_was_swept_learns_why() -> None:
    disk = new_disk()
    old = opened(disk)
    old.stage(10)
    opened(disk)
    with pytest.raises(StaleAttempt):
        old.write(10, 0, encode(content_of(10)))


def test_pruning_keeps_two_verified_and_what_was_resumed_from(tmp_path: Path) -> None:
    disk = PosixDisk()
    first = opened(disk, tmp_path)
    for step in (10, 20, 30):
        save(first, step)
    assert steps(tmp_path) == [20, 30]
    second = opened(disk, tmp_path)
    assert restore(second, Alone()) is not None
    for step in (40, 50, 60):
        save(second, step)
    assert steps(tmp_path) == [30, 50, 60]


def test_pruning_counts_only_verified_commits(tmp_path: Path) -> None:
    """Two newest may be damaged; then the older ones are all there is."""
    disk = PosixDisk()
    first = opened(disk, tmp_path)
    for step in (10, 20):
        save(first, step)
    second = opened(disk, tmp_path)  # has verified nothing yet
    save(second, 30)
    assert steps(tmp_path) == [10, 20, 30]
    save(second, 40)
    assert steps(tmp_path) == [30, 40]


def test_permanent_checkpoints_are_never_pruned(tmp_path: Path) -> None:
    directory = opened(PosixDisk(), tmp_path)
    directory.stage(5)
    files = directory.write(5, 0, encode(content_of(5)))
    directory.commit(5, files, world_size=1, resume={}, permanent=True)
    for step in (10, 20, 30):
        save(directory, step)
    assert steps(tmp_path) == [5, 20, 30]


def test_links_and_foreign_names_are_neither_read_nor_moved_nor_removed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    save(opened(PosixDisk(), elsewhere), 99)
    path = tmp_path / "checkpoints"
    path.mkdir()
    foreign = ["step_7", "step_0000009x", "notes.txt", ".staging-1-step_00000001.bak"]
    for name in foreign:
        (path / name).mkdir()
        (path / name / "keep").write_text("mine")
    (path / "step_00000099").symlink_to(elsewhere / "step_00000099")
    (path / ".staging-0-step_00000001").symlink_to(elsewhere)
    (path / "epoch_000004.json").symlink_to(elsewhere / "epoch_000001.json")
    directory = opened(PosixDisk(), path)
    assert directory.epoch == 5
    assert restore(directory, Alone()) is None
    for step in (10, 20, 30):
        save(directory, step)
    assert steps(path) == [20, 30, 99]
    assert (path / "step_00000099").is_symlink()
    assert (path / ".staging-0-step_00000001").is_symlink()
    assert [(path / name / "keep").read_text() for name in foreign] == ["mine"] * 4
    # Not even when a save needs the very name.
    with pytest.raises(FileExistsError, match="in the way"):
        save(directory, 99)
    (path / ".staging-5-step_00000001").symlink_to(elsewhere / "step_00000099")
    with pytest.raises(OSError, match="step_00000001"):
        save(directory, 1)
    assert steps(elsewhere) == [99]
    assert newest(PosixDisk(), elsewhere) == content_of(99)


def test_a_foreign_file_inside_a_checkpoint_survives_its_removal(tmp_path: Path) -> None:
    directory = opened(PosixDisk(), tmp_path)
    save(directory, 10)
    (tmp_path / "step_00000010" / "README").write_text("mine")
    save(directory, 20)
    save(directory, 30)
    assert steps(tmp_path) == [20, 30]
    assert (tmp_path / ".discarded-1-step_00000010" / "README").read_text() == "mine"


def test_two_saves_with_changed_weights_differ(tmp_path: Path) -> None:
    directory = opened(PosixDisk(), tmp_path)
    weights = bytearray(b"a" * 10_000)
    digests = []
    for step in (1, 2):
        directory.stage(step)
        files = directory.write(step, 0, encode({"weights": weights}))
        digests.append({record.name: record.sha256 for record in files})
        directory.commit(step, files, world_size=1, resume={})
        weights[5] ^= 1
    assert digests[0]["rank_00000_000.safetensors"] != digests[1]["rank_00000_000.safetensors"]


def test_a_failed_save_leaves_the_earlier_ones_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = opened(PosixDisk(), tmp_path)
    save(directory, 10)

    def full(self: Any, handle: int, data: memoryview) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(PosixDisk, "write", full)
        with pytest.raises(OSError, match="No space"):
            save(directory, 20)
    assert newest(PosixDisk(), tmp_path) == content_of(10)
    save(opened(PosixDisk(), tmp_path), 20)
    assert newest(PosixDisk(), tmp_path) == content_of(20)


def test_the_claim_names_the_attempt(tmp_path: Path) -> None:
    opened(PosixDisk(), tmp_path)
    assert fencing.claims(PosixDisk(), tmp_path)[0].identity == JOB


def steps(path: Path) -> list[int]:
    found = (CHECKPOINT_NAME.fullmatch(one.name) for one in path.iterdir())
    return sorted(int(match.group(1)) for match in found if match)


def _copied(disk: CrashingDisk) -> CrashingDisk:
    import copy

    return CrashingDisk(copy.deepcopy(disk.root))
