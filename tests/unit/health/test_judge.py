"""What one observation calls for, taken alone."""

import pytest
from support.health_builders import GPU, policy

from health import classify, shipped
from health.actions import Action, Drain
from health.catalogue.driver import version
from health.events import PciAddress, Quantity, Reading, Severity, SXid, Xid
from health.judge import readings
from health.judge.judgement import Judgement


def judged(what: object, driver: str | None = None, own: str = "") -> Judgement:
    known = version(driver) if driver else None
    found = classify.judge_for(shipped.catalogue(), known, policy(own)).judge(what)
    assert found is not None
    return found


def xid(code: int, message: str = "") -> Xid:
    return Xid(GPU, code, message)


@pytest.mark.parametrize(
    ("words", "action", "drain"),
    [
        ("0x0 (None) to 0x1 (GPU Reset Required)", Action.RESET_GPU, Drain.NONE),
        ("0x0 (None) to 0x1 (PF FLR)", Action.RESET_GPU, Drain.NONE),
        ("0x0 (None) to 0x2 (Node Reboot Required)", Action.REBOOT_NODE, Drain.NONE),
        ("0x0 (None) to 0x2 (OS Reboot)", Action.REBOOT_NODE, Drain.NONE),
        ("0x0 (None) to 0x3 (unknown)", Action.RESTART_APP, Drain.PEER_TO_PEER),
        ("0x0 (None) to 0x4 (unknown)", Action.RESET_GPU, Drain.GPU),
        ("0x0 (None) to 0x5 (Recover IMEX Domain)", Action.NONE, Drain.NONE),
        ("0x0 (None) to 0x6 (whatever)", Action.RESET_GPU, Drain.NONE),
        ("0x0 (None) to 0x7 (whatever)", Action.REBOOT_NODE, Drain.NONE),
        ("0x4 (Drain and Reset) to 0x0 (None)", Action.NONE, Drain.NONE),
        ("0x0 to 0x2", Action.REBOOT_NODE, Drain.NONE),
        ("0x0 (None) to 0x2 (GPU Reset Required)", Action.REBOOT_NODE, Drain.NONE),
    ],
)
def test_the_drivers_own_wish_is_read_by_its_number_and_not_by_its_words(
    words, action, drain
) -> None:
    found = judged(xid(154, f"GPU recovery action changed from {words}"))
    assert (found.action, found.drain, found.rule) == (action, drain, "recovery_number")


@pytest.mark.parametrize(
    "words",
    [
        "0x0 (None) to 0x",
        "0x0 (None) to (Node Reboot Required)",
        "0x0 (None",
        "",
        "0x0 (None) to 0x9 (new)",
    ],
)
def test_without_a_known_number_nothing_is_concluded(words: str) -> None:
    found = judged(xid(154, f"GPU recovery action changed from {words}"))
    assert found.action is Action.NONE
    assert found.rule in ("recovery_number_missing", "recovery_number_unknown")


NETIR = "XC0 i0 Link 08"
ZEROS = "0x00000000 0x00000000 0x00000000 0x00000000"


