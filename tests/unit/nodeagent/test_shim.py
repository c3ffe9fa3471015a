"""The shim as a real process: starts, logs, ends and records containers of every kind of behaviour."""

import os
import re
import resource
import signal
import sys
from pathlib import Path

import pytest
from support.nodeagent_shim import is_running, until

from clusterops.nodeagent import processes, records

CRI = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (stdout|stderr) [FP] ")


def test_exit_code_times_and_output_are_recorded(run) -> None:
    found = run.start("sh", "-c", "echo out; echo err >&2; exit 7").finish()
    assert (found["code"], found["signal"], found["reason"]) == (7, 0, "Error")
    assert found["startedAt"] <= found["finishedAt"]
    assert sorted(line.split(b" ", 1)[1] for line in run.entries()) == [
        b"stderr F err",
        b"stdout F out",
    ]
    assert all(CRI.match(line) for line in run.entries())


def test_success_is_completed(run) -> None:
    found = run.start("true").finish()
    assert (found["code"], found["reason"], found["droppedLogLines"]) == (0, "Completed", 0)


def test_a_signal_becomes_128_plus_its_number(run) -> None:
    found = run.start("sh", "-c", "kill -SEGV $$").finish()
    assert (found["code"], found["signal"]) == (139, 11)


def test_the_environment_is_the_plans_alone(run, monkeypatch) -> None:
    monkeypatch.setenv("AGENT_SECRET", "x")
    run.start("env", env={"MINE": "ä"}).finish()
    assert {line.partition("=")[0] for line in run.output().splitlines()} == {
        "PATH",
        "TMPDIR",
        "MINE",
    }
    assert "MINE=ä" in run.output()


def test_the_process_leads_a_session_of_its_own_with_default_signals(run) -> None:
    script = (
        "import os, signal;"
        "print(os.getsid(0) == os.getpid(), signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,"
        "signal.pthread_sigmask(signal.SIG_BLOCK, []), sorted(os.listdir('/proc/self/fd'))[:3],"
        "len(os.listdir('/proc/self/fd')))"
    )
    run.start(sys.executable, "-c", script).finish()
    # Descriptor 3 is the folder that is being listed.
    assert run.output() == "True True set() ['0', '1', '2'] 4"


@pytest.mark.parametrize(
    ("argv", "cwd", "code", "message"),
    [
        (["no-such-program"], "/tmp", 127, "not found in PATH"),
        (["/no/such/program"], "/tmp", 127, "no such file"),
        (["/etc/passwd"], "/tmp", 126, "cannot be executed"),
        (["/etc"], "/tmp", 126, "cannot be executed"),
        (["true"], "/no/such/folder", 128, "working directory '/no/such/folder'"),
        (["x" * 200_000], "/tmp", 128, "File name too long"),
    ],
)
def test_a_start_that_fails_says_why(run, argv, cwd, code, message) -> None:
    found = run.start(*argv, cwd=cwd).finish()
    assert (found["code"], found["reason"]) == (code, "StartError")
    assert message in found["message"]


def test_term_reaches_the_whole_session(run) -> None:
    script = (
        "trap 'echo parent; wait; exit 0' TERM;"
        "(trap 'echo child; exit' TERM; echo up; while :; do sleep 0.05; done) & "
        "while :; do wait; done"
    )
    run.start("sh", "-c", script)
    run.await_output("up")
    run.ask_to_stop(10)
    assert run.finish()["code"] == 0
    assert {"parent", "child"} <= set(run.output().split())


def test_kill_ends_what_ignores_term(run) -> None:
    run.start("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    run.await_output("up")
    run.ask_to_stop(0.2)
    found = run.finish()
    assert (found["code"], found["signal"]) == (137, 9)


def test_a_shorter_grace_is_honoured(run) -> None:
    run.start("sh", "-c", "trap 'echo term' TERM; echo up; while :; do sleep 0.05; done")
    run.await_output("up")
    run.ask_to_stop(3600)
    run.await_output("term")
    run.ask_to_stop(0)
    assert run.finish()["code"] == 137


def test_a_stop_request_that_was_there_before_the_start_is_obeyed(run) -> None:
    records.write(str(run.folder / records.STOP), {"killAt": 0.0}, durable=False)
    assert run.start("sleep", "1000").finish()["code"] in (137, 143)


def test_daemons_that_forked_twice_are_ended_with_their_container(run) -> None:
    script = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        os.closerange(0, 64)\n"
        "        open('daemon', 'w').write(str(os.getpid()))\n"
        "        os.rename('daemon', 'daemon.pid')\n"
        "        time.sleep(1000)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "while not os.path.exists('daemon.pid'): time.sleep(0.01)\n"
    )
    found = run.start(sys.executable, "-c", script, cwd=str(run.folder)).finish()
    assert found["code"] == 0
    assert not is_running(int((run.folder / "daemon.pid").read_text()))


