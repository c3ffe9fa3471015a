"""Every form of the driver's messages, behind every prefix, and what only looks like one."""

import pytest

from health.events import FallenOff, Hint, Identity, PciAddress, Severity, SXid, SXidDetail, Xid
from health.parse import lines
from health.parse.lines import Unused

BODY = "NVRM: Xid (PCI:0000:1b:00): 79, pid=4242, name=python, GPU has fallen off the bus."
PREFIXES = [
    "",
    "[12345.678901] ",
    "[   12.000001] [ T1946] ",
    "[    1.000001][    C3] ",
    "[Mon Jul 25 16:46:04 2022] ",
    "<4>[12345.678901] ",
    "Aug 10 15:36:05 host kernel: ",
    "Aug  1 15:36:05 host kernel: [12345.678901] ",
    "Aug 10 15:36:05 ",
    "Sep 18 20:07:01 host ",
    "Aug 10 15:36:05 host kernel[0]: ",
    "kwi 15 10:01:02 host kernel: ",
    "Okt 06 17:59:27 balrog kernel: ",
    "\u043c\u0430\u0439 06 17:59:27 host kernel: ",
    "10\u6708 06 17:59:27 host kernel: ",
    "19:15:34  ",
    "kern  :warn  : 2025-01-21T04:41:44,283575+00:00 ",
    "kern  :err   : [12345.678901] ",
    "10.0.0.7: kern: warning: [2025-01-21T04:41:44.283575Z]: ",
    "2025-01-21T04:41:44.283575+00:00 host kernel: ",
    "2024-01-15T03:00:00,000000+00:00 ",
    "2026-09-14T20:30:27-0400 host kernel: ",
    "2025-01-21 04:41:44 host kernel: ",
    "9999-12-31T23:59:59Z host kernel: ",
    "kernel: [16450076.435584] ",
    "kernel: ",
    "4,2215,1843308145,-;",
    "4,2215,1843308145,-,caller=T1946;",
    "node17: [12345.678901] ",
    "<4>1 2026-01-05T00:00:00.123Z host kernel - - - ",
    '<4>1 2026-01-05T00:00:00.123+01:00 host kernel - - [timeQuality tzKnown="1"] [12345.678901] ',
    "\ufeff",
    "\x1b[32m[12345.678901] \x1b[0m\x1b[33m",
    "#033[32m[12345.678901] #033[0m",
]


@pytest.mark.parametrize("head", PREFIXES)
def test_a_report_is_read_behind_every_prefix(head: str) -> None:
    read = lines.line(head + BODY)
    assert read.what == Xid(
        PciAddress(0, 0x1B, 0), 79, "GPU has fallen off the bus.", 4242, "python"
    )


@pytest.mark.parametrize(
    "head",
    [
        "Aug 10 15:36:05 host python[123]: ",
        "Aug 10 15:36:05 host root: ",
        "2025-01-21T04:41:44+00:00 host logger: ",
        "Aug 10 15:36:05 host python[123]: [12345.678901] ",
        "12,2215,1843308145,-;",  # facility 1: a user wrote it
        "<12>1 2026-01-05T00:00:00Z host kernel - - - ",
        '<14>1 2026-01-05T00:00:00Z host python 12 - [origin ip="10.0.0.7"] ',
        "the manual says that ",
        '{"level":"warn","msg":"',
        'echo "',
    ],
)
def test_what_a_user_wrote_or_quoted_is_no_report(head: str) -> None:
    read = lines.line(head + BODY)
    assert (read.what, read.unused) == (None, Unused.NOT_FROM_KERNEL)


