"""`logs` against the embedded API server: ranks, attempts, events, following to the end."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.cli_cluster import (
    JOBS,
    add_event,
    add_pod,
    create_job,
    example,
    install_queues,
    now,
    set_pod_phase,
    set_status,
    write_log,
)
from support.embedded import EmbeddedServer

from clusterops.cli import errors
from clusterops.cli.main import main

pytestmark = pytest.mark.embedded

DEADLINE_SECONDS = 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with EmbeddedServer(tmp_path_factory.mktemp("server")) as running:
        install_queues(running)
        yield running


@pytest.fixture(autouse=True)
def cluster(server: EmbeddedServer, monkeypatch, tmp_path: Path):
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    monkeypatch.delenv("CLUSTEROPS_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no-state"))
    yield
    server.request("DELETE", JOBS)
    server.request("DELETE", "/api/v1/namespaces/research/pods?gracePeriodSeconds=0")


@pytest.fixture
def job(server: EmbeddedServer) -> dict:
    """A job in its second attempt of two ranks, the first kept."""
    created = create_job(server, example("counter"))
    set_status(
        server, "counter", phase="Running", attempt=2,
        attempts=[{"number": 1, "endedAt": "2026-11-30T19:00:10Z", "cause": "Preempted"},
                  {"number": 2}],
    )  # fmt: skip
    old = add_pod(server, "counter", 1, 0, "Succeeded")
    write_log(server, old, "2026-11-30T19:00:01.000000000Z old step 1")
    for rank in (0, 1):
        pod = add_pod(server, "counter", 2, rank)
        write_log(
            server, pod,
            f"2026-11-30T19:01:0{rank}.000000000Z rank {rank} begins",
            f"2026-11-30T19:01:0{rank + 4}.000000000Z rank {rank} \x1b[31mgoes\r on",
        )  # fmt: skip
    return created


def run(capsys, *words: str) -> tuple[int, str, str]:
    code = main([*words, "-n", "research"])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return code, said.out, said.err


def test_rank_0_of_the_last_attempt_is_printed_harmless(capsys, job) -> None:
    code, out, _ = run(capsys, "logs", "counter")
    assert code == errors.DONE
    assert out == "rank 0 begins\nrank 0 \\x1b[31mgoes\\r on\n"


def test_raw_passes_everything_through(capsys, job) -> None:
    assert "\x1b[31m" in run(capsys, "logs", "counter", "--raw")[1]


def test_all_ranks_are_merged_by_time_with_prefixes(capsys, job) -> None:
    _, out, _ = run(capsys, "logs", "counter", "--all-ranks")
    assert [line.split()[:4] for line in out.splitlines()] == [
        ["[rank", "0]", "rank", "0"],
        ["[rank", "1]", "rank", "1"],
        ["[rank", "0]", "rank", "0"],
        ["[rank", "1]", "rank", "1"],
    ]


def test_another_rank_and_an_earlier_attempt(capsys, job) -> None:
    assert run(capsys, "logs", "counter", "--rank", "1")[1].startswith("rank 1 begins")
    assert run(capsys, "logs", "counter", "--attempt", "1")[1] == "old step 1\n"


def test_without_rank_0_the_one_that_is_left_is_printed(capsys, server, job) -> None:
    server.request("DELETE", "/api/v1/namespaces/research/pods/counter-2-0?gracePeriodSeconds=0")
    assert run(capsys, "logs", "counter")[1].startswith("rank 1 begins")
    assert run(capsys, "logs", "counter", "--rank", "0")[0] == errors.NOT_FOUND


def test_the_last_lines_alone(capsys, job) -> None:
    assert run(capsys, "logs", "counter", "--tail", "1")[1] == "rank 0 \\x1b[31mgoes\\r on\n"


def test_only_what_is_newer_than_a_duration(capsys, server, job) -> None:
    pod = add_pod(server, "counter", 2, 7)
    write_log(server, pod, f"{now()} just now")
    words = ["logs", "counter", "--all-ranks", "--since"]
    assert run(capsys, *words, "10m")[1] == "[rank 7] just now\n"
    assert len(run(capsys, *words, "36500d")[1].splitlines()) == 5
    code, _, err = run(capsys, *words, "yesterday")
    assert code == errors.USAGE
    assert "expected e.g. 90s, 10m or 1h30m" in err


def test_what_befell_the_job_is_told_beside_its_log(capsys, server, job) -> None:
    add_event(server, job, "2026-11-30T19:00:10Z", "Preempted", "by urgent at step 1")
    add_event(server, job, "2026-11-30T19:01:02Z", "Resumed", "from step 1, 0 steps lost")
    _, _out, err = run(capsys, "logs", "counter")
    assert "Resumed: from step 1, 0 steps lost" in err
    assert "Preempted" not in err
    assert "Preempted: by urgent" in run(capsys, "logs", "counter", "--attempt", "1")[2]


@pytest.mark.parametrize(
    ("words", "hint"),
    [(["--rank", "7"], "there is 0, 1"), (["--attempt", "9"], "there is 1, 2")],
)
def test_an_absent_rank_or_attempt_names_those_there_are(capsys, job, words, hint) -> None:
    code, out, err = run(capsys, "logs", "counter", *words)
    assert (code, out) == (errors.NOT_FOUND, "")
    assert hint in err


@pytest.mark.parametrize(
    "words", [[""], [".."], ["../counter"], ["counter", "-n", ".."], ["counter", "-n", "a/b"]]
)
def test_a_name_that_would_lead_elsewhere_is_refused(capsys, words) -> None:
    assert main(["logs", *words]) == errors.USAGE
    assert "can have the name" in capsys.readouterr().err


def test_a_job_whose_pods_were_deleted_is_not_said_to_be_silent(capsys, server) -> None:
    create_job(server, example("counter"))
    attempts = [{"number": 1, "endedAt": "2026-11-30T19:00:10Z", "cause": "Cancelled"}]
    set_status(server, "counter", phase="Cancelled", attempt=1, attempts=attempts)
    assert main(["logs", "-n", "research", "counter"]) == errors.NOT_FOUND
    said = capsys.readouterr().err
    assert "the pods of attempt 1 of counter are gone" in said
    assert "clusterops explain counter" in said


def test_a_job_that_never_started_says_why(capsys, server) -> None:
    create_job(server, example("counter"))
    set_status(server, "counter", phase="Pending", reason="WaitingForQuota")
    code, _, err = run(capsys, "logs", "counter")
    assert code == errors.FAILED
    assert "not enough free quota" in err


class Following:
    """`logs -f` as a process, its output read as it comes."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._out = folder / "out"
        self._err = folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "clusterops.cli", "logs", "-f", *words, "-n", "research"],
                stdout=out,
                stderr=err,
                env=dict(os.environ),
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def until(self, text: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while text not in self.out + self.err:
            assert time.monotonic() < deadline, f"{text!r} never came: {self.out} {self.err}"
            assert self.process.poll() is None, f"it ended: {self.out} {self.err}"
            time.sleep(0.02)

    def __enter__(self) -> "Following":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_SECONDS)


