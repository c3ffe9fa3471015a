"""From the history of a node to what has to be done."""

import pytest
from support.health_builders import (
    GPU,
    GPUS,
    PEER,
    START,
    ended,
    event,
    history,
    policy,
    reading,
    recovery,
    said,
    switch,
    verdict,
    xid,
)

from health.actions import Action, Drain, Standing
from health.events import (
    ActionTaken,
    Ending,
    Identity,
    JobEnded,
    Operational,
    PciAddress,
    Quantity,
    RecordsLost,
    Severity,
    Verified,
)
from health.fold.history import MAX_DEVICES, MAX_INCIDENTS
from health.fold.incident import MAX_OBSERVATIONS
from health.verdict.findings import Role
from health.verdict.node import judge_node
from health.verdict.topology import Topology

DAY = 86_400.0


def test_a_node_without_a_word_is_healthy() -> None:
    assert verdict().standing is Standing.HEALTHY


def test_one_fault_is_one_incident_however_often_it_is_told() -> None:
    found = verdict(*(xid(second / 10, 119, "Timeout") for second in range(1000)))
    (incident,) = found.incidents
    assert (incident.action, incident.rule) == (Action.RESET_GPU, "catalogue")
    assert [each.count for each in incident.evidence] == [1000]
    assert found.standing is Standing.RESET_GPU


def test_the_drivers_number_decides_over_the_catalogue() -> None:
    found = verdict(xid(0, 79), recovery(0.1, 0, 1))
    assert (found.action, found.rule) == (Action.RESET_GPU, "recovery_number")
    harder = verdict(xid(0, 95), recovery(0.1, 0, 2))
    assert harder.action is Action.REBOOT_NODE


def test_of_several_wishes_of_the_driver_the_newest_counts() -> None:
    found = verdict(xid(0, 149), recovery(0.1, 0, 4), recovery(5, 4, 1))
    assert found.open[0].drain is Drain.NONE
    lowered = verdict(xid(0, 48), recovery(0.1, 0, 2), recovery(5, 2, 1))
    assert lowered.action is Action.RESET_GPU


def test_a_wish_to_drain_lets_the_jobs_save_first() -> None:
    (incident,) = verdict(xid(0, 48), recovery(0.1, 0, 4)).incidents
    assert (incident.action, incident.drain) == (Action.RESET_GPU, Drain.GPU)


def test_the_drivers_number_does_not_speak_about_faults_it_does_not_follow() -> None:
    found = verdict(xid(0, 119), xid(1, 94), recovery(1.1, 0, 1), recovery(9, 1, 0), now=400)
    assert found.open[0].action is Action.RESET_GPU, "119 is not the driver's to close"


def test_a_ticket_stands_whatever_the_driver_wishes() -> None:
    exhausted = "Row Remapper Error: (0x1) - All reserved rows for bank are remapped"
    found = verdict(xid(0, 64, exhausted), recovery(0.1, 0, 1), recovery(60, 1, 0))
    assert found.action is Action.HARDWARE_TICKET
    assert found.open


def test_links_and_switch_that_lost_a_gpu_are_victims() -> None:
    lost = said(0, "NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.")
    down = "NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
    found = verdict(
        lost,
        xid(1, 74, down, PEER),
        switch(12, 20034, severity=Severity.FATAL, link=48, text="LTSSM Fault Up"),
    )
    (incident,) = found.incidents
    assert (incident.action, incident.root) == (Action.REBOOT_NODE, "xid:79")
    assert incident.to_act_on == (GPU,)
    roles = {each.code: each.role for each in incident.findings}
    assert roles == {"xid:79": Role.FAULT, "xid:74": Role.EXPLAINED, "sxid:20034": Role.EXPLAINED}
    peer = next(each for each in found.gpus if each.device == PEER)
    assert peer.action is Action.NONE


def test_a_victim_that_is_told_first_still_is_one() -> None:
    found = verdict(
        switch(0, 20034, severity=Severity.FATAL, link=48, text="LTSSM Fault Up"), xid(5, 79)
    )
    (incident,) = found.incidents
    assert incident.root == "xid:79"


