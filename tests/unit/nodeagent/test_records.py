"""Records are whole or absent, private, and never lost to a full disk."""

import os
import stat
from pathlib import Path

import pytest

from clusterops.nodeagent import records


def test_what_is_written_is_read(tmp_path) -> None:
    path = str(tmp_path / "a.json")
    for durable in (True, False):
        records.write(path, {"durable": durable, "text": "ä"}, durable=durable)
        assert records.read(path) == {"durable": durable, "text": "ä"}
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\0" * 10, b"\xff"])
def test_what_is_no_whole_record_counts_as_none(tmp_path, content) -> None:
    (tmp_path / "a.json").write_bytes(content)
    assert records.read(str(tmp_path / "a.json")) is None
    assert records.read(str(tmp_path / "none.json")) is None
    assert records.read(str(tmp_path / "a.json" / "below.json")) is None


def test_a_failed_write_leaves_the_old_record_and_nothing_else(tmp_path, monkeypatch) -> None:
    path = str(tmp_path / "a.json")
    records.write(path, {"n": 1}, durable=True)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            records.write(path, {"n": 2}, durable=True)
    assert records.read(path) == {"n": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_an_exit_record_uses_the_reserved_space(tmp_path) -> None:
    records.reserve_exit(str(tmp_path))
    inode = (tmp_path / records.EXIT_RESERVE).stat().st_ino
    records.write_exit(str(tmp_path), {"code": 3})
    assert (tmp_path / records.EXIT).stat().st_ino == inode
    assert records.read(str(tmp_path / records.EXIT)) == {"code": 3}


def test_an_exit_record_without_reserve_or_too_large_for_it_is_written_all_the_same(
    tmp_path,
) -> None:
    records.write_exit(str(tmp_path), {"code": 1})
    assert records.read(str(tmp_path / records.EXIT)) == {"code": 1}
    records.reserve_exit(str(tmp_path))
    large = {"message": "x" * 10_000}
    records.write_exit(str(tmp_path), large)
    assert records.read(str(tmp_path / records.EXIT)) == large


def test_timestamps_are_utc() -> None:
    assert records.timestamp(1_767_225_600_999_999_999) == "2026-01-01T00:00:00Z"
