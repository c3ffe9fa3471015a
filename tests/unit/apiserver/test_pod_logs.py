"""Logs of pods: found safely, cut as asked, followed to their end."""

from pathlib import Path
from typing import Any

import pytest
from support.apiserver_world import PODS, World, pod

from clusterops.apiserver.log_files import BLOCK, LogReader, LogWindow, parse_time


def _line(second: int, text: str, tag: str = "F") -> str:
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}.123456789Z stdout {tag} {text}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "logs" / "ns_p_uid" / "main"
    found.mkdir(parents=True)
    return found


@pytest.fixture
def reader(tmp_path: Path) -> LogReader:
    return LogReader(tmp_path / "logs")


def _read(reader: LogReader, window: LogWindow, restart: int = 0, **where: str) -> str:
    place = {"namespace": "ns", "pod": "p", "uid": "uid", "container": "main", **where}
    log = reader.open(**place, restart=restart)
    pieces = [log.read_first(window)]
    while pieces[-1]:
        pieces.append(log.read_more(window))
    log.close()
    return b"".join(pieces).decode()


def test_rotated_files_are_read_from_the_oldest_on(folder: Path, reader: LogReader) -> None:
    for name, number in (("0.log.10", 1), ("0.log.2", 2), ("0.log.1", 3), ("0.log", 4)):
        (folder / name).write_text(_line(number, f"line {number}"))
    (folder / "1.log").write_text(_line(9, "another run"))
    assert _read(reader, LogWindow()) == "line 1\nline 2\nline 3\nline 4\n"
    assert _read(reader, LogWindow(), restart=1) == "another run\n"


@pytest.mark.parametrize("tail", [0, 1, 2, 3, 5, 100])
def test_the_last_lines_count_over_files_and_parts(
    folder: Path, reader: LogReader, tail: int
) -> None:
    (folder / "0.log.1").write_text(_line(1, "one") + _line(2, "tw", "P"))
    (folder / "0.log").write_text(
        _line(2, "o", "F") + _line(3, "three") + _line(4, "fo", "P") + _line(4, "ur") + "2026"
    )
    wanted = ["one\n", "two\n", "three\n", "four\n"]
    assert _read(reader, LogWindow(tail=tail)) == "".join(wanted[-tail:] if tail else [])


def test_the_last_lines_of_a_large_file_are_found_from_its_end(
    folder: Path, reader: LogReader
) -> None:
    count = 3 * BLOCK // 40
    (folder / "0.log").write_text("".join(_line(n % 3600, f"n{n}") for n in range(count)))
    expected = "".join(f"n{n}\n" for n in range(count - 3000, count))
    assert _read(reader, LogWindow(tail=3000)) == expected
    assert _read(reader, LogWindow()).count("\n") == count


def test_times_limit_and_prefix_lines(folder: Path, reader: LogReader) -> None:
    (folder / "0.log").write_text("".join(_line(n, f"n{n}") for n in range(5)))
    since = LogWindow(since=parse_time("2026-01-01T00:00:03Z"))
    assert _read(reader, since) == "n3\nn4\n"
    stamped = LogWindow(tail=1, timestamps=True)
    assert _read(reader, stamped) == "2026-01-01T00:00:04.123456789Z n4\n"
    assert _read(reader, LogWindow(bytes_left=4)) == "n0\nn"


@pytest.mark.parametrize(
    "where",
    [
        {"container": ".."},
        {"container": "../../secret"},
        {"pod": "../x"},
        {"container": ""},
        {"container": "main/../main"},
        {"namespace": "/etc"},
    ],
)
def test_no_name_leads_out_of_the_folder(
    folder: Path, reader: LogReader, where: dict[str, str]
) -> None:
    for place in (folder, folder.parent, folder.parent.parent, folder.parents[2]):
        (place / "0.log").write_text(_line(1, "secret"))
    assert _read(reader, LogWindow(), **where) == ""


