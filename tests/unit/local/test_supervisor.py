"""The supervisor with real processes: restarts what ends, stops all, leaves nothing."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterops.local.parts import Part, log_file
from clusterops.local.state_folder import StateFolder
from clusterops.local.supervisor import Supervisor


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    folder = StateFolder(tmp_path)
    folder.create()
    return folder


def python(code: str, name: str = "part") -> Part:
    return Part(name, (sys.executable, "-c", code))


async def eventually(true: Callable[[], bool], waiting_for: str) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, f"waited 20 s for {waiting_for}"
        await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_part_that_ends_is_started_again_and_counted(folder: StateFolder, tmp_path: Path):
    marks = tmp_path / "marks"
    supervisor = Supervisor(folder, os.environ)
    await supervisor.start(python(f"open({str(marks)!r}, 'a').write('x')"))
    await eventually(lambda: marks.exists() and len(marks.read_text()) >= 2, "a second life")
    row = json.loads(folder.parts_file.read_text())[0]
    assert row["restarts"] >= 1
    assert row["lastExit"] == 0
    await supervisor.stop()


async def test_output_goes_to_the_log_of_the_part_and_its_end_can_be_quoted(folder: StateFolder):
    supervisor = Supervisor(folder, os.environ)
    await supervisor.start(
        python("import sys; print('out'); print('why', file=sys.stderr); sys.exit(3)")
    )
    await eventually(lambda: supervisor.exit_of("part") == 3, "the part to end")
    assert "why" in supervisor.log_tail("part")
    assert "out" in log_file(folder, "part").read_text()
    await supervisor.stop()


async def test_stopping_ends_a_part_that_ignores_the_request(
    folder: StateFolder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("clusterops.local.supervisor.STOP_SECONDS", 0.5)
    supervisor = Supervisor(folder, os.environ)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    await supervisor.start(python(f"while True:\n {deaf}"))
    await eventually(lambda: "deaf" in supervisor.log_tail("part"), "the part to be deaf")
    pid = json.loads(folder.parts_file.read_text())[0]["pid"]
    await supervisor.stop()
    assert not alive(pid)
    assert not folder.parts_file.exists()


async def test_parts_stop_in_the_opposite_order_of_their_start(folder: StateFolder, tmp_path: Path):
    order = tmp_path / "order"
    code = (
        "import signal, sys\n"
        "def end(*_):\n    open({order!r}, 'a').write({name!r}); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('up', flush=True)\n"
        "while True:\n    signal.pause()\n"
    )
    supervisor = Supervisor(folder, os.environ)
    for name in ("a", "b", "c"):
        await supervisor.start(python(code.format(order=str(order), name=name), name))
        await eventually(lambda name=name: "up" in supervisor.log_tail(name), f"part {name}")
    await supervisor.stop()
    assert order.read_text() == "cba"
