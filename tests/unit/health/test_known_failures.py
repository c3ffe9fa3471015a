"""How other systems have failed at this, each named after what is right: the decisions' part of it.

What is a matter of reading the log, of processes and of clusters is tested where those are.
"""

import msgspec
import pytest
from support.health_builders import (
    GPU,
    GPUS,
    PEER,
    ended,
    event,
    policy,
    reading,
    recovery,
    said,
    switch,
    verdict,
    xid,
)

from health import shipped
from health.actions import Action, Standing
from health.events import (
    ActionTaken,
    Ending,
    Event,
    Hint,
    PciAddress,
    Quantity,
    RecordsLost,
    Severity,
    Source,
    Verified,
)
from health.fold.incident import MAX_OBSERVATIONS

DAY = 86_400.0


def test_1_what_was_printed_before_the_daemon_began_in_this_boot_counts() -> None:
    found = verdict(xid(-15, 79), recovery(-14.9, 0, 2), event(0, Verified(PEER)))
    assert found.action is Action.REBOOT_NODE


def test_2_a_lost_record_is_counted_and_a_reset_is_acknowledged_apart_from_the_log() -> None:
    lost = event(30, RecordsLost(400))
    done = event(
        60, ActionTaken(Action.RESET_GPU, succeeded=True, device=GPU), source=Source.CLUSTER
    )
    found = verdict(xid(0, 95), lost, done)
    assert found.counts["records_lost"] == 400
    assert found.standing is Standing.HEALTHY


def test_3_a_hanging_monitor_is_reported_beside_the_fault_and_teardown_is_no_noise() -> None:
    noise = [xid(n / 100, 45, "Ch 00000008") for n in range(11_760)]
    found = verdict(
        *noise,
        reading(118, Quantity.MONITOR_HANG, 45, None),
        xid(119, 48, "An uncorrectable double bit error (DBE)", PEER),
        ended(120, "llm", Ending.PREEMPTED),
    )
    assert [each.quantity for each in found.conditions] == [Quantity.MONITOR_HANG]
    assert found.conditions[0].of_the_monitor
    assert found.action is Action.RESET_GPU
    assert [each.device for each in found.gpus if each.action is Action.RESET_GPU] == [PEER]


def test_4_hundreds_of_thousands_of_lines_are_a_few_observations_with_their_counts() -> None:
    units = [f"Uncontained: FBHUB {unit}. RST: Yes" for unit in range(29)]
    found = verdict(*(xid(n / 1000, 95, units[n % 29]) for n in range(20_000)))
    (incident,) = found.incidents
    assert sum(each.count for each in incident.evidence) == 20_000
    assert len(incident.findings) == 1
    assert found.counts["xid:95"] == 20_000


def test_4_kinds_without_end_take_no_memory_without_end() -> None:
    places = (f"RLW_X{n} Fatal XC0 i0 Link {n % 999:02d}" for n in range(2_000))
    found = verdict(*(xid(n / 1000, 145, place) for n, place in enumerate(places)))
    assert len(found.incidents[0].findings) <= MAX_OBSERVATIONS


REMAP = "RLW_REMAP Fatal XC1 i0 Link 10"


@pytest.mark.parametrize("driver", [None, "570.124.04", "580.95.05"])
@pytest.mark.parametrize("word", ["0x00000082", "0x00000004"])
def test_5_nvlink_words_are_decoded_for_each_event_and_a_wrong_version_blinds_nothing(
    driver, word
) -> None:
    found = verdict(xid(0, 145, f"{REMAP} ({word} 0x00000040 0x0 0x0 0x0 0x0)"), driver=driver)
    assert found.rule == "nvlink5_sheet"


@pytest.mark.parametrize("message", ["Ch 00000008", "", "Ch 00000001 caused by previous Xid 79"])
def test_6_an_xid_45_never_acts(message: str) -> None:
    found = verdict(*(xid(n / 10, 45, message) for n in range(500)))
    assert found.action is Action.NONE


def test_6_a_preemption_takes_no_node_out() -> None:
    found = verdict(xid(0, 45), xid(0.1, 43), ended(2, "low", Ending.PREEMPTED))
    assert found.standing is Standing.HEALTHY


def test_7_a_threshold_over_the_node_counts_gpus_and_not_reports_or_switches() -> None:
    message = "MMU Fault: UNRECOGNIZED_CLIENT"
    found = verdict(*(xid(n, 31, message, GPUS[n % 3]) for n in range(50)))
    assert found.action is Action.RESTART_APP


def test_8_a_fault_of_an_earlier_boot_is_over_and_an_incident_carries_its_boot() -> None:
    found = verdict(xid(0, 79, boot="b1"), event(300, Hint("adapter_not_initialised"), boot="b2"))
    (old, new) = found.incidents
    assert (old.boot, old.closed.because) == ("b1", "the node has been rebooted")
    assert (new.boot, found.action) == ("b2", Action.NONE)