@pytest.mark.parametrize(
    ("code", "report", "driver", "action"),
    [
        # Layout 1, layout 2, and neither known.
        (145, f"RLW_REMAP Fatal XC1 i0 Link 10 (0x00000082 0x00000040 {ZEROS})", "570.124.04", Action.RESET_GPU),
        (145, f"RLW_REMAP Fatal XC1 i0 Link 10 (0x00000082 0x00000040 {ZEROS})", None, Action.RESET_GPU),
        (145, f"RLW_REMAP Fatal XC1 i0 Link 10 (0x00000004 0x00000040 {ZEROS})", "580.95.05", Action.RESET_GPU),
        (145, f"RLW_REMAP Fatal XC1 i0 Link 10 (0x00000004 0x00000040 {ZEROS})", None, Action.RESET_GPU),
        (145, f"RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 {ZEROS})", None, Action.NONE),
        # The further bit: 10 in layout 1, 7 in layout 2.
        (145, f"RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x000000c2 0x00000001 {ZEROS})", "570.124.04", Action.NONE),
        (145, f"RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x000004c2 0x00000001 {ZEROS})", "570.124.04", Action.RESET_GPU),
        (145, f"RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x00000006 0x00000002 {ZEROS})", "580.95.05", Action.NONE),
        (145, f"RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x00000086 0x00000002 {ZEROS})", "580.95.05", Action.RESET_GPU),
        # What follows decides.
        (145, f"RLW_SRC_TRACK Nonfatal XC0 i0 Link 13 (0x00000007 0x00000004 {ZEROS})", "580.95.05", Action.NONE),
        # Link down, with sub causes.
        (149, f"NETIR_LINK_EVT Fatal {NETIR} (0x004505c6 0x00000000 {ZEROS})", None, Action.RESET_GPU),
        (149, f"NETIR_LINK_EVT  Fatal   {NETIR} (0x021425c6 0x00000000 {ZEROS})", None, Action.RESET_GPU),
        (149, f"NETIR_LINK_EVT Fatal {NETIR} (0x026001c6 0x00000000 {ZEROS})", None, Action.NONE),
        (149, f"NETIR_LINK_DOWN Link Fatal {NETIR} (0x02600011 0x00000000 {ZEROS})", "580.95.05", Action.NONE),
        (149, f"NETIR_LINK_DOWN Fatal {NETIR} (0x02800011 0x00000000 {ZEROS})", "580.95.05", Action.NONE),
        (149, f"NETIR_BER_EVENT Nonfatal {NETIR} (0x00000013 0x00000001 {ZEROS})", "580.95.05", Action.NONE),
        (149, f"NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 {ZEROS})", None, Action.RESET_GPU),
        (150, f"MSE_WATCHDOG Fatal XC0 i0 Link 00 (0x00000000 0x00000000 {ZEROS})", None, Action.RESET_GPU),
        (144, f"SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008 {ZEROS})", "580.95.05", Action.NONE),
        # Words cut off, or of no row: the tag.
        (145, "RLW_REMAP Nonfatal XC0 i0 Link 02", None, Action.NONE),
        (145, "RLW_REMAP Fatal XC0 i0 Link 02 (0x0000", None, Action.RESET_GPU),
        (149, "NETIR_LINK_EVT Link Fatal XC0 i0 Link 02", None, Action.RESET_GPU),
        (149, "NETIR_LINK_EVT Fatal XC 1 i 2 Link 01 [0x0000000a]", None, Action.RESET_GPU),
        (146, f"NEW_UNIT Fatal XC0 i0 Link 02 (0xffffffff 0x1 {ZEROS})", None, Action.RESET_GPU),
        # The tag wins over a row that says the opposite.
        (145, f"RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000082 0x00000040 {ZEROS})", None, Action.NONE),
    ],
)  # fmt: skip
def test_nvlink5_reports_by_unit_words_and_tag(code, report, driver, action) -> None:
    assert judged(xid(code, report), driver).action is action


def test_a_wrongly_known_driver_version_does_not_blind_the_decoder() -> None:
    line = f"RLW_REMAP Fatal XC1 i0 Link 10 (0x00000082 0x00000040 {ZEROS})"
    assert judged(xid(145, line), "580.95.05").rule == "nvlink5_sheet"


def test_a_fault_on_the_peers_side_is_no_case_for_a_ticket_here() -> None:
    line = f"NETIR_LINK_EVT Fatal {NETIR} (0x025001c6 0x00000000 {ZEROS})"
    assert judged(xid(149, line)).ticket_allowed is False


@pytest.mark.parametrize(
    ("words", "action", "variant"),
    [
        ("0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", Action.NONE, "harmless"),
        ("0x40800001, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", Action.NONE, "harmless"),
        ("0x100002, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", Action.NONE, "sympathetic"),
        ("0x0, 0x0, 0x0, 0x0, 0x24900000, 0x0, 0x0", Action.NONE, "harmless"),
        ("0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", Action.RESET_GPU, "parity"),
        ("0x10001, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", Action.RESET_GPU, "mechanical"),
        ("0x200000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", Action.RESET_GPU, "signal"),
        ("0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0", Action.RESET_GPU, ""),
        ("0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", Action.RESET_GPU, ""),
    ],
)
def test_link_registers(words, action, variant) -> None:
    found = judged(xid(74, f"NVLink: fatal error detected on link 6({words})"))
    assert (found.action, found.variant, found.place) == (action, variant, "link 6")


