"""Logs of pods that are gone, from this machine's files."""

from datetime import UTC, datetime
from pathlib import Path

from clusterops.cli import kept_logs

CREATED = datetime(2026, 11, 30, 19, 0, tzinfo=UTC)


def write(
    root: Path,
    pod: str,
    *lines: str,
    uid: str = "u",
    file: str = "0.log",
    container: str = "train",
    namespace: str = "ns",
) -> None:
    folder = root / f"{namespace}_{pod}_{uid}" / container
    folder.mkdir(parents=True, exist_ok=True)
    stamped = [f"2026-11-30T19:{line[:5]}.123456789Z stdout {line[6:]}\n" for line in lines]
    (folder / file).write_text("".join(stamped))


def found(root: Path, job: str = "llm", attempt: int = 1) -> list[kept_logs.KeptLog]:
    return kept_logs.find(root, "ns", job, "train", attempt, CREATED)


def texts(log: kept_logs.KeptLog) -> list[str]:
    return [line.text for line in kept_logs.lines(log)]


def test_each_rank_of_the_attempt_is_found_and_no_other_pod(tmp_path: Path) -> None:
    for rank in (0, 2, 10):
        write(tmp_path, f"llm-1-{rank}", f"01:00 F rank {rank}")
    write(tmp_path, "llm-2-0", "01:00 F another attempt")
    write(tmp_path, "llm-1-0-1-0", "01:00 F another job: llm-1-0")
    write(tmp_path, "llm-1-0", "01:00 F elsewhere", namespace="other")
    write(tmp_path, "llm-1-7", "01:00 F an init container", container="prepare")
    logs = found(tmp_path)
    assert [(log.rank, texts(log)) for log in logs] == [
        (0, ["rank 0"]), (2, ["rank 2"]), (10, ["rank 10"]),
    ]  # fmt: skip


def test_logs_of_an_earlier_job_of_that_name_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "ns_llm-1-0_old" / "train"
    folder.mkdir(parents=True)
    (folder / "0.log").write_text("2026-11-29T10:00:00.000000000Z stdout F old\n")
    assert found(tmp_path) == []
    write(tmp_path, "llm-1-0", "01:00 F new", uid="new")
    assert [texts(log) for log in found(tmp_path)] == [["new"]]


def test_rotated_files_come_first_the_oldest_before_all(tmp_path: Path) -> None:
    write(tmp_path, "llm-1-0", "01:03 F third")
    write(tmp_path, "llm-1-0", "01:02 F second", file="0.log.1")
    write(tmp_path, "llm-1-0", "01:01 F first", file="0.log.2")
    assert texts(found(tmp_path)[0]) == ["first", "second", "third"]


def test_pieces_of_one_line_are_put_together_and_torn_lines_skipped(tmp_path: Path) -> None:
    write(tmp_path, "llm-1-0", "01:00 P long ", "01:01 F line", "01:02 F ")
    file = tmp_path / "ns_llm-1-0_u" / "train" / "0.log"
    with file.open("a") as log:
        log.write("2026-11-30T19:02:00Z stderr P no end\n2026-11-30T19:02")
    assert texts(found(tmp_path)[0]) == ["long line", "", "no end"]


def test_ranks_are_merged_by_time_and_cut_each(tmp_path: Path) -> None:
    write(tmp_path, "llm-1-0", "01:00 F a", "01:02 F c")
    write(tmp_path, "llm-1-1", "01:01 F b", "01:03 F d")
    logs = found(tmp_path)
    assert [line.text for line in kept_logs.merged(logs, None)] == ["a", "b", "c", "d"]
    assert [line.text for line in kept_logs.merged(logs, 1)] == ["c", "d"]
    assert kept_logs.merged(logs, 0) == []