def test_links_are_not_followed(folder: Path, reader: LogReader, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "0.log").write_text(_line(1, "secret"))
    (folder / "0.log").symlink_to(secret / "0.log")
    assert _read(reader, LogWindow()) == ""
    assert _read(reader, LogWindow(tail=1)) == ""
    (folder.parent / "linked").symlink_to(secret)
    assert _read(reader, LogWindow(), container="linked") == ""


@pytest.fixture
def pod_folder(world: World) -> Path:
    found = world.server._config.pod_logs_dir
    assert found is not None
    return found


async def _running(world: World, **status: Any) -> dict:
    made = await world.post(PODS, pod("p"))
    await world.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    await _report(world, {"running": {}}, **status)
    return made


async def _report(world: World, state: dict, restarts: int = 0, phase: str = "Running") -> None:
    found = {"name": "main", "state": state, "restartCount": restarts, "image": "x",
             "imageID": "", "ready": True}  # fmt: skip
    await world.patch(
        f"{PODS}/p/status", {"status": {"phase": phase, "containerStatuses": [found]}}
    )


def _log_file(base: Path, made: dict, name: str = "0.log") -> Path:
    folder = base / f"default_p_{made['metadata']['uid']}" / "main"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


async def test_a_followed_log_ends_with_the_container_and_loses_no_line(
    world: World, pod_folder: Path
) -> None:
    made = await _running(world)
    path = _log_file(pod_folder, made)
    path.write_text(_line(1, "one"))
    stream = await world.watch(f"{PODS}/p/log?follow=true")
    assert await stream.line() == b"one"
    with path.open("a") as file:
        file.write(_line(2, "two") + "2026-01-01T00:00:03Z stdout F thr")
        file.flush()
        assert await stream.line() == b"two"
        file.write("ee\n")
    assert await stream.line() == b"three"
    path.rename(path.with_name("0.log.1"))
    path.write_text(_line(4, "four"))
    assert await stream.line() == b"four"
    with path.open("a") as file:
        file.write(_line(5, "last"))
    await _report(world, {"terminated": {"exitCode": 0}}, phase="Succeeded")
    assert await stream.line() == b"last"
    assert await stream.line() is None


async def test_closing_the_server_ends_followed_logs(world: World, pod_folder: Path) -> None:
    made = await _running(world)
    _log_file(pod_folder, made).write_text("")
    stream = await world.watch(f"{PODS}/p/log?follow=true")
    world.server.end_streams()
    assert await stream.line() is None


async def test_what_cannot_be_shown_is_told_in_kubernetes_words(
    world: World, pod_folder: Path
) -> None:
    await world.post(PODS, pod("p"))
    assert (await world.request("GET", f"{PODS}/p/log")).status == 204
    await world.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    waiting = await world.request("GET", f"{PODS}/p/log")
    assert waiting.status == 400
    assert waiting.message == ('container "main" in pod "p" is waiting to start: ContainerCreating')
    wrong = await world.request("GET", f"{PODS}/p/log?container=x")
    assert wrong.message == "container x is not valid for pod p"
    await _report(world, {"running": {}})
    previous = await world.request("GET", f"{PODS}/p/log?previous=true")
    assert previous.message == 'previous terminated container "main" in pod "p" not found'
    assert (await world.request("GET", f"{PODS}/q/log")).status == 404


async def test_the_run_before_the_last_restart_is_shown_on_request(
    world: World, pod_folder: Path
) -> None:
    made = await _running(world, restarts=2)
    _log_file(pod_folder, made, "1.log").write_text(_line(1, "before"))
    _log_file(pod_folder, made, "2.log").write_text(_line(2, "after"))
    assert (await world.request("GET", f"{PODS}/p/log")).content == b"after\n"
    answer = await world.request("GET", f"{PODS}/p/log?previous=true&timestamps=true")
    assert answer.content == b"2026-01-01T00:00:01.123456789Z before\n"
