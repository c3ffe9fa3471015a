"""The state folder: where it is, who may read it, who holds it, which ports it keeps."""

import errno
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from clusterops.local import state_folder
from clusterops.local.errors import AlreadyRunning, PortTaken, UnusableFolder
from clusterops.local.state_folder import StateFolder, default_path, file_system_of


def test_the_environment_names_the_folder_before_the_xdg_state_folder():
    assert default_path({"CLUSTEROPS_HOME": "/somewhere", "XDG_STATE_HOME": "/state"}) == Path(
        "/somewhere"
    )
    assert default_path({"XDG_STATE_HOME": "/state"}) == Path("/state/clusterops")
    assert default_path({}) == Path.home() / ".local/state/clusterops"


def test_the_folder_is_closed_to_other_users(tmp_path: Path):
    folder = StateFolder(tmp_path / "state")
    folder.create()
    assert stat.S_IMODE(folder.root.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.pki.stat().st_mode) == 0o700


def test_creating_it_again_closes_a_folder_that_was_open(tmp_path: Path):
    root = tmp_path / "state"
    root.mkdir(mode=0o755)
    StateFolder(root).create()
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_a_folder_below_a_file_is_refused_with_a_way_out(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableFolder, match="cannot be used") as refusal:
        StateFolder(tmp_path / "file" / "state").create()
    assert "--state-dir" in refusal.value.way_out


def test_a_network_file_system_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state_folder, "file_system_of", lambda _: "nfs4")
    with pytest.raises(UnusableFolder, match="nfs4"):
        StateFolder(tmp_path / "state").create()


def test_the_file_system_is_that_of_the_deepest_mount():
    assert file_system_of(Path("/proc/self")) == "proc"


def test_a_second_holder_is_told_which_process_holds_the_folder(tmp_path: Path):
    folder = StateFolder(tmp_path)
    with folder.locked():
        assert folder.running_pid() == os.getpid()
        with pytest.raises(AlreadyRunning, match=str(os.getpid())), folder.locked():
            raise AssertionError("two processes hold the folder")
    assert folder.running_pid() is None


def test_a_killed_holder_leaves_nothing_in_the_way(tmp_path: Path):
    holder = (
        "import pathlib, sys, os, signal\n"
        "from clusterops.local.state_folder import StateFolder\n"
        "with StateFolder(pathlib.Path(sys.argv[1])).locked():\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", holder, str(tmp_path)], check=False)
    assert ended.returncode == -9
    folder = StateFolder(tmp_path)
    assert folder.pid_file.exists(), "the pid file is stale"
    assert folder.running_pid() is None
    with folder.locked():
        assert folder.running_pid() == os.getpid()


def test_ports_stay_the_same_from_one_start_to_the_next(tmp_path: Path):
    folder = StateFolder(tmp_path)
    assert folder.fixed_ports() == folder.fixed_ports()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"apiserver": "x"}',
        '{"apiserver": 70000, "endpoint": 0}',
        '{"apiserver": 40001, "endpoint": 40001}',
    ],
)
def test_a_list_of_what_can_be_no_ports_is_made_anew(tmp_path: Path, content: str):
    folder = StateFolder(tmp_path)
    folder.ports.write_text(content)
    ports = folder.fixed_ports()
    assert json.loads(folder.ports.read_text()) == ports


def test_a_taken_port_is_named_with_the_way_out(tmp_path: Path):
    folder = StateFolder(tmp_path)
    port = folder.fixed_ports()["endpoint"]
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(PortTaken, match=str(port)) as refusal:
            folder.fixed_ports()
    assert "ports.json" in refusal.value.way_out


def test_a_write_that_fails_names_the_file_and_leaves_the_old_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    target = tmp_path / "ports.json"
    target.write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as failure:
        state_folder.write_atomically(target, "new")
    assert failure.value.filename == str(target)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"ports.json": "old"}
