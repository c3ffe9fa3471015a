"""Processes are told apart by pid and start time, and found wherever they hide."""

import os
import signal
import subprocess
import sys

import pytest
from support.nodeagent_shim import until

from clusterops.nodeagent import processes
from clusterops.nodeagent.processes import Process


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "1000"], env={"MARK": "a b"})
    until(lambda: processes.declares(process.pid, "MARK=a b"), "its exec")
    yield process
    process.kill()
    process.wait()


def test_a_process_is_read_from_the_table(sleeper) -> None:
    found = processes.read(sleeper.pid)
    assert found is not None
    assert (found.pid, found.parent, found.session) == (sleeper.pid, os.getpid(), os.getsid(0))
    assert not found.dead
    assert sleeper.pid in [process.pid for process in processes.table()]


def test_a_name_with_parentheses_and_blanks_does_not_confuse(tmp_path) -> None:
    program = tmp_path / "a) S 1 (b"
    program.symlink_to(sys.executable)
    process = subprocess.Popen([str(program), "-c", "import time; time.sleep(1000)"])
    found = processes.read(process.pid)
    assert found is not None
    assert found.parent == os.getpid()
    process.kill()
    process.wait()


def test_another_start_time_is_another_process(sleeper) -> None:
    found = processes.read(sleeper.pid)
    assert found is not None
    assert processes.is_alive(sleeper.pid, found.start_ticks)
    assert processes.open_pidfd(sleeper.pid, found.start_ticks + 1) is None
    assert not processes.send(sleeper.pid, found.start_ticks + 1, signal.SIGKILL)
    assert sleeper.poll() is None
    assert processes.send(sleeper.pid, found.start_ticks, signal.SIGKILL)
    assert sleeper.wait(20) == -signal.SIGKILL


def test_a_zombie_is_dead(sleeper) -> None:
    found = processes.read(sleeper.pid)
    assert found is not None
    sleeper.kill()
    until(lambda: processes.read(sleeper.pid).dead, "a zombie")
    assert not processes.is_alive(sleeper.pid, found.start_ticks)
    assert not processes.send(sleeper.pid, found.start_ticks, signal.SIGTERM)


def test_a_pid_that_nobody_has() -> None:
    assert processes.read(2**22 + 1) is None
    assert not processes.is_alive(2**22 + 1, 0)
    assert not processes.declares(2**22 + 1, "A=b")


def test_the_environment_is_compared_whole(sleeper) -> None:
    assert processes.declares(sleeper.pid, "MARK=a b")
    assert not processes.declares(sleeper.pid, "MARK=a")
    assert not processes.declares(sleeper.pid, "ARK=a b")


def test_descendants_at_any_depth_and_no_others() -> None:
    table = [
        Process(pid, parent, session, 0, "S")
        for pid, parent, session in [
            (10, 1, 10),
            (11, 10, 10),
            (12, 11, 12),
            (13, 1, 13),
            (14, 12, 12),
        ]
    ]
    assert [p.pid for p in processes.descendants([10], table)] == [11, 12, 14]
    assert processes.descendants([14], table) == []
    assert [p.pid for p in processes.in_session(12, table)] == [12, 14]


def test_a_cycle_in_a_torn_table_does_not_hang() -> None:
    table = [Process(5, 6, 5, 0, "S"), Process(6, 5, 5, 0, "S")]
    assert [p.pid for p in processes.descendants([5], table)] == [6]