@pytest.mark.parametrize(
    ("report", "pid", "name", "message"),
    [
        ("48, pid=1234, name=ray::WorkerDict, Ch 1", 1234, "ray::WorkerDict", "Ch 1"),
        ("48, pid=1234, name=a.b:[c] d, Ch 1", 1234, "a.b:[c] d", "Ch 1"),
        ("48, pid=1234,   name=RenderThread, Ch 1", 1234, "RenderThread", "Ch 1"),
        ("48, pid='<unknown>', name=<unknown>, Ch 1", None, None, "Ch 1"),
        ("48, pid=<n/a>, name=<unknown>, Ch 1", None, None, "Ch 1"),
        ("48, pid=1234, Ch 1", 1234, None, "Ch 1"),
        ("48, name=x.exe, Ch 1", None, "x.exe", "Ch 1"),
        ("48, pid=1651,", 1651, None, ""),
        ("48, pid=7, name=x,y, Ch 1", 7, "x,y", "Ch 1"),
        ("48, Ch 1", None, None, "Ch 1"),
        ("48", None, None, ""),
    ],
)
def test_process_and_message_are_told_apart(report, pid, name, message) -> None:
    what = lines.line(f"NVRM: Xid (PCI:0000:1b:00): {report}").what
    assert (what.pid, what.process, what.message) == (pid, name, message)


@pytest.mark.parametrize(
    ("place", "address", "slices"),
    [
        ("PCI:0000:1b:00", (0, 0x1B, 0), (None, None)),
        ("PCI:0000:1B:00.0", (0, 0x1B, 0), (None, None)),
        ("PCI:00000000:1B:00.0", (0, 0x1B, 0), (None, None)),
        ("PCI:0019:01:1e", (0x19, 1, 0x1E), (None, None)),
        ("0000:03:00", (0, 3, 0), (None, None)),
        ("PCI:0000:01:00 GPU-I:05", (0, 1, 0), (5, None)),
        ("PCI:0000:01:00 GPU-I:05 GPU-CI:02", (0, 1, 0), (5, 2)),
    ],
)
def test_addresses_and_mig_slices(place, address, slices) -> None:
    what = lines.line(f"NVRM: Xid ({place}): 94, pid=7741, Contained: CE User Channel (0x9).").what
    assert what.device == PciAddress(*address)
    assert (what.gpu_instance, what.compute_instance) == slices


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.", (0, 0x91, 0)),
        ("NVRM: GPU at 0000:01:00.0 has fallen off the bus.", (0, 1, 0)),
        ("NVRM: GPU at PCI:0000:01:00: GPU has fallen off the bus.", (0, 1, 0)),
        (
            "NVRM: The NVIDIA GPU 0000:b3:00.0\n               NVRM: (PCI ID: 10de:26b5) installed in"
            " this system has\n               NVRM: fallen off the bus and is not responding to commands.",
            (0, 0xB3, 0),
        ),
        (
            "4,22,1843,-;NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: (PCI ID: 10de:26b5) installed in"
            " this system has\\x0aNVRM: fallen off the bus and is not responding to commands.",
            (0, 0xB3, 0),
        ),
        (
            "Aug 10 15:36:05 host kernel: NVRM: The NVIDIA GPU 0000:b3:00.0#012NVRM: (PCI ID: 10de:26b5)"
            " installed in this system has#012NVRM: fallen off the bus and is not responding.",
            (0, 0xB3, 0),
        ),
    ],
)
def test_a_gpu_off_the_bus_needs_no_xid(text, address) -> None:
    what = lines.line(text).what
    assert isinstance(what, FallenOff)
    assert what.device == PciAddress(*address)


def test_an_xid_within_a_record_of_several_lines_is_the_report() -> None:
    text = "[1.000001] NVRM: The NVIDIA GPU 0000:b3:00.0\n NVRM: Xid (PCI:0000:b3:00): 79, GPU has"
    assert isinstance(lines.line(text).what, Xid)


SWITCH = "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): "


@pytest.mark.parametrize(
    ("rest", "severity", "link", "text", "first"),
    [
        ("12028, Non-fatal, Link 32 egress non-posted PRIV error (First)", Severity.NON_FATAL, 32,
         "egress non-posted PRIV error", True),
        ("20034, Fatal, Link 48 LTSSM Fault Up", Severity.FATAL, 48, "LTSSM Fault Up", False),
        ("11012, Correctable, Link 02 ingress header ECC", Severity.CORRECTABLE, 2, "ingress header ECC", False),
        ("10001, Fatal, instance=3, chiplet=1 PRI WRITE SYS error", Severity.FATAL, 3, "PRI WRITE SYS error", False),
        ("26006, SOE HALTED", None, None, "SOE HALTED", False),
        ("10004, NVSWITCH Temperature 98C | TSENSE WARN Threshold 97C", None, None,
         "NVSWITCH Temperature 98C | TSENSE WARN Threshold 97C", False),
    ],
)  # fmt: skip
def test_switch_reports(rest, severity, link, text, first) -> None:
    what = lines.line(f"[1.000001] {SWITCH}{rest}").what
    code = int(rest.split(",")[0])
    assert what == SXid(PciAddress(0, 5, 0), code, 3, severity, link, text, first)


