"""What one agent writes about a pod the next one reads."""

import os

import pytest

from clusterops.nodeagent import pod_folder, processes, records
from clusterops.nodeagent.admission import Failure
from clusterops.nodeagent.observation import RunState
from clusterops.nodeagent.pod_folder import PodFolder, PodRecord, load_all

BOOT = "boot-1"


@pytest.fixture
def folder(tmp_path) -> PodFolder:
    record = PodRecord(
        namespace="ns",
        name="p",
        uid="u1-u2-u3-u4-u5",
        boot_id=BOOT,
        admitted_at="2026-01-01T00:00:00Z",
        admitted_monotonic=100.0,
        logs=str(tmp_path / "logs"),
    )
    found = PodFolder(tmp_path / "state", record)
    found.save()
    return found


def write(folder: PodFolder, name: str, record: dict, attempt: int = 0) -> None:
    path = folder.run_path("main", attempt)
    path.mkdir(parents=True, exist_ok=True)
    records.write(str(path / name), record, durable=False)


def write_running(folder: PodFolder, attempt: int = 0, pid: int = 0, ticks: int = 0) -> None:
    record = {
        "bootId": BOOT,
        "shim": {"pid": pid, "startTicks": ticks},
        "process": {"pid": 4242, "startTicks": 1},
        "startedAt": "2026-01-01T00:00:01Z",
        "startedMonotonic": 101.0,
    }
    write(folder, records.RUNNING, record, attempt)


def write_exit(folder: PodFolder, code: int, attempt: int = 0, boot: str = BOOT, **more) -> None:
    record = {
        "bootId": boot,
        "code": code,
        "signal": 0,
        "reason": "Error" if code else "Completed",
        "message": "",
        "startedAt": "2026-01-01T00:00:01Z",
        "finishedAt": "2026-01-01T00:00:09Z",
        "finishedMonotonic": 109.0,
        **more,
    }
    write(folder, records.EXIT, record, attempt)


def only_run(folder: PodFolder, boot: str = BOOT, monotonic: float = 120.0):
    [run] = folder.runs(boot, monotonic)["main"]
    return run


def test_the_record_survives(folder, tmp_path) -> None:
    folder.save(gpus=("0", "1"), failure=Failure("X", "y"), ended=True)
    loaded = PodFolder.load(tmp_path / "state", folder.record.uid)
    assert loaded is not None
    assert loaded.record == folder.record
    assert loaded.record.key == ("ns", "p")
    assert PodFolder.load(tmp_path / "state", "other") is None


def test_a_prepared_run(folder) -> None:
    write(folder, records.LAUNCH, {})
    assert only_run(folder).state is RunState.PREPARED


def test_a_folder_without_a_launch_is_no_run(folder) -> None:
    folder.run_path("main", 0).mkdir(parents=True)
    assert folder.runs(BOOT, 1.0) == {}


def test_a_running_run_with_its_deadline(folder) -> None:
    me = processes.read(os.getpid())
    assert me is not None
    write(folder, records.LAUNCH, {})
    write_running(folder, pid=me.pid, ticks=me.start_ticks)
    assert only_run(folder).state is RunState.RUNNING
    assert only_run(folder).pid == 4242
    write(folder, records.STOP, {"killAt": 150.0})
    assert only_run(folder).kill_in_seconds == 30.0


def test_a_run_whose_shim_is_gone_is_lost(folder) -> None:
    write_running(folder, pid=2**22 + 5)
    assert only_run(folder).state is RunState.LOST
    assert not only_run(folder).rebooted
    assert only_run(folder, boot="boot-2").rebooted


def test_an_exit_recorded_at_the_last_moment_is_not_a_loss(folder, monkeypatch) -> None:
    write_running(folder, pid=2**22 + 5)

    def die_now(pid: int, ticks: int) -> bool:
        write_exit(folder, 4)
        return False

    monkeypatch.setattr(pod_folder.processes, "is_alive", die_now)
    assert (only_run(folder).state, only_run(folder).exit_code) == (RunState.EXITED, 4)


def test_an_ended_run(folder) -> None:
    write_running(folder)
    write_exit(folder, 3)
    run = only_run(folder)
    assert (run.exit_code, run.reason, run.pid) == (3, "Error", 4242)
    assert (run.ran_seconds, run.ended_seconds_ago) == (8.0, 11.0)
    assert only_run(folder, monotonic=130.0).ended_seconds_ago == 21.0


def test_a_run_that_ended_before_the_boot_ended_at_an_unknown_time(folder) -> None:
    write_exit(folder, 0, boot="boot-0")
    assert only_run(folder).ended_seconds_ago is None


def test_termination_messages_are_bounded_text(folder, tmp_path) -> None:
    message = tmp_path / "message"
    message.write_bytes(b"a\0\xff" + b"x" * 10_000)
    write(folder, records.LAUNCH, {"messagePath": str(message)})
    write_exit(folder, 0)
    text = only_run(folder).message
    assert text.startswith("a��xxx")
    assert len(text) == 4096


def test_attempts_are_in_order_and_old_ones_go(folder) -> None:
    for attempt in range(12):
        write_exit(folder, attempt, attempt)
    assert [run.attempt for run in folder.runs(BOOT, 1.0)["main"]] == list(range(12))
    folder.prune_runs("main")
    assert [run.attempt for run in folder.runs(BOOT, 1.0)["main"]] == list(range(4, 12))


def test_age_counts_from_admission_or_from_the_boot(folder) -> None:
    assert folder.observe(BOOT, 130.0, {}).age_seconds == 30.0
    assert folder.observe("boot-2", 7.0, {}).age_seconds == 7.0


def test_removal_leaves_nothing_and_half_a_removal_is_found(folder, tmp_path) -> None:
    state = tmp_path / "state"
    write_running(folder)
    folder.tmp.mkdir(parents=True)
    (folder.path / "pod.json").unlink()
    [nameless] = load_all(state)
    assert nameless.record.key == ("", folder.record.uid)
    assert nameless.runs(BOOT, 1.0)["main"]
    nameless.remove()
    assert load_all(state) == []
    assert not folder.path.exists()
    assert not folder.tmp.exists()
