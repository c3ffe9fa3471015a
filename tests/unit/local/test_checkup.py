"""`doctor`: what it finds wrong with a database, and that its remedy never costs a healthy one."""

import sqlite3
from contextlib import closing
from pathlib import Path

from clusterops.local import checkup
from clusterops.local.checkup import Finding
from clusterops.local.state_folder import StateFolder


async def _database(folder: StateFolder) -> Finding:
    found = await checkup.run(folder, {"PATH": ""})
    return next(finding for finding in found if finding.what == "database")


def _with_database(root: Path) -> StateFolder:
    folder = StateFolder(root)
    folder.create()
    with closing(sqlite3.connect(folder.database)) as database:
        database.execute("CREATE TABLE objects (key TEXT)")
        database.commit()
    return folder


async def test_a_healthy_database_has_no_remedy(tmp_path: Path):
    assert (await _database(_with_database(tmp_path))).ok


async def test_a_damaged_one_may_be_moved_away_with_its_log(tmp_path: Path):
    folder = _with_database(tmp_path)
    folder.database.write_bytes(b"no database at all " * 100)
    found = await _database(folder)
    assert not found.ok
    assert "-wal" in found.remedy


async def test_one_that_a_server_holds_is_not_opened(tmp_path: Path):
    folder = _with_database(tmp_path)
    with folder.locked():
        assert (await _database(folder)).ok


async def test_nobody_is_told_to_throw_away_what_could_only_not_be_opened(tmp_path: Path):
    folder = _with_database(tmp_path)
    with closing(sqlite3.connect(folder.database)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        found = await _database(folder)
    assert not found.ok
    assert "move" not in found.remedy
