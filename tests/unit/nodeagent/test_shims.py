"""The agent's side of shims: starting, watching, abandoning, and finding what a dead one left."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from support.nodeagent_cluster import eventually
from support.nodeagent_shim import end_processes_of, is_running, read_json

from clusterops.nodeagent import processes, records
from clusterops.nodeagent.processes import Process
from clusterops.nodeagent.shims import CannotStart, Shims, leftovers

KEY = ("ns", "p")


@pytest.fixture
def folder(tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    yield run
    end_processes_of(tmp_path)


@pytest.fixture
async def ended():
    return asyncio.Queue()


@pytest.fixture
async def shims(ended):
    found = Shims(ended.put_nowait, lambda _: None)
    yield found
    found.close()


def prepare(folder: Path, *argv: str) -> str:
    tmp = str(folder / "tmp")
    record = {
        "argv": list(argv),
        "env": {"PATH": os.environ["PATH"], "TMPDIR": tmp},
        "cwd": "/",
        "umask": 0o022,
        "log": str(folder / "0.log"),
        "logMaxBytes": 1 << 20,
        "logMaxFiles": 2,
    }
    records.write(str(folder / records.LAUNCH), record, durable=False)
    return f"TMPDIR={tmp}"


async def test_a_start_is_confirmed_and_its_end_is_told(shims, ended, folder) -> None:
    prepare(folder, "sleep", "0.2")
    await shims.start(folder, KEY)
    assert (folder / records.RUNNING).exists()
    assert await asyncio.wait_for(ended.get(), 20) == KEY
    assert read_json(folder / records.EXIT)["code"] == 0
    shim = read_json(folder / records.RUNNING)["shim"]["pid"]
    assert processes.read(shim) is None  # reaped, no zombie


async def test_a_run_that_is_over_at_once_is_still_a_start(shims, folder) -> None:
    prepare(folder, "true")
    await shims.start(folder, KEY)
    await eventually(lambda: (folder / records.EXIT).exists(), "its end")


async def test_starting_twice_starts_once(shims, folder) -> None:
    prepare(folder, "sleep", "1000")
    await shims.start(folder, KEY)
    first = read_json(folder / records.RUNNING)
    await shims.start(folder, KEY)
    assert read_json(folder / records.RUNNING) == first


async def test_what_the_shim_could_not_prepare_is_its_own_words(shims, folder) -> None:
    prepare(folder, "true")
    (folder / records.EXIT_RESERVE).mkdir()
    with pytest.raises(CannotStart, match="Is a directory"):
        await shims.start(folder, KEY)


async def test_stop_ends_a_run(shims, ended, folder) -> None:
    prepare(folder, "sleep", "1000")
    await shims.start(folder, KEY)
    shims.ask_to_stop(folder, 10)
    assert await asyncio.wait_for(ended.get(), 20) == KEY
    assert read_json(folder / records.EXIT)["code"] == 143


async def test_a_stop_asked_for_before_the_start_ends_the_run_as_soon_as_it_is_there(
    shims, ended, tmp_path
) -> None:
    """The TERM comes between fork and exec: lost there, the run would live until the KILL."""
    for number in range(10):
        folder = tmp_path / f"early{number}"
        folder.mkdir()
        prepare(folder, "sleep", "1000")
        shims.ask_to_stop(folder, 60)
        await shims.start(folder, KEY)
        assert await asyncio.wait_for(ended.get(), 20) == KEY
        assert read_json(folder / records.EXIT)["code"] == 143


async def test_a_prepared_run_can_be_abandoned_and_a_running_one_not(shims, folder) -> None:
    prepare(folder, "sleep", "1000")
    assert await shims.abandon(folder)
    assert not (folder / records.LAUNCH).exists()
    prepare(folder, "sleep", "1000")
    await shims.start(folder, KEY)
    assert not await shims.abandon(folder)


async def test_an_adopted_shim_is_watched_like_an_own_one(shims, ended, folder) -> None:
    prepare(folder, "sleep", "1000")
    await shims.start(folder, KEY)
    shims.close()
    later = Shims(ended.put_nowait, lambda _: None)
    assert later.watch(folder, KEY)
    later.ask_to_stop(folder, 0)
    assert await asyncio.wait_for(ended.get(), 20) == KEY
    assert not later.watch(folder, KEY)


async def test_records_of_another_boot_or_process_are_not_believed(shims, folder) -> None:
    prepare(folder, "sleep", "1000")
    await shims.start(folder, KEY)
    running = read_json(folder / records.RUNNING)
    shims.close()
    innocent = running["process"]["pid"]
    for wrong in (
        {**running, "bootId": "another"},
        {**running, "shim": {"pid": innocent, "startTicks": 1}},
    ):
        records.write(str(folder / records.RUNNING), wrong, durable=False)
        assert not shims.watch(folder, KEY)
        shims.tell(folder)
        assert is_running(innocent)


async def test_strays_of_a_killed_shim_are_found_and_ended(shims, folder) -> None:
    script = (
        "import os, time\n"
        "for leave in (False, True):\n"
        "    if os.fork() == 0:\n"
        "        if leave: os.setsid()\n"
        "        if os.fork(): os._exit(0)\n"
        "        open(f'stray{leave:d}', 'w').write(str(os.getpid()))\n"
        "        os.rename(f'stray{leave:d}', f'stray{leave:d}.pid')\n"
        "        time.sleep(1000)\n"
        "time.sleep(1000)\n"
    )
    marker = prepare(
        folder, sys.executable, "-c", f"import os; os.chdir({str(folder)!r})\n{script}"
    )
    await shims.start(folder, KEY)
    files = [folder / "stray0.pid", folder / "stray1.pid"]
    await eventually(lambda: all(file.exists() for file in files), "the strays")
    strays = [int(file.read_text()) for file in files]
    os.kill(read_json(folder / records.RUNNING)["shim"]["pid"], signal.SIGKILL)
    await shims.end_leftovers(folder, marker)
    assert not any(map(is_running, strays))


async def test_a_stopped_shim_is_no_obstacle(shims, ended, folder) -> None:
    marker = prepare(folder, "sleep", "1000")
    await shims.start(folder, KEY)
    running = read_json(folder / records.RUNNING)
    os.kill(running["shim"]["pid"], signal.SIGSTOP)
    await shims.end_leftovers(folder, marker)
    assert not is_running(running["process"]["pid"])
    assert await asyncio.wait_for(ended.get(), 20) == KEY


def test_a_session_number_that_was_given_away_is_left_alone() -> None:
    running: dict[str, object] = {
        "shim": {"pid": 2**22 + 10, "startTicks": 5},
        "process": {"pid": 2**22 + 11, "startTicks": 6},
    }
    reused = Process(2**22 + 11, 1, 2**22 + 11, 900, "S")
    child = Process(2**22 + 12, 2**22 + 11, 2**22 + 11, 901, "S")
    assert leftovers(running, "TMPDIR=/none", [reused, child]) == []
    ours = Process(2**22 + 11, 1, 2**22 + 11, 6, "S")
    assert [p.pid for p in leftovers(running, "TMPDIR=/none", [ours, child])] == [
        2**22 + 11,
        2**22 + 12,
    ]
