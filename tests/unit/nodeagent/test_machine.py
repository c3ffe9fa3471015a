"""What the machine says about itself."""

from clusterops.nodeagent import machine


def test_this_machine_has_what_a_node_needs() -> None:
    here = machine.describe()
    assert here.cpus >= 1
    assert here.memory_bytes > 1 << 20
    assert here.boot_id
    assert here.kernel


def test_memory_is_the_smaller_of_machine_and_control_group() -> None:
    meminfo = "MemFree:  1 kB\nMemTotal:       1000 kB\n"
    assert machine._memory_bytes(meminfo, "max\n") == 1_024_000
    assert machine._memory_bytes(meminfo, "4096\n") == 4096
    assert machine._memory_bytes(meminfo, "") == 1_024_000
    assert machine._memory_bytes("", "") == 0


def test_the_image_is_the_distribution() -> None:
    assert machine._os_image('NAME="x"\nPRETTY_NAME="Debian 12"\n') == "Debian 12"
    assert machine._os_image("") == "Linux"