def test_8_the_same_events_told_again_make_no_new_incident() -> None:
    events = [xid(0, 79), recovery(0.1, 0, 2)]
    once, twice = verdict(*events), verdict(*events, *events)
    assert [each.id for each in once.incidents] == [each.id for each in twice.incidents]


def test_9_a_second_fault_on_a_node_is_a_second_open_incident() -> None:
    found = verdict(xid(0, 95), xid(1000, 79, device=PEER))
    assert [each.action for each in found.open] == [Action.RESET_GPU, Action.REBOOT_NODE]
    mended = verdict(xid(0, 95), xid(1000, 79, device=PEER), event(2000, Verified(PEER)))
    assert [each.action for each in mended.open] == [Action.RESET_GPU]


def test_10_links_are_counted_against_what_nvml_expects_and_absence_is_no_fault() -> None:
    assert verdict(reading(0, Quantity.LINKS_DOWN, None)).standing is Standing.HEALTHY
    assert verdict(reading(0, Quantity.LINKS_DOWN, 0)).standing is Standing.HEALTHY
    found = verdict(reading(0, Quantity.LINKS_DOWN, 2))
    assert (found.standing, found.action) == (Standing.WATCH, Action.NONE)


def test_11_a_condition_ends_when_the_reading_is_well_again() -> None:
    broken = reading(0, Quantity.MONITOR_ERROR, 999, None)
    assert verdict(broken).conditions
    assert (
        verdict(broken, reading(90, Quantity.MONITOR_ERROR, 0, None)).standing is Standing.HEALTHY
    )


def test_12_a_failed_row_remapping_is_for_the_vendor() -> None:
    assert verdict(reading(0, Quantity.REMAP_FAILURE, 1)).action is Action.HARDWARE_TICKET
    assert verdict(reading(0, Quantity.REMAP_PENDING, 1)).action is Action.RESET_GPU


def test_13_a_site_counts_a_code_in_a_window_by_its_policy_file() -> None:
    own = policy(
        "thresholds: [{name: forty_three, codes: ['xid:43'], counted: events, at_least: 5,"
        " window_seconds: 600, action: reset_gpu, why: as agreed}]"
    )
    assert verdict(*(xid(n * 10.0, 43) for n in range(5)), policy=own).action is Action.RESET_GPU


@pytest.mark.parametrize("quantity", [Quantity.MONITOR_ERROR, Quantity.MONITOR_HANG])
def test_14_the_monitors_own_failure_is_no_fault_of_the_hardware(quantity: Quantity) -> None:
    found = verdict(*(reading(n, quantity, 999, None) for n in range(100)))
    assert (found.action, found.standing) == (Action.NONE, Standing.WATCH)


def test_15_a_passing_fault_ends_by_itself_and_a_real_one_is_not_forgotten() -> None:
    assert verdict(xid(0, 32), now=DAY).standing is Standing.HEALTHY
    assert verdict(xid(0, 62), now=DAY).standing is Standing.RESET_GPU


def test_16_the_same_xid_again_is_counted_again() -> None:
    found = verdict(xid(0, 94), xid(5000, 94), xid(10_000, 94))
    assert found.counts["xid:94"] == 3
    assert len(found.incidents) == 3


def test_17_the_root_is_named_and_not_what_followed() -> None:
    found = verdict(xid(0, 62), *(xid(0.001 * n, 45) for n in range(1, 60)))
    (incident,) = found.incidents
    assert (incident.root, incident.action) == ("xid:62", Action.RESET_GPU)


def test_18_a_frozen_system_processor_is_a_reset_whoever_was_named() -> None:
    first = said(
        0, "NVRM: Xid (PCI:0000:1b:00): 120, pid='<unknown>', name=<unknown>, GSP Error: Task 1"
    )
    caller = said(
        16, "NVRM: Xid (PCI:0000:1b:00): 119, pid=77, name=dcgm-exporter, Timeout waiting for RPC"
    )
    (incident,) = verdict(first, caller).incidents
    assert (incident.root, incident.action) == ("xid:120", Action.RESET_GPU)


def test_19_a_gpu_that_is_missing_is_said_and_after_a_reboot_is_for_the_vendor() -> None:
    gone = reading(0, Quantity.DEVICES_MISSING, 1, None)
    assert verdict(gone).action is Action.REBOOT_NODE
    still = reading(600, Quantity.DEVICES_MISSING, 1, None, boot="b2")
    assert verdict(xid(-5, 79), gone, still).rule == "missing_after_reboot"


def test_20_lost_records_are_no_fault_and_no_silence() -> None:
    found = verdict(event(0, RecordsLost(37_000)))
    assert (found.action, found.counts["records_lost"]) == (Action.NONE, 37_000)


def test_21_a_restart_that_reads_its_history_again_stands_where_it_stood() -> None:
    events = [xid(0, 95), xid(1000, 79, device=PEER), reading(2000, Quantity.REMAP_FAILURE, 1)]
    stored = [msgspec.json.encode(each) for each in events]
    read = [msgspec.json.decode(each, type=Event) for each in stored]
    assert verdict(*read) == verdict(*events)
    assert verdict(*read).standing is Standing.HARDWARE_TICKET


