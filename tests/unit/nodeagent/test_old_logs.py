"""Logs of pods that are gone stay for the retention and go after it."""

from clusterops.nodeagent.old_logs import OldLogs

HOUR = 3_600 * 10**9


def test_logs_go_after_their_time_and_not_before(tmp_path) -> None:
    logs = [tmp_path / "logs" / name for name in ("a", "b", "live")]
    for folder in logs:
        folder.mkdir(parents=True)
        (folder / "0.log").touch()
    old = OldLogs(tmp_path / "state")
    old.add("ua", str(logs[0]), 1 * HOUR)
    old.add("ub", str(logs[1]), 2 * HOUR)
    assert old.sweep(3600.0, 2 * HOUR + 1) == 1
    assert [folder.exists() for folder in logs] == [False, True, True]
    assert OldLogs(tmp_path / "state").sweep(3600.0, 10 * HOUR) == 1
    assert [folder.exists() for folder in logs] == [False, False, True]
    assert old.sweep(0.0, 99 * HOUR) == 0


def test_a_clock_that_was_set_back_keeps_them(tmp_path) -> None:
    (tmp_path / "logs").mkdir()
    old = OldLogs(tmp_path)
    old.add("u", str(tmp_path / "logs"), 5 * HOUR)
    assert old.sweep(3600.0, 1 * HOUR) == 0
    assert (tmp_path / "logs").exists()


def test_a_damaged_record_is_removed_and_harms_nothing(tmp_path) -> None:
    folder = tmp_path / "old-logs"
    folder.mkdir()
    (folder / "u.json").write_text("{")
    assert OldLogs(tmp_path).sweep(0.0, HOUR) == 1
    assert list(folder.iterdir()) == []