def test_two_faults_far_apart_are_two_incidents() -> None:
    found = verdict(xid(0, 13, device=GPU), xid(100, 13, device=PEER), xid(1000, 13, device=GPU))
    assert len(found.incidents) == 3


def test_the_same_fault_on_all_gpus_at_once_is_one_incident() -> None:
    found = verdict(*(xid(place / 10, 13, device=gpu) for place, gpu in enumerate(GPUS)))
    (incident,) = found.incidents
    assert incident.devices == GPUS
    assert incident.action is Action.RESTART_APP


def test_a_second_loss_of_the_bus_is_for_the_vendor() -> None:
    found = verdict(xid(0, 79), xid(2 * DAY, 79, boot="b2"))
    assert [each.action for each in found.incidents] == [Action.REBOOT_NODE, Action.HARDWARE_TICKET]
    assert found.rule == "bus_lost_again"
    later = verdict(xid(0, 79), xid(8 * DAY, 79, boot="b2"))
    assert later.action is Action.REBOOT_NODE


def test_what_survives_two_reboots_is_for_the_vendor() -> None:
    events = [xid(day * DAY, 120, boot=f"b{day}") for day in range(3)]
    assert verdict(*events[:2]).action is Action.RESET_GPU
    assert verdict(*events).rule == "survives_reboots"


def test_a_fault_that_goes_on_for_hours_is_no_repetition() -> None:
    found = verdict(*(xid(minute * 60.0 * 10, 62) for minute in range(60)))
    (incident,) = found.incidents
    assert incident.action is Action.RESET_GPU


def test_a_storm_of_memory_errors_is_for_the_vendor() -> None:
    few = verdict(*(xid(n * 10.0, 95, "Uncontained: FBHUB. RST: Yes") for n in range(50)))
    many = verdict(*(xid(n * 10.0, 95, "Uncontained: FBHUB. RST: Yes") for n in range(371)))
    assert (few.action, many.action) == (Action.RESET_GPU, Action.HARDWARE_TICKET)


UNATTRIBUTED = "MMU Fault: ENGINE GRAPHICS GPC0 UNRECOGNIZED_CLIENT faulted @ 0x18"
BAD_ADDRESS = "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_8 faulted @ 0x73. Fault is of type FAULT_PDE"


def exceptions_everywhere() -> list:
    """What one bad kernel of a job makes the driver print: a line for each SM of each GPU."""
    return [
        xid(sm / 1000, 13, f"Exception on (GPC {sm // 9}, TPC {sm % 9}, SM 0): x", device)
        for sm in range(66)
        for device in GPUS
    ]


def test_a_gpu_that_leaves_the_bus_does_not_drown_in_exceptions_of_its_program() -> None:
    found = verdict(*exceptions_everywhere(), xid(1, 79, device=GPUS[5]))
    assert found.standing is Standing.REBOOT_NODE
    (lost,) = (each for each in found.gpus if each.standing is Standing.REBOOT_NODE)
    assert lost.device == GPUS[5]


def test_a_wish_of_the_driver_amid_a_storm_speaks_of_its_own_gpu_alone() -> None:
    told = [*exceptions_everywhere(), xid(1, 79, device=GPUS[5]), recovery(1.1, 1, 0, GPUS[6])]
    assert verdict(*told).standing is Standing.REBOOT_NODE


def test_a_storm_after_a_lost_gpu_neither_hides_it_nor_grows_without_end() -> None:
    found = history(xid(-1, 79, device=GPUS[5]), *exceptions_everywhere())
    assert judge_node(found).standing is Standing.REBOOT_NODE
    assert all(len(each.observations) <= MAX_OBSERVATIONS for each in found.incidents)


def test_exceptions_everywhere_are_the_programs_fault() -> None:
    assert verdict(*exceptions_everywhere()).action is Action.RESTART_APP


