"""Faults go into simulated machines and replay files, numbered on, and nowhere else."""

import json
import os

import pytest

from clusterops.cli.main import main
from clusterops.local import machines
from clusterops.local.state_folder import StateFolder
from health import kmsg_record
from health.kmsg import Tally


@pytest.fixture
def folder(tmp_path):
    folder = StateFolder(tmp_path / "state")
    folder.create()
    for node in ("local-0", "local-1"):
        machines.machine(folder, node).power_on()
    folder.node("real-0").mkdir()
    return folder


def run(capsys, folder, *words):
    code = main(["health", "inject", *words, "--state-dir", str(folder.root)])
    return code, capsys.readouterr().err


def records(path):
    return [kmsg_record.head(line) for line in path.read_bytes().splitlines()]


def test_a_fault_is_in_the_log_numbered_on_and_the_gpu_is_as_the_log_says(capsys, folder):
    for _ in range(2):
        assert run(capsys, folder, "bus", "--node", "local-1", "--gpu", "2", "--stays")[0] == 0
    machine = machines.machine(folder, "local-1")
    heads = records(machine.kmsg)
    assert [head.sequence for head in heads] == list(range(len(heads)))
    assert {head.facility for head in heads} == {kmsg_record.KERNEL_FACILITY}
    assert "0000:1d:00" in machine.kmsg.read_text()
    assert machine.broken_gpus() == {"2": {"missing": 1, "stays": 1}}
    assert machines.machine(folder, "local-0").kmsg.read_text() == ""


def test_a_daemon_that_reads_it_loses_nothing(capsys, folder):
    run(capsys, folder, "31", "--node", "local-0")
    tally = Tally(-1)
    for line in machines.machine(folder, "local-0").kmsg.read_bytes().splitlines():
        tally.add(line)
    batch = tally.batch()
    assert (batch.lost, batch.malformed, batch.foreign) == (0, 0, 0)
    assert any("Xid (PCI:0000:1b:00): 31" in record.text for record in batch.records)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["bus"], 2, "which node? local-0, local-1"),
        (["bus", "--node", "real-0"], 2, "real-0 has real GPUs"),
        (["bus", "--node", "nobody"], 3, "no node nobody"),
        (["bus", "--node", "../../etc"], 3, "no node"),
        (["flood", "--node", "local-0"], 2, "is no Xid and none of: bus"),
        (["replaced", "--source", "/tmp/x"], 2, "no GPU to replace"),
        (["bus", "--source", "/dev/kmsg"], 2, "is a real kernel's"),
        (["bus", "--source", "/dev/null"], 2, "is a real kernel's"),
        (["bus", "--source", "/nowhere/at/all"], 3, "cannot write"),
    ],
)
def test_everything_else_is_refused_in_words(capsys, folder, words, code, told):
    found, said = run(capsys, folder, *words)
    assert (found, told in said) == (code, True), said
    for node in ("local-0", "local-1"):
        assert machines.machine(folder, node).kmsg.read_text() == ""


def test_a_link_to_a_real_log_and_a_fifo_are_refused_too(capsys, folder, tmp_path):
    link, fifo = tmp_path / "link", tmp_path / "fifo"
    link.symlink_to("/dev/kmsg")
    os.mkfifo(fifo)
    assert "real kernel's" in run(capsys, folder, "bus", "--source", str(link))[1]
    assert "is no file" in run(capsys, folder, "bus", "--source", str(fifo))[1]


def test_a_replay_file_gets_the_next_numbers_and_any_other_file_nothing(capsys, folder, tmp_path):
    replay, other = tmp_path / "replay", tmp_path / "other"
    replay.write_bytes(b"4,41,7,-;something\n")
    assert run(capsys, folder, "31", "--source", str(replay))[0] == 0
    assert [head.sequence for head in records(replay)] == [41, 42, 43, 44]
    other.write_text("dear diary\n")
    assert "no kernel log of records" in run(capsys, folder, "31", "--source", str(other))[1]
    assert other.read_text() == "dear diary\n"


def test_a_reset_mends_what_does_not_stay_and_leaves_the_boot(capsys, folder):
    machine = machines.machine(folder, "local-0")
    machine.set_gpu(0, {"recovery_action": 1})
    machine.set_gpu(1, {"missing": 1, "stays": 1})
    before = machine.boot_id.read_text()
    words = ["health", "simulated-repair", "local-0", "--state-dir", str(folder.root)]
    assert main([*words, "--gpus", "GPU-1"]) == 0
    assert json.loads(machine.gpus.read_text()) == {"1": {"missing": 1, "stays": 1}}
    assert machine.boot_id.read_text() == before
    assert main([*words, "--reboot"]) == 0
    assert machine.boot_id.read_text() != before