def test_a_container_may_close_its_output_and_go_on(run) -> None:
    script = "echo before; exec >&- 2>&-; sleep 0.2; exit 4"
    assert run.start("sh", "-c", script).finish()["code"] == 4
    assert run.output() == "before"


def test_the_exit_is_not_held_up_by_an_open_pipe_outside(run) -> None:
    script = "sleep 1000 & echo started; exit 0"
    assert run.start("sh", "-c", script).finish()["code"] == 0


def test_long_lines_come_in_pieces_and_binary_as_it_is(run) -> None:
    script = (
        "import sys; b=sys.stdout.buffer; b.write(b'x'*10_000_000+b'\\n\\x00\\xff\\x1b[0m\\r\\n')"
    )
    run.start(sys.executable, "-c", script, max_bytes=64 << 20).finish()
    *pieces, last, binary = run.entries()
    assert all(piece.split(b" ", 3)[2] == b"P" for piece in pieces)
    assert last.split(b" ", 3)[2] == b"F"
    total = sum(len(piece.split(b" ", 3)[3]) for piece in [*pieces, last])
    assert total == 10_000_000
    assert binary.split(b" ", 3)[3] == b"\x00\xff\x1b[0m\r"


def test_an_unfinished_line_is_shown_soon_and_finished_later(run) -> None:
    run.start("sh", "-c", "printf 'prompt> '; read x < /dev/null; sleep 1000")
    run.await_output("prompt> ")
    assert run.entries()[-1].endswith(b"stdout P prompt> ")
    run.ask_to_stop(0)
    run.finish()
    assert run.entries()[-1].endswith(b"stdout F ")


def test_logs_are_rotated(run) -> None:
    script = (
        "import sys\nfor i in range(4000): sys.stdout.write(f'line {i:06d} ' + 'x' * 40 + '\\n')"
    )
    run.start(sys.executable, "-c", script, max_bytes=100_000, max_files=3).finish()
    assert sorted(path.name for path in run.log_file.parent.iterdir()) == [
        "0.log",
        "0.log.1",
        "0.log.2",
    ]
    numbers = [int(line.split(b" ")[4]) for number in (2, 1, 0) for line in run.entries(number)]
    assert numbers == list(range(numbers[0], 4000))
    assert all(path.stat().st_size <= 100_000 for path in run.log_file.parent.iterdir())


def test_a_full_disk_costs_log_lines_not_the_job(run) -> None:
    script = (
        "import sys, os, time\n"
        "for i in range(500): print(f'line {i} ' + 'x' * 50, flush=True)\n"
        "open('full', 'w').close()\n"
        "while not os.path.exists('room'): time.sleep(0.01)\n"
        "print('after', flush=True)\n"
        "sys.exit(5)\n"
    )
    # EFBIG stands for ENOSPC: to the shim both are a write that fails.
    run.start(sys.executable, "-c", script, cwd=str(run.folder), file_size_limit=8192)
    until(lambda: (run.folder / "full").exists(), "the container's going on")
    assert run.log_file.stat().st_size <= 8192
    assert run.process is not None
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, unlimited)
    (run.folder / "room").touch()
    found = run.finish()
    assert found["code"] == 5
    written = [line for line in run.entries() if b" line " in line]
    assert found["droppedLogLines"] == 500 - len(written)
    owned_up = re.findall(r"(\d+) log lines were dropped: File too large", run.output())
    assert sum(map(int, owned_up)) == found["droppedLogLines"] > 0
    assert run.entries()[-1].endswith(b"after")
    assert all(CRI.match(line) for line in run.entries())