def test_faults_that_no_gpu_can_attribute_all_over_the_node_need_a_reboot() -> None:
    spread = [xid(place, 31, UNATTRIBUTED, gpu) for place, gpu in enumerate(GPUS)]
    assert verdict(*spread).action is Action.REBOOT_NODE
    assert verdict(*spread[:2]).action is Action.RESTART_APP


def test_a_bad_address_on_all_gpus_is_the_programs() -> None:
    spread = [xid(place / 10, 31, BAD_ADDRESS, gpu) for place, gpu in enumerate(GPUS)]
    assert verdict(*spread).action is Action.RESTART_APP


def faulting(jobs: list[str], device=GPU, code: int = 31, message: str = BAD_ADDRESS) -> list:
    """Jobs that fault one after the other on a GPU, while another GPU is in use and quiet."""
    events = [ended(-1, "elsewhere", Ending.COMPLETED, GPUS[5])]
    for place, job in enumerate(jobs):
        events.append(xid(place * 3600.0, code, message, device))
        events.append(ended(place * 3600.0 + 1, job, Ending.FAILED, device))
    return events


def test_a_fault_that_stays_with_the_gpu_while_jobs_change_is_for_the_vendor() -> None:
    assert verdict(*faulting(["a", "b", "c"])).action is Action.HARDWARE_TICKET


def test_where_no_other_gpu_was_in_use_nothing_tells_the_board_from_the_program() -> None:
    alone = [each for each in faulting(["a", "b", "c"]) if each.at >= START]
    assert verdict(*alone).action is Action.RESTART_APP


def test_one_job_that_fails_again_and_again_is_its_own_fault() -> None:
    assert verdict(*faulting(["a"] * 12), now=12 * 3600).action is not Action.HARDWARE_TICKET


def test_jobs_that_fault_on_several_gpus_are_their_own_fault() -> None:
    both = sorted(faulting(["a", "b", "c"]) + faulting(["a", "b", "c"], PEER), key=lambda e: e.at)
    assert {each.action for each in verdict(*both).incidents} == {Action.RESTART_APP}


def test_exceptions_need_the_same_place_to_be_the_boards() -> None:
    same = faulting(["a", "b", "c"], code=13, message="Exception on (GPC 7, TPC 2, SM 0): x")
    assert verdict(*same).action is Action.HARDWARE_TICKET
    other = [
        each
        for place, job in enumerate("abc")
        for each in (
            xid(place * 3600.0, 13, f"Exception on (GPC {place}, TPC 2, SM 0): x"),
            ended(place * 3600.0 + 1, job, Ending.FAILED),
        )
    ]
    assert {each.action for each in verdict(*other).incidents} == {Action.RESTART_APP}


@pytest.mark.parametrize(
    "how", [Ending.PREEMPTED, Ending.CANCELLED, Ending.COMPLETED, Ending.EVICTED]
)
@pytest.mark.parametrize("told_at", [-5.0, 5.0])
def test_channels_taken_down_by_the_end_of_a_job_are_expected(how: Ending, told_at: float) -> None:
    teardown = [xid(n / 100, code) for n in range(40) for code in (45, 43)]
    events = sorted([*teardown, ended(told_at, "llm", how)], key=lambda each: each.at)
    found = verdict(*events)
    assert {each.role for incident in found.incidents for each in incident.findings} == {
        Role.EXPECTED
    }
    assert found.standing is Standing.HEALTHY


def test_a_job_that_died_by_itself_explains_nothing() -> None:
    found = verdict(xid(0, 43), ended(1, "llm", Ending.FAILED))
    assert found.action is Action.RESTART_APP


def test_the_end_of_a_job_elsewhere_explains_nothing_here() -> None:
    found = verdict(xid(0, 43), ended(1, "llm", Ending.PREEMPTED, PEER))
    assert found.action is Action.RESTART_APP


def test_an_end_that_names_no_gpu_is_of_the_whole_node() -> None:
    found = verdict(xid(0, 43), event(1, JobEnded("llm", Ending.PREEMPTED)))
    assert found.standing is Standing.HEALTHY


