"""Simulated machines: their boots, their logs, their GPUs, and the processes that a reboot ends."""

import json
import subprocess
import sys

import pytest

from clusterops.local import machines, parts
from clusterops.local.parts import NodeShape
from clusterops.local.state_folder import StateFolder


@pytest.fixture
def folder(tmp_path):
    folder = StateFolder(tmp_path / "state")
    folder.create()
    return folder


def test_a_machine_keeps_its_boot_and_log_as_long_as_the_real_one_runs(folder):
    machine = machines.machine(folder, "local-0")
    machine.power_on()
    boot = machine.boot_id.read_text().strip()
    assert boot.endswith("-000000000000")
    machine.kmsg.write_text("4,0,1,-;kept\n")
    machine.power_on()
    assert machine.boot_id.read_text().strip() == boot
    assert machine.kmsg.read_text() == "4,0,1,-;kept\n"
    machine.next_boot()
    assert machine.boot_id.read_text().strip() == f"{boot[:-1]}1"
    assert machine.kmsg.read_text() == ""


def test_after_a_boot_of_the_real_machine_it_begins_anew(folder):
    machine = machines.machine(folder, "local-0")
    machine.power_on()
    machine.boot_id.write_text("00000000-0000-0000-0000-000000000007\n")
    machine.kmsg.write_text("4,0,1,-;of another clock\n")
    machine.power_on()
    real = machines.REAL_BOOT_ID.read_text()[:23]
    assert machine.boot_id.read_text().startswith(real)
    assert machine.kmsg.read_text() == ""


def test_gpus_are_well_until_somebody_says_otherwise(folder):
    machine = machines.machine(folder, "local-0")
    machine.power_on()
    assert machine.broken_gpus() == {}
    machine.set_gpu(3, {"missing": 1})
    machine.set_gpu(0, {"recovery_action": 2})
    machine.set_gpu(3, {})
    assert machine.broken_gpus() == {"0": {"recovery_action": 2}}


def test_a_reboot_ends_the_nodes_own_processes_and_no_others(folder):
    machines.machine(folder, "local-0").power_on()
    sleeping = [sys.executable, "-c", "import signal; signal.pause()"]
    kept, agent, health = (subprocess.Popen(sleeping) for _ in range(3))
    rows = [
        {"name": "operator", "pid": kept.pid, "restarts": 0, "lastExit": None},
        {"name": parts.agent_part("local-0"), "pid": agent.pid, "restarts": 0, "lastExit": None},
        {"name": parts.health_part("local-0"), "pid": health.pid, "restarts": 0, "lastExit": None},
    ]
    folder.parts_file.write_text(json.dumps(rows))
    try:
        machines.reboot(folder, "local-0")
        assert (agent.wait(10), health.wait(10)) == (-15, -15)
        assert kept.poll() is None
    finally:
        kept.kill()
        kept.wait()


def test_a_lost_gpu_takes_along_the_programs_that_use_it_and_no_others(folder):
    """Told by the GPUs and the temporary folder that the node's agent gave them."""
    sleeping = [sys.executable, "-c", "import signal; signal.pause()"]
    uses = [("local-0", "0,1"), ("local-0", "2"), ("local-1", "1"), ("local-0", "")]
    programs = [
        subprocess.Popen(
            sleeping,
            env={"TMPDIR": str(folder.node(node) / "tmp" / "x"), "CUDA_VISIBLE_DEVICES": gpus},
        )
        for node, gpus in uses
    ]
    try:
        assert machines.end_programs(folder, "local-0", 1) == 1
        assert programs[0].wait(10) == -9
        assert [program.poll() for program in programs[1:]] == [None] * 3
        assert machines.end_programs(folder, "local-0", 1) == 0
    finally:
        for program in programs:
            program.kill()
            program.wait()


def test_a_node_without_a_simulated_machine_is_not_rebooted(folder):
    with pytest.raises(LookupError, match="no simulated machine"):
        machines.reboot(folder, "local-0")


@pytest.mark.parametrize(
    ("shape", "watched"),
    [
        (NodeShape(2, 4), True),
        (NodeShape(2, 0), False),
        (NodeShape(1, None), False),
        (NodeShape(1, None, driver=True), True),
    ],
)
def test_nodes_with_gpus_are_watched_and_others_not(folder, shape, watched):
    made = parts.parts(folder, {"apiserver": 1, "endpoint": 2}, shape, 1)
    assert tuple(part.name for part in made) == parts.part_names(shape)
    daemons = [part.argv for part in made if part.name.startswith("health-")]
    assert len(daemons) == (shape.nodes if watched else 0)
    for argv in daemons:
        real = shape.gpus_per_node is None
        assert ("--kmsg=/dev/kmsg" in argv) == real
        assert ("--no-nvml" in argv) != real


def test_a_kernel_log_that_may_not_be_read_is_followed_in_the_journal(folder, tmp_path):
    assert not machines.readable(tmp_path / "nothing")
    shape = NodeShape(1, None, driver=True, kernel_log=False)
    *_, daemon = parts.parts(folder, {"apiserver": 1, "endpoint": 2}, shape, 1)
    assert "--journal" in daemon.argv
    assert not [word for word in daemon.argv if word.startswith("--kmsg")]


def test_real_nodes_are_never_reset_or_rebooted_by_local_mode(folder):
    told = machines.remediation(folder, simulated=False)
    assert told == {"tickets": {"folder": str(folder.tickets)}}
    assert set(machines.remediation(folder, simulated=True)["programs"]) == {
        "reset_gpu",
        "reboot_node",
    }
