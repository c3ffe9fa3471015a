"""Starting in the background, with real processes that stand in for `up`."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterops.local import background
from clusterops.local.errors import AlreadyRunning, StartFailed
from clusterops.local.state_folder import StateFolder

# Holds the folder as `up` does, says that it is ready, and stays until it is told to end.
PROGRAM = """
import argparse, pathlib, signal, sys
from clusterops.local import background
from clusterops.local.state_folder import StateFolder
options = argparse.ArgumentParser()
options.add_argument("--ready-fd", type=int)
options.add_argument("--state-dir", type=pathlib.Path)
chosen = options.parse_args()
try:
    with StateFolder(chosen.state_dir).locked():
        print("up", flush=True)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        background.say_ready(chosen.ready_fd)
        signal.pause()
except Exception as error:
    print(f"error: {error}", flush=True)
    sys.exit(1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    folder = StateFolder(tmp_path / "state")
    folder.create()
    return folder


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes to end after the test."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.terminate()
        process.wait(20)


def up(folder: StateFolder, program: str = PROGRAM) -> subprocess.Popen[bytes]:
    return background.start(folder, [sys.executable, "-c", program, f"--state-dir={folder.root}"])


def test_who_comes_up_says_so_itself_and_keeps_its_log(
    folder: StateFolder, started: list[subprocess.Popen[bytes]]
):
    started.append(up(folder))
    assert folder.running_pid() == started[0].pid
    assert (folder.logs / "up.log").read_text() == "up\n"


def test_of_two_that_start_at_the_same_moment_one_runs_and_the_other_is_told_who(
    folder: StateFolder, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
):
    results: list[subprocess.Popen[bytes] | AlreadyRunning] = []
    pids = iter((101, 102))
    both = threading.Barrier(2)

    def start() -> None:
        both.wait(20)
        try:
            results.append(up(folder))
        except AlreadyRunning as refused:
            results.append(refused)

    # Threads of one process stand in for two commands: each has a log of its own.
    monkeypatch.setattr(background.os, "getpid", lambda: next(pids))
    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    started += [result for result in results if isinstance(result, subprocess.Popen)]
    refused = [result for result in results if isinstance(result, AlreadyRunning)]
    assert len(started) == len(refused) == 1
    assert refused[0].pid == started[0].pid == folder.running_pid()
    assert (folder.logs / "up.log").read_text() == "up\n", "the other did not write into it"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("print('chatter'); print('error: no space left'); raise SystemExit(1)", "no space left"),
        ("print('only chatter'); raise SystemExit(1)", "only chatter"),
        ("raise SystemExit(1)", "it said nothing"),
    ],
)
def test_one_that_does_not_come_up_is_told_with_its_last_words(
    folder: StateFolder, program: str, words: str
):
    with pytest.raises(StartFailed) as failed:
        up(folder, program)
    assert str(failed.value) == words
    assert str(folder.logs / "up-failed.log") in failed.value.way_out


def test_one_that_says_nothing_in_time_is_ended(
    folder: StateFolder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(background, "START_SECONDS", 0.3)
    made: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def remember(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        made.append(popen(*arguments, **options))  # type: ignore[call-overload]
        return made[-1]

    monkeypatch.setattr(background.subprocess, "Popen", remember)
    with pytest.raises(StartFailed):
        up(folder, "import time; time.sleep(60)")
    assert made[0].returncode == -15


def test_nobody_listening_does_no_harm() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    background.say_ready(writing)