def test_gpus_that_reset_only_together_are_reset_when_the_others_are_idle() -> None:
    board = Topology(reset_together=(GPUS,), busy=(GPU,))
    (incident,) = verdict(xid(0, 95), topology=board).incidents
    assert (incident.action, incident.reset_domain) == (Action.RESET_GPU, tuple(sorted(GPUS)))
    shared = Topology(reset_together=(GPUS,), busy=(GPU, PEER))
    assert verdict(xid(0, 95), topology=shared).rule == "reset_domain_busy"
    apart = Topology(busy=(GPU, PEER))
    assert verdict(xid(0, 95), topology=apart).action is Action.RESET_GPU


def test_a_reset_that_failed_becomes_a_reboot() -> None:
    failed = event(60, ActionTaken(Action.RESET_GPU, succeeded=False, device=GPU))
    assert verdict(xid(0, 95), failed).rule == "reset_failed"


WAYS_BACK = [
    (xid(0, 13), [], 200.0, "nothing new came"),
    (xid(0, 300), [], DAY + 1, "nothing new came"),
    (xid(0, 95), [event(60, ActionTaken(Action.RESET_GPU, True, GPU))], 61.0, "the GPU has been reset"),
    (xid(0, 95), [recovery(5, 1, 0)], 6.0, "the driver asks for nothing more"),
    (xid(0, 95), [reading(5, Quantity.RECOVERY_ACTION, 0)], 6.0, "the driver asks for nothing more"),
    (xid(0, 79), [xid(900, 13, device=PEER, boot="b2")], 901.0, "the node has been rebooted"),
    (xid(0, 54), [event(900, Verified(GPU))], 901.0, "the checks after the repair passed"),
    (xid(0, 54), [event(-9, Identity(GPU, uuid="GPU-a")), event(900, Identity(GPU, uuid="GPU-b"))], 901.0,
     "another board is in its place"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "after", "now", "because"), WAYS_BACK)
def test_every_verdict_has_a_way_back(fault, after, now, because) -> None:
    before = verdict(fault)
    assert before.incidents[0].closed is None
    assert before.incidents[0].way_back
    events = sorted([fault, *after], key=lambda each: each.at)
    found = next(
        each
        for each in verdict(*events, now=now).incidents
        if each.root == before.incidents[0].root
    )
    assert found.closed is not None
    assert found.closed.because == because


def test_a_ticket_does_not_end_by_a_reboot() -> None:
    found = verdict(xid(0, 54), xid(900, 13, boot="b2"))
    assert found.action is Action.HARDWARE_TICKET


def test_power_smoothing_that_works_again_takes_the_suspicion_back() -> None:
    assert verdict(xid(0, 163)).standing is Standing.WATCH
    assert verdict(xid(0, 163), xid(60, 162)).standing is Standing.HEALTHY


def test_what_the_driver_calls_propagated_or_simulated_is_believed() -> None:
    moved = verdict(xid(0, 95, operational=Operational(propagated=True)))
    assert moved.incidents[0].findings[0].role is Role.EXPLAINED
    drill = verdict(xid(0, 79, operational=Operational(simulated=True)))
    assert drill.action is Action.NONE


def test_lost_records_are_counted() -> None:
    assert verdict(event(0, RecordsLost(17)), event(1, RecordsLost(5))).counts["records_lost"] == 22


def test_a_late_event_of_an_earlier_boot_does_not_bring_that_boot_back() -> None:
    found = verdict(xid(0, 13, boot="b1"), xid(100, 13, boot="b2"), xid(100.5, 79, boot="b1"))
    assert found.boot == "b2"


def test_serial_and_uuid_reach_the_verdict_on_the_gpu() -> None:
    found = verdict(
        said(0, "NVRM: GPU at PCI:0000:1b:00: GPU-0c11d0aa-5b2e"),
        said(0.1, "NVRM: GPU Board Serial Number: 1650000000001"),
        xid(0.2, 79),
    )
    assert [(each.uuid, each.serial) for each in found.gpus] == [
        ("GPU-0c11d0aa-5b2e", "1650000000001")
    ]