def test_following_goes_across_attempts_to_the_end(server, tmp_path) -> None:
    create_job(server, example("counter"))
    set_status(server, "counter", phase="Running", attempt=1)
    first = add_pod(server, "counter", 1, 0)
    write_log(server, first, "2026-11-30T19:00:00.000000000Z step 1")
    with Following(tmp_path, "counter") as following:
        following.until("step 1")
        write_log(server, first, "2026-11-30T19:00:01.000000000Z step 2")
        following.until("step 2")
        set_status(server, "counter", phase="Requeued", reason="WaitingForQuota")
        set_pod_phase(server, first, "Failed")
        following.until("Requeued, not enough free quota in its queue (attempt 1)")
        set_status(server, "counter", phase="Running", reason="", attempt=2)
        second = add_pod(server, "counter", 2, 0)
        write_log(server, second, "2026-11-30T19:02:00.000000000Z step 3")
        following.until("step 3")
        set_pod_phase(server, second, "Succeeded")
        set_status(server, "counter", phase="Succeeded", reason="Completed")
        assert following.process.wait(DEADLINE_SECONDS) == errors.DONE
        assert following.out.splitlines() == ["step 1", "step 2", "step 3"]
        assert "Succeeded, all ranks finished" in following.err


def test_following_ends_when_nobody_reads_any_more(server, tmp_path) -> None:
    create_job(server, example("counter"))
    set_status(server, "counter", phase="Running", attempt=1, attempts=[{"number": 1}])
    pod = add_pod(server, "counter", 1, 0, "Running")
    write_log(server, pod, f"{now()} step 1")
    command = [sys.executable, "-m", "clusterops.cli", "logs", "-f", "counter", "-n", "research"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"step 1\n"
        process.stdout.close()
        write_log(server, pod, f"{now()} step 2")
        process.wait(DEADLINE_SECONDS)
        assert b"error" not in process.stderr.read()


def test_following_survives_a_restart_of_the_server(tmp_path, monkeypatch) -> None:
    with EmbeddedServer(tmp_path / "own") as own:
        monkeypatch.setenv("KUBECONFIG", str(own.kubeconfig))
        install_queues(own)
        create_job(own, example("counter"))
        set_status(own, "counter", phase="Running", attempt=1)
        pod = add_pod(own, "counter", 1, 0)
        write_log(own, pod, "2026-11-30T19:00:00.000000000Z step 1")
        with Following(tmp_path, "counter") as following:
            following.until("step 1")
            own.kill()
            write_log(own, pod, "2026-11-30T19:00:01.000000000Z step 2")
            own.start()
            following.until("step 2")
            set_pod_phase(own, pod, "Failed")
            set_status(own, "counter", phase="Failed", reason="UserError")
            assert following.process.wait(DEADLINE_SECONDS) == errors.JOB_FAILED
            assert following.out.splitlines() == ["step 1", "step 2"]