def test_a_log_folder_that_is_gone_does_not_hinder(run) -> None:
    run.log_file.parent.rmdir()
    found = run.start("sh", "-c", "echo lost; exit 3").finish()
    assert (found["code"], found["droppedLogLines"]) == (3, 1)


def test_a_log_is_not_written_through_a_link(run, tmp_path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    run.log_file.symlink_to(victim)
    assert run.start("echo", "x").finish()["droppedLogLines"] == 1
    assert victim.read_text() == "precious"


def test_an_exit_code_has_its_place_on_a_full_disk(run) -> None:
    run.start("sleep", "1000")
    # From now on not one byte may be added to any file, but those that are there may be overwritten.
    assert run.process is not None
    reserved = (run.folder / records.EXIT_RESERVE).stat()
    assert reserved.st_size == records.RESERVED_BYTES
    limit = (records.RESERVED_BYTES, resource.RLIM_INFINITY)
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, limit)
    run.ask_to_stop(0)
    assert run.finish()["code"] in (137, 143)
    assert (run.folder / records.EXIT).stat().st_ino == reserved.st_ino


def test_when_the_shim_is_killed_the_kernel_kills_the_process(run) -> None:
    run.start("sleep", "1000")
    pid = run.pid
    assert run.process is not None
    run.process.kill()
    until(lambda: not is_running(pid), "the end of the container's process")
    assert run.record(records.EXIT) is None


def test_a_term_that_nobody_asked_for_is_passed_on(run) -> None:
    run.start("sh", "-c", "trap 'echo got; exit 9' TERM; echo up; while :; do sleep 0.05; done")
    run.await_output("up")
    assert run.process is not None
    run.process.send_signal(signal.SIGTERM)
    assert run.finish()["code"] == 9


def test_hangup_and_interrupt_of_a_terminal_do_not_end_it(run) -> None:
    run.start("sh", "-c", "echo up; sleep 0.3; exit 6")
    run.await_output("up")
    assert run.process is not None
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        run.process.send_signal(number)
    assert run.finish()["code"] == 6


def test_a_second_shim_on_the_same_folder_starts_nothing(run) -> None:
    run.start("sh", "-c", "echo once; sleep 0.3; while [ ! -e stop ]; do sleep 0.05; done")
    first, pid = run.process, run.pid
    run.start_prepared(wait=False)
    assert run.process is not None
    assert run.process.wait(20) == 75
    assert run.pid == pid
    run.process = first
    run.ask_to_stop(0)
    run.finish()


def test_a_finished_run_is_not_started_again(run) -> None:
    run.start("sh", "-c", "echo once").finish()
    run.start_prepared(wait=False)
    assert run.finish()["code"] == 0
    assert run.output() == "once"


def test_an_abandoned_run_is_not_started(run) -> None:
    run.start_prepared(wait=False)
    assert run.process is not None
    assert run.process.wait(20) == 0
    assert run.record(records.RUNNING) is None


def test_it_gives_up_with_a_word_when_nothing_can_be_prepared(run) -> None:
    run.start("true", file_size_limit=100, wait=False)
    assert run.process is not None
    assert run.process.wait(20) == 74
    assert "File too large" in run.errors()
    assert run.record(records.RUNNING) is None


def test_it_is_small(run) -> None:
    run.start("sleep", "1000")
    assert run.process is not None
    statm = Path(f"/proc/{run.process.pid}/statm").read_text()
    _, resident, shared, *_ = map(int, statm.split())
    own_bytes = (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    assert own_bytes < 8 << 20
    run.ask_to_stop(0)
    run.finish()


def test_the_records_name_exactly_these_processes(run) -> None:
    run.start("sleep", "1000")
    running = run.record(records.RUNNING)
    assert running is not None
    assert run.process is not None
    assert running["shim"]["pid"] == run.process.pid
    for role in ("shim", "process"):
        assert processes.is_alive(running[role]["pid"], running[role]["startTicks"])
        assert not processes.is_alive(running[role]["pid"], running[role]["startTicks"] + 1)
    assert running["bootId"] == records.boot_id()
    run.ask_to_stop(0)
    run.finish()