def test_the_same_history_gives_the_same_verdict_and_the_same_ids() -> None:
    events = [xid(0, 79), recovery(0.2, 0, 2), xid(5, 45), *faulting(["a", "b"], PEER)]
    events.sort(key=lambda each: each.at)
    assert verdict(*events) == verdict(*events)


def test_a_site_may_count_what_it_likes() -> None:
    own = policy(
        "thresholds: [{name: app_storm, codes: ['xid:43'], counted: events, at_least: 20,"
        " window_seconds: 3600, action: reset_gpu, why: as agreed}]"
    )
    storm = [xid(n * 10.0, 43) for n in range(20)]
    assert verdict(*storm, policy=own).rule == "app_storm"
    assert verdict(*storm[:19], policy=own).action is Action.RESTART_APP


def test_a_kill_on_one_gpu_does_not_join_a_fault_of_another() -> None:
    found = verdict(xid(0, 95), xid(60, 45, device=PEER))
    assert len(found.incidents) == 2


def test_further_lines_of_a_switch_report_are_kept_and_not_counted() -> None:
    line = "nvidia-nvswitch1: SXid (PCI:0000:05:00.0): 20034, "
    found = verdict(
        said(0, line + "Fatal, Link 48 LTSSM Fault Up"),
        said(0.001, line + "Severity 1 Engine instance 60 Sub-engine instance 00"),
        said(0.002, line + "Data {0x10000000, 0x00000000}"),
    )
    (finding,) = found.incidents[0].findings
    assert (finding.observation.count, found.counts["sxid:20034"]) == (1, 1)
    assert len(finding.observation.details) == 2


def test_what_every_driver_load_prints_raises_no_suspicion() -> None:
    flood = [switch(n / 10, 22013, severity=Severity.NON_FATAL, link=n) for n in range(48)]
    assert verdict(*flood).standing is Standing.HEALTHY


def test_memory_that_waits_for_its_replacement_lets_the_jobs_save_first() -> None:
    pending = "Row Remapper: New row (0x1) marked for remapping, reset gpu to activate."
    assert verdict(xid(0, 63, pending)).open[0].drain is Drain.GPU
    assert verdict(xid(0, 156)).open[0].drain is Drain.GPU
    assert verdict(xid(0, 95)).open[0].drain is Drain.NONE


def test_a_fault_that_nobody_mended_outlives_the_history() -> None:
    later = [xid(day * DAY, 13, device=PEER) for day in range(1, 30)]
    found = verdict(xid(0, 54), *later)
    assert found.action is Action.HARDWARE_TICKET
    assert found.counts["incidents_forgotten"] > 0


def test_many_small_incidents_do_not_push_a_grave_one_out() -> None:
    many = [xid(1000.0 * n, 13, device=PEER) for n in range(1, MAX_INCIDENTS + 50)]
    found = verdict(xid(0, 119), *many)
    assert len(found.incidents) <= MAX_INCIDENTS
    assert found.action is Action.RESET_GPU


def test_an_incident_that_the_judge_holds_open_is_not_forgotten() -> None:
    events = faulting(["a", "b", "c"])
    held = history(*events)
    (raised,) = [each for each in judge_node(held).open if each.action is Action.HARDWARE_TICKET]
    held.keep(frozenset({raised.id}))
    for day in range(1, 30):
        held.add(xid(day * DAY, 13, device=PEER))
    assert raised.id in [each.id for each in judge_node(held).incidents]


def test_with_mig_the_slice_that_a_line_names_is_kept() -> None:
    line = "NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:02): 94, pid=7741, Contained: CE User Channel"
    (incident,) = verdict(said(0, line)).incidents
    assert [each.slices for each in incident.evidence] == [(5,)]


def test_addresses_without_end_are_counted_and_fill_nothing() -> None:
    garbage = (xid(n / 1000, 31, "", PciAddress(n, 1, 0)) for n in range(3 * MAX_DEVICES))
    found = verdict(*garbage)
    assert found.counts["too_many_devices"] > 0
    assert sum(len(each.findings) for each in found.incidents) < MAX_DEVICES
