"""Volumes as folders: whole or not at all, private when secret, inside the allowed roots."""

import socket
import stat
from pathlib import Path, PurePosixPath

import pytest

from clusterops.nodeagent import volume_files
from clusterops.nodeagent.downward import ConfigError
from clusterops.nodeagent.volumes import File, Places, Unsupported, Volume


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "volumes", tmp_path / "claims")


def test_files_have_content_and_mode(tmp_path, places) -> None:
    files = (
        File(PurePosixPath("deep/token"), b"s3cret", 0o600),
        File(PurePosixPath("run.sh"), b"#!/bin/sh\n", 0o755),
    )
    volume = Volume("s", tmp_path / "volumes" / "s", files=files)
    volume_files.make(volume, places)
    assert (volume.path / "deep/token").read_bytes() == b"s3cret"
    assert stat.S_IMODE((volume.path / "deep/token").stat().st_mode) == 0o600
    assert stat.S_IMODE((volume.path / "run.sh").stat().st_mode) == 0o755


def test_what_a_crash_left_half_written_does_not_stay(tmp_path, places) -> None:
    half = tmp_path / "volumes" / "s.new"
    half.mkdir(parents=True)
    (half / "stale").write_text("x")
    volume = Volume("s", tmp_path / "volumes" / "s", files=(File(PurePosixPath("a"), b"1", 0o644),))
    volume_files.make(volume, places)
    assert [path.name for path in volume.path.iterdir()] == ["a"]
    assert not half.exists()


def test_a_folder_that_is_there_keeps_its_content(tmp_path, places) -> None:
    volume = Volume("c", tmp_path / "claims/ns/c", create=True)
    volume_files.make(volume, places)
    (volume.path / "kept").write_text("x")
    volume_files.make(volume, places)
    assert (volume.path / "kept").read_text() == "x"


def test_types_of_host_paths(tmp_path, places) -> None:
    folder = tmp_path / "folder"
    volume_files.make(Volume("h", folder, host_type="DirectoryOrCreate"), places)
    volume_files.make(Volume("h", folder, host_type="Directory"), places)
    file = folder / "file"
    volume_files.make(Volume("h", file, host_type="FileOrCreate"), places)
    volume_files.make(Volume("h", file, host_type="File"), places)
    volume_files.make(Volume("h", Path("/dev/null"), host_type="CharDevice"), places)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "s"))
        volume_files.make(Volume("h", folder / "s", host_type="Socket"), places)
    volume_files.make(Volume("h", tmp_path / "anything", host_type=""), places)
    with pytest.raises(ConfigError, match="no Directory"):
        volume_files.make(Volume("h", file, host_type="Directory"), places)
    with pytest.raises(ConfigError, match="does not exist"):
        volume_files.make(Volume("h", folder / "none", host_type="File"), places)


def test_a_symbolic_link_does_not_lead_out_of_the_roots(tmp_path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "inside").mkdir()
    (root / "link").symlink_to("/etc")
    places = Places(tmp_path, tmp_path, (root,))
    volume_files.make(Volume("h", root / "inside", host_type="Directory"), places)
    with pytest.raises(Unsupported, match="leads out"):
        volume_files.make(Volume("h", root / "link", host_type="Directory"), places)