@pytest.mark.parametrize(
    ("code", "message", "action"),
    [
        (63, "Row Remapper: New row (0x0000000000abcdef) marked for remapping, reset gpu to activate.", Action.RESET_GPU),
        (63, "Bank Remapper: New bank marked for remapping, reset gpu to activate.", Action.RESET_GPU),
        (63, "Dynamic Page Retirement: New page retired, reboot to activate (0x2a6a5a).", Action.RESET_GPU),
        (63, "", Action.NONE),
        (64, "Row Remapper Error: (0x00000002eebc4100) - All reserved rows for bank are remapped", Action.HARDWARE_TICKET),
        (64, "Row Remapper Error: (0x0000000000abcdef) - Row Remapping table is full", Action.HARDWARE_TICKET),
        (64, "DRAM Retirement failed due to no spare for retirement at 0x0000000000abcdef", Action.HARDWARE_TICKET),
        (64, "DRAM Retirement failed due to unknown error at 0x0000000000abcdef", Action.RESET_GPU),
        (64, "", Action.RESET_GPU),
    ],
)  # fmt: skip
def test_memory_repair_by_what_it_says(code, message, action) -> None:
    assert judged(xid(code, message)).action is action


@pytest.mark.parametrize("code", [177, 300, 65535])
def test_unknown_codes_are_watched_and_never_act(code: int) -> None:
    found = judged(xid(code, "anything"))
    assert (found.action, found.rule, found.watched) == (Action.NONE, "unknown_code", True)


@pytest.mark.parametrize(
    ("sxid", "action"),
    [
        (SXid(GPU, 20034, severity=Severity.FATAL, link=3, text="LTSSM Fault Up"), Action.REBOOT_NODE),
        (SXid(GPU, 12028, severity=Severity.NON_FATAL, link=3), Action.NONE),
        (SXid(GPU, 19061, severity=Severity.NON_FATAL, link=3), Action.NONE),
        (SXid(GPU, 19084, severity=Severity.NON_FATAL, link=3), Action.NONE),
        (SXid(GPU, 24007, severity=Severity.FATAL, link=3), Action.REBOOT_NODE),
        (SXid(GPU, 24007, text="sourcetrack timeout error"), Action.NONE),
        (SXid(GPU, 28002, severity=Severity.FATAL, link=3, text="MC TS tag store fatal ECC"), Action.REBOOT_NODE),
        (SXid(GPU, 28002, text="OSFP Thermal Warn Deactivated"), Action.NONE),
        (SXid(GPU, 26006, text="SOE HALTED"), Action.REBOOT_NODE),
        (SXid(GPU, 10006, text="NVSWITCH Temperature 110C | OVERT Threshold 105C"), Action.REBOOT_NODE),
        (SXid(GPU, 99999, text="new"), Action.NONE),
        (SXid(GPU, 99999, severity=Severity.FATAL, text="new"), Action.REBOOT_NODE),
    ],
)  # fmt: skip
def test_switch_reports_by_tag_then_by_what_they_mean(sxid, action) -> None:
    assert judged(sxid).action is action


def test_a_site_decides_otherwise_with_a_reason_but_not_over_the_drivers_number() -> None:
    own = (
        "overrides:\n  - {code: 'xid:43', action: none, reason: known bug 12}\n"
        "  - {code: 'xid:154', action: none, reason: wishful}\n"
    )
    found = judged(xid(43), own=own)
    assert (found.action, found.rule) == (Action.NONE, "site_override")
    assert "known bug 12" in found.why
    number = judged(xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (x)"), own=own)
    assert number.action is Action.REBOOT_NODE


def test_the_same_number_means_the_same_from_nvml_and_from_the_log() -> None:
    for code, row in shipped.catalogue().recovery_actions.items():
        if code == 0:
            continue
        line = judged(xid(154, f"GPU recovery action changed from 0x0 (a) to 0x{code:x} (b)"))
        read = judged(Reading(Quantity.RECOVERY_ACTION, code, GPU))
        assert (line.action, line.drain) == (read.action, read.drain) == (row.action, row.drain)


def test_addresses_do_not_change_what_a_code_means() -> None:
    assert judged(Xid(PciAddress(0, 1, 0), 79)) == judged(Xid(PciAddress(5, 2, 0x1C), 79))


def test_a_reading_of_zero_is_well() -> None:
    for quantity in Quantity:
        assert readings.judge(Reading(quantity, 0), shipped.catalogue(), policy().limits) is None