@pytest.mark.parametrize(
    "rest",
    ["20034, Severity 1 Engine instance 60 Sub-engine instance 00", "20034, Data {0x1, 0x0}"],
)
def test_further_lines_of_a_switch_report_are_details(rest: str) -> None:
    assert isinstance(lines.line(SWITCH + rest).what, SXidDetail)


def test_identity_lines() -> None:
    uuid = lines.line("[1.000001] NVRM: GPU at PCI:0000:91:00: GPU-0c11d0aa-5b2e-4f70").what
    assert uuid == Identity(PciAddress(0, 0x91, 0), uuid="GPU-0c11d0aa-5b2e-4f70")
    board = lines.line("[1.000001] NVRM: GPU Board Serial Number: 1650000000001").what
    assert board == Identity(serial="1650000000001")
    serial = lines.line(
        "[1.000001] NVRM: GPU 0000:91:00.0: GPU serial number is 1650000000001."
    ).what
    assert serial == Identity(PciAddress(0, 0x91, 0), serial="1650000000001")


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 812751949",
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
        "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x26:0x56:1463)",
    ],
)
def test_warnings_without_an_xid_are_hints(text: str) -> None:
    assert isinstance(lines.line(text).what, Hint)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Unused.NOT_A_DRIVER_LINE),
        ("systemd[1]: started", Unused.NOT_A_DRIVER_LINE),
        ("NVRM: _kgspLogXid119: ********* GSP Timeout *********", Unused.DRIVER_MESSAGE),
        (
            "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05",
            Unused.DRIVER_MESSAGE,
        ),
        ("NVRM: A GPU crash dump has been created.", Unused.DRIVER_MESSAGE),
        ("NVRM: if Xid 79 shows, the GPU has fallen off the bus", Unused.DRIVER_MESSAGE),
        ("nvidia-nvswitch0: using MSI", Unused.DRIVER_MESSAGE),
        ("NVRM: Xid (PCI:zz00:1b:00): 79, GPU", Unused.MALFORMED),
        ("NVRM: Xid (PCI:0000:1b): 79, GPU", Unused.MALFORMED),
        ("NVRM: Xid (PCI:0000:1b:00): seventy-nine", Unused.MALFORMED),
        ("NVRM: Xid (PCI:0000:1b:00): 7999999999", Unused.MALFORMED),
        ("NVRM: Xid (PCI:0000:1b:0", Unused.MALFORMED),
        ("NVRM: Xid (PCI:0000:1b:00): \u0667\u0669, arabic digits", Unused.MALFORMED),
        ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): , Fatal", Unused.MALFORMED),
    ],
)
def test_what_is_no_report_has_a_reason(text: str, reason: Unused) -> None:
    read = lines.line(text)
    assert (read.what, read.unused) == (None, reason)


def test_every_beginning_of_a_report_is_read_without_error() -> None:
    for line in (BODY, f"{SWITCH}20034, Fatal, Link 48 LTSSM Fault Up (First)"):
        for length in range(len(line)):
            lines.line(line[:length])


@pytest.mark.parametrize(
    "unit",
    ["\x1b[", "\x1b]", "\\x0a", "#0", "Xid (", "NVRM:", "NVRM: Xid (PCI:0000:1b:00): 79, name=", "\n",
     "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, ", "[ ", "a[1]:", "Aug 10 ", ",", "0x0 ", "\0"],
)  # fmt: skip
def test_of_a_line_of_a_megabyte_the_beginning_is_read(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    for position in ("", "NVRM: ", "NVRM: Xid (PCI:0000:1b:00): 149, "):
        assert lines.line(position + text).cut