def test_22_a_nonfatal_link_line_is_not_fatal_and_a_fatal_one_has_a_way_back() -> None:
    soft = "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x1 0x0 0x00100000 0x4)"
    assert verdict(xid(0, 145, soft)).action is Action.NONE
    hard = f"{REMAP} (0x00000082 0x00000040 0x0 0x0 0x0 0x0)"
    assert verdict(xid(0, 145, hard)).action is Action.RESET_GPU
    assert verdict(xid(0, 145, hard), xid(900, 45, boot="b2")).action is Action.NONE


def test_23_what_a_driver_cannot_tell_is_no_symptom() -> None:
    unknown = [reading(n, quantity, None) for n, quantity in enumerate(Quantity)]
    garbage = [reading(100 + n, quantity, -1) for n, quantity in enumerate(Quantity)]
    found = verdict(*unknown, *garbage)
    assert found.standing is Standing.HEALTHY
    assert sum(
        count for reason, count in found.counts.items() if reason.startswith("unreadable")
    ) == 2 * len(Quantity)


@pytest.mark.parametrize("value", [0, -1, -30, 5])
def test_24_a_thermal_margin_of_nothing_or_less_is_no_fault(value: int) -> None:
    assert verdict(reading(0, Quantity.THERMAL_MARGIN, value)).standing is Standing.HEALTHY


@pytest.mark.parametrize(
    ("quantity", "value", "action"),
    [
        (Quantity.REMAPPED_UNCORRECTABLE, 512, Action.NONE),
        (Quantity.REMAPPED_UNCORRECTABLE, 513, Action.HARDWARE_TICKET),
        (Quantity.RETIRED_PAGES, 59, Action.NONE),
        (Quantity.RETIRED_PAGES, 60, Action.HARDWARE_TICKET),
        (Quantity.RETIREMENT_PENDING, 1, Action.RESET_GPU),
        (Quantity.SRAM_THRESHOLD_EXCEEDED, 1, Action.HARDWARE_TICKET),
        (Quantity.REPAIR_PENDING, 1, Action.RESET_GPU),
        (Quantity.MEMORY_UNREPAIRABLE, 1, Action.HARDWARE_TICKET),
        (Quantity.DEVICE_ERROR, 15, Action.REBOOT_NODE),
        (Quantity.DEVICE_ERROR, 16, Action.RESET_GPU),
        (Quantity.DEVICE_ERROR, 18, Action.REBOOT_NODE),
        (Quantity.DEVICE_ERROR, 10, Action.NONE),
        (Quantity.FABRIC_HEALTH_MASK, 0xAA, Action.NONE),
        (Quantity.CLOCKS_EVENT_REASONS, 0x1 | 0x4, Action.NONE),
    ],
)
def test_25_every_limit_fires_where_it_should(quantity, value, action) -> None:
    assert verdict(reading(0, quantity, value)).action is action


@pytest.mark.parametrize("code", [94, 95, 140, 144, 154])
def test_25_no_code_is_missing_from_the_list(code: int) -> None:
    assert code in shipped.catalogue().xids


def test_25_idle_and_power_cap_are_normal_and_a_healthy_fabric_mask_is_healthy() -> None:
    for quantity, value in (
        (Quantity.CLOCKS_EVENT_REASONS, 0x5),
        (Quantity.FABRIC_HEALTH_MASK, 0xAA),
    ):
        assert verdict(reading(0, quantity, value)).standing is Standing.HEALTHY
    for quantity, value in (
        (Quantity.CLOCKS_EVENT_REASONS, 0x48),
        (Quantity.FABRIC_HEALTH_MASK, 0xA9),
    ):
        assert verdict(reading(0, quantity, value)).standing is Standing.WATCH


@pytest.mark.parametrize(
    ("number", "action"), [(1, Action.RESET_GPU), (2, Action.REBOOT_NODE), (4, Action.RESET_GPU)]
)
def test_26_the_recovery_action_read_at_the_start_tells_what_happened_while_nobody_watched(
    number, action
) -> None:
    found = verdict(reading(0, Quantity.RECOVERY_ACTION, number))
    assert (found.action, found.gpus[0].action) == (action, action)
    well = verdict(
        reading(0, Quantity.RECOVERY_ACTION, number), reading(9, Quantity.RECOVERY_ACTION, 0)
    )
    assert well.standing is Standing.HEALTHY


def test_a_switch_fault_that_a_gpu_explains_is_never_the_switchs() -> None:
    events = []
    for day in range(4):
        boot = f"b{day}"
        events.append(xid(day * DAY, 79, device=GPUS[day], boot=boot))
        events.append(
            switch(
                day * DAY + 12,
                20034,
                severity=Severity.FATAL,
                link=48,
                boot=boot,
                device=PciAddress(0, 6, 0),
            )
        )
    rules = {
        each.rule
        for incident in verdict(*events).incidents
        for each in incident.findings
        if each.code == "sxid:20034"
    }
    assert "switch_again" not in rules
