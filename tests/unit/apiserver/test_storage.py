"""The database file: what is kept, and what is refused with which advice."""

import os
import resource
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterops.apiserver import database_file
from clusterops.apiserver.database_file import StorageError, StorageLocked, StorageUnsafe
from clusterops.apiserver.failpoints import Failpoint
from clusterops.apiserver.storage import (
    Change,
    StorageCorrupt,
    StorageFull,
    StorageTooNew,
    open_storage,
)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder / "clusterops.db"


def _change(revision: int, body: bytes | None = b"{}", created: int | None = None) -> Change:
    return Change(created or revision, revision, "pods", "ns", f"p{created or revision}", body)


def _kept(database: Path) -> tuple[int, dict[int, bytes]]:
    storage = open_storage(database)
    try:
        return storage.revision(), {row.created: row.body for row in storage.rows()}
    finally:
        storage.close()


def test_what_was_committed_is_there_after_a_restart(database: Path) -> None:
    storage = open_storage(database)
    storage.commit([_change(2, b"a"), _change(3, b"b"), _change(4, b"c", created=2)])
    storage.commit([_change(5, None, created=3), _change(6, b"d")])
    storage.close()
    assert _kept(database) == (6, {2: b"c", 6: b"d"})


def test_an_object_made_and_removed_in_one_commit_leaves_only_its_revision(
    database: Path,
) -> None:
    storage = open_storage(database)
    storage.commit([_change(2), _change(3, b"x", created=2), _change(4, None, created=2)])
    storage.close()
    assert _kept(database) == (4, {})


def test_a_commit_of_more_rows_than_a_statement_takes_is_whole(database: Path) -> None:
    storage = open_storage(database)
    storage.commit([_change(revision) for revision in range(2, 302)])
    storage.commit([_change(302 + n, None, created=2 + n) for n in range(150)])
    storage.close()
    revision, rows = _kept(database)
    assert revision == 451
    assert sorted(rows) == list(range(152, 302))


def test_files_are_for_their_owner_alone(database: Path) -> None:
    storage = open_storage(database)
    storage.commit([_change(2)])
    for path in database.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    storage.close()


def test_a_new_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    open_storage(tmp_path / "new" / "clusterops.db").close()
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_a_folder_that_others_may_enter_is_refused_with_the_command(database: Path) -> None:
    database.parent.chmod(0o755)
    with pytest.raises(StorageUnsafe, match="chmod 700"):
        open_storage(database)
    assert not database.exists()


def test_a_link_in_place_of_the_database_is_refused(database: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.touch()
    database.symlink_to(target)
    with pytest.raises(StorageUnsafe, match="not a regular file"):
        open_storage(database)
    assert target.read_bytes() == b""


def test_a_second_server_is_refused_and_told_who_the_first_is(database: Path) -> None:
    storage = open_storage(database)
    with pytest.raises(StorageLocked, match=f"process {os.getpid()}"):
        open_storage(database)
    storage.close()
    open_storage(database).close()


@pytest.mark.parametrize("name", ["nfs4", "fuse.sshfs", "cifs"])
def test_network_file_systems_are_refused(
    database: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(database_file, "file_system_of", lambda _: name)
    with pytest.raises(StorageUnsafe, match=name):
        open_storage(database)


def test_the_innermost_mount_decides_on_the_file_system(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    deep = tmp_path / "with blank" / "deep"
    deep.mkdir(parents=True)
    escaped = str(deep.parent).replace(" ", "\\040")
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        f"2 1 0:1 / {escaped} rw shared:1 - nfs4 server:/x rw\n"
        f"3 1 0:2 / {escaped}X rw - tmpfs tmpfs rw\n"
    )
    assert database_file.file_system_of(deep, mounts) == "nfs4"
    assert database_file.file_system_of(tmp_path, mounts) == "ext4"
    assert database_file.file_system_of(tmp_path, tmp_path / "missing") == ""


def test_a_database_of_a_newer_version_is_refused_and_left_alone(database: Path) -> None:
    open_storage(database).close()
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = database.read_bytes()
    with pytest.raises(StorageTooNew, match="format 99"):
        open_storage(database)
    assert database.read_bytes() == before


def test_a_database_of_something_else_is_refused_and_left_alone(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StorageCorrupt, match="not one of ours"):
        open_storage(database)
    connection = sqlite3.connect(database)
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    connection.close()


UNUSED_PLACES = (5000, 8500)  # of pages of which little is in use


@pytest.mark.parametrize("offset", [0, 100, 5000, 8500, 20_000, 60_000])
def test_damage_is_found_at_the_start_and_the_way_out_is_told(database: Path, offset: int) -> None:
    storage = open_storage(database)
    storage.commit([_change(revision, b"x" * 3000) for revision in range(2, 40)])
    storage.close()
    content = bytearray(database.read_bytes())
    content[offset : offset + 64] = b"\xa5" * 64
    database.write_bytes(content)
    if offset in UNUSED_PLACES:
        assert _kept(database) == (39, dict.fromkeys(range(2, 40), b"x" * 3000))
        return
    with pytest.raises(StorageCorrupt, match=r"move clusterops\.db"):
        _kept(database)
    assert database.read_bytes() == content, "evidence is kept"


def test_damage_within_an_object_is_found_and_the_object_named(database: Path) -> None:
    storage = open_storage(database)
    storage.commit([_change(2, b'{"metadata":{"name":"precious"}}')])
    storage.close()
    database.write_bytes(database.read_bytes().replace(b"precious", b"pernicio"))
    with pytest.raises(StorageCorrupt, match="checksum of pods ns/p2"):
        _kept(database)


def test_no_database_at_all_is_told_from_a_damaged_one(database: Path) -> None:
    database.write_bytes(b"this is no database, but it is long enough to look like one" * 20)
    with pytest.raises(StorageCorrupt, match="is damaged"):
        open_storage(database)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write to read-only folders")
def test_a_read_only_folder_is_told(database: Path) -> None:
    database.parent.chmod(0o500)
    with pytest.raises(StorageError, match="read-only"):
        open_storage(database)
    database.parent.chmod(0o700)


def test_a_read_only_folder_is_told_to_root_too(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_file.os, "access", lambda *_: False)
    with pytest.raises(StorageError, match="read-only"):
        open_storage(database)


@pytest.fixture
def file_size_limit() -> Iterator[None]:
    """No file of this process may grow beyond 256 KiB: a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_refuses_a_commit_whole_and_the_next_small_one_fits(
    database: Path, file_size_limit: None
) -> None:
    storage = open_storage(database)
    storage.commit([_change(2, b"kept")])
    with pytest.raises(StorageFull, match="no space"):
        storage.commit([_change(3, b"x" * 1_000_000), _change(4, b"y")])
    storage.commit([_change(5, b"also kept")])
    storage.close()
    assert _kept(database) == (5, {2: b"kept", 5: b"also kept"})


def test_a_point_that_is_not_listed_cannot_be_armed() -> None:
    with pytest.raises(ValueError, match="no write point"):
        Failpoint("commit.sometime", 1)


@pytest.mark.parametrize("point", ["open.created", "open.schema"])
def test_a_start_that_was_killed_can_be_repeated(database: Path, point: str) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from clusterops.apiserver.storage import open_storage\n"
        "from clusterops.apiserver.failpoints import from_environment\n"
        "open_storage(Path(sys.argv[1]), from_environment())\n"
    )
    environment = {**os.environ, "APISERVER_FAILPOINT": f"{point}:1"}
    killed = subprocess.run([sys.executable, "-c", script, str(database)], env=environment)
    assert killed.returncode == -9
    assert _kept(database) == (1, {})
