"""Reports that the driver prints over several lines are one record."""

from health.parse.records import MAX_LINES, records


def texts(*lines: str) -> list[str]:
    return [record.text for record in records(lines)]


LOST = [
    "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0",
    "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "               NVRM: fallen off the bus and is not responding to commands.",
]


def test_the_three_lines_of_a_lost_gpu_are_one_record() -> None:
    assert texts("[1.0] before", *LOST, "[1843.5] after") == [
        "[1.0] before",
        "\n".join(LOST),
        "[1843.5] after",
    ]


def test_they_are_one_record_when_each_line_has_its_own_stamp() -> None:
    stamped = [LOST[0], *(f"[ 1843.308146] {line.strip()}" for line in LOST[1:])]
    assert texts(*stamped) == ["\n".join(stamped)]


def test_an_mmu_fault_that_goes_on_is_one_record() -> None:
    fault = [
        "NVRM: Xid (PCI:0000:9a:00): 31, pid=7, name=p, channel 0x00000002, intr 00000000.",
        "          MMU Fault: ENGINE GRAPHICS GPC0 UNRECOGNIZED_CLIENT faulted @ 0x18.",
        "          Fault is of type UNRECOGNIZED_FAULT UNRECOGNIZED_ACCESS_TYPE",
    ]
    assert texts(*fault) == ["\n".join(fault)]


def test_an_xid_that_follows_is_a_record_of_its_own() -> None:
    report = "               NVRM: Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus."
    assert texts(LOST[0], report) == [LOST[0], report]


def test_other_indented_lines_stay_apart() -> None:
    assert texts("NVRM: Xid (PCI:0000:9a:00): 79, x", "  SUBSYSTEM=pci", " DEVICE=+pci:0000") == [
        "NVRM: Xid (PCI:0000:9a:00): 79, x", "  SUBSYSTEM=pci", " DEVICE=+pci:0000",
    ]  # fmt: skip


def test_a_record_does_not_grow_without_end() -> None:
    lines = [LOST[0], *[LOST[1]] * 100]
    assert max(text.count("\n") + 1 for text in texts(*lines)) <= MAX_LINES


def test_numbers_are_those_of_the_first_lines() -> None:
    assert [record.number for record in records(["a", *LOST, "b"])] == [1, 2, 5]
