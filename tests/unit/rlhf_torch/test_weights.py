"""Versions of the weights: whole or absent, checked, and the same when published again."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.rlhf_torch_toys import small_model

from rlhf.weights import Snapshots, SnapshotUnreadable


def state(value: float):
    return {"a": torch.full((3, 2), value), "b": torch.arange(4), "none": torch.zeros(0)}


def test_what_is_published_is_what_is_loaded(tmp_path):
    snapshots = Snapshots(tmp_path / "weights")
    snapshots.publish(3, small_model().state_dict())
    loaded = snapshots.load(3)
    original = small_model().state_dict()
    assert set(loaded) == set(original)
    assert all(torch.equal(loaded[name], original[name]) for name in original)


def test_tensors_that_share_memory_are_written_once_and_come_back_under_both_names(tmp_path):
    shared = torch.arange(1000.0)
    snapshots = Snapshots(tmp_path)
    path = snapshots.publish(0, {"embedding": shared, "output": shared})
    assert path.stat().st_size < 6000
    loaded = snapshots.load(0)
    assert torch.equal(loaded["embedding"], loaded["output"])


def test_any_changed_byte_is_found(tmp_path):
    snapshots = Snapshots(tmp_path)
    path = snapshots.publish(1, state(1.0))
    content = bytearray(path.read_bytes())
    for place in range(0, len(content), 37):
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        try:
            loaded = snapshots.load(1)
        except SnapshotUnreadable:
            continue
        assert all(torch.equal(loaded[name], each) for name, each in state(1.0).items()), place


def test_a_torn_or_missing_file_is_refused(tmp_path):
    snapshots = Snapshots(tmp_path)
    path = snapshots.publish(1, state(1.0))
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(SnapshotUnreadable, match="version_00000001"):
        snapshots.load(1)
    with pytest.raises(SnapshotUnreadable, match="version_00000002"):
        snapshots.load(2)


def test_a_file_of_another_version_under_this_name_is_refused(tmp_path):
    snapshots = Snapshots(tmp_path)
    snapshots.publish(1, state(1.0)).rename(snapshots.path(2))
    with pytest.raises(SnapshotUnreadable, match="not what was published"):
        snapshots.load(2)


def test_equal_weights_published_again_leave_the_file_alone_and_others_replace_it(tmp_path):
    snapshots = Snapshots(tmp_path)
    first = snapshots.publish(1, state(1.0)).stat().st_ino
    assert snapshots.publish(1, state(1.0)).stat().st_ino == first
    snapshots.publish(1, state(2.0))
    assert snapshots.load(1)["a"][0, 0] == 2.0


def test_versions_are_retired_below_the_oldest_needed(tmp_path):
    snapshots = Snapshots(tmp_path)
    for version in range(5):
        snapshots.publish(version, state(float(version)))
    (tmp_path / "notes.txt").write_text("mine")
    assert snapshots.retire(below=3) == [0, 1, 2]
    assert snapshots.versions() == [3, 4]
    assert (tmp_path / "notes.txt").exists()


def test_nothing_but_the_version_is_left_in_the_folder(tmp_path):
    Snapshots(tmp_path).publish(0, state(1.0))
    assert [entry.name for entry in tmp_path.iterdir()] == ["version_00000000.safetensors"]
