"""One event told by several sources counts once; told by one alone it shows a gap."""

from itertools import permutations

import pytest
from support.health_builders import GPU, PEER, event, switch, verdict, xid

from health.actions import Action
from health.events import Operational, Severity, Source, Watching
from health.verdict.findings import Role

BOTH = frozenset({Source.KMSG, Source.NVML})


def watched(*sources: Source, at: float = -5.0):
    """Sources that must be there when it happens, and are."""
    return [event(at, Watching(source, watches=True), source=source) for source in sources]


def told(at: float, code: int, *by: Source, **more):
    return [xid(at + place / 10, code, source=source, **more) for place, source in enumerate(by)]


def test_an_event_seen_by_two_sources_counts_once() -> None:
    found = verdict(*told(0, 79, Source.KMSG, Source.NVML), sources=BOTH, now=60)
    assert [each.count for each in found.incidents[0].evidence] == [1]
    assert found.gaps == {}


def test_repeats_are_paired_one_by_one() -> None:
    events = [
        *told(0, 94, Source.KMSG, Source.KMSG, Source.NVML, Source.NVML),
        *told(1, 94, Source.KMSG),
    ]
    found = verdict(*events, sources=BOTH, now=60)
    assert [each.count for each in found.incidents[0].evidence] == [3]


def test_an_event_seen_by_one_source_alone_is_a_gap_of_the_other() -> None:
    events = [*watched(Source.NVML), *told(0, 79, Source.KMSG), *told(5, 95, Source.NVML)]
    assert verdict(*events, sources=BOTH, now=60).gaps == {"nvml": 1, "kmsg": 1}


def test_what_happened_while_nvml_was_not_watched_is_no_gap_of_nvml() -> None:
    before = [*told(0, 79, Source.KMSG), *watched(Source.NVML, at=5)]
    assert verdict(*before, sources=BOTH, now=60).gaps == {}
    late = [*watched(Source.NVML, at=5), *told(0, 79, Source.KMSG)]
    assert verdict(*late, sources=BOTH, now=60).gaps == {}
    hangs = event(5, Watching(Source.NVML, watches=False), source=Source.NVML)
    after = [*watched(Source.NVML), hangs, *told(6, 79, Source.KMSG)]
    assert verdict(*after, sources=BOTH, now=60).gaps == {}


def test_a_source_that_goes_while_the_others_tell_has_no_gap() -> None:
    goes = event(0.5, Watching(Source.NVML, watches=False), source=Source.NVML)
    events = [*watched(Source.NVML), *told(0, 79, Source.KMSG), goes]
    assert verdict(*events, sources=BOTH, now=60).gaps == {}


THREE = frozenset({Source.KMSG, Source.NVML, Source.TRACE})


@pytest.mark.parametrize("order", list(permutations(sorted(THREE))))
def test_an_event_seen_by_three_sources_counts_once_in_any_order(order) -> None:
    events = [
        xid(place / 10, 79, "" if source is Source.NVML else "lost", source=source)
        for place, source in enumerate(order)
    ]
    found = verdict(*watched(Source.NVML, Source.TRACE), *events, sources=THREE, now=60)
    assert [each.count for each in found.incidents[0].evidence] == [1]
    assert (found.counts["xid:79"], found.gaps) == (1, {})
    assert found.incidents[0].evidence[0].text == "Xid 79 lost"


def test_of_three_sources_each_one_that_is_silent_has_the_gap() -> None:
    events = [*watched(Source.NVML, Source.TRACE), *told(0, 79, Source.TRACE)]
    assert verdict(*events, sources=THREE, now=60).gaps == {"kmsg": 1, "nvml": 1}


def test_a_switch_report_by_log_and_trace_counts_once() -> None:
    report = {"severity": Severity.FATAL, "link": 3, "text": "LTSSM"}
    pair = [switch(0, 20034, source=s, **report) for s in (Source.TRACE, Source.KMSG)]
    found = verdict(*watched(Source.NVML, Source.TRACE), *pair, sources=THREE, now=60)
    assert (found.counts["sxid:20034"], found.gaps) == (1, {})


def propagated(at: float, code: int, source: Source, device=GPU, **traits):
    return xid(at, code, device=device, source=source, operational=Operational(**traits))


@pytest.mark.parametrize("first", ["log", "nvml"])
def test_what_the_driver_says_beside_an_xid_is_laid_to_the_one_report_of_it(first: str) -> None:
    by_log = xid(0.1, 95, "Uncontained: FBHUB", source=Source.KMSG)
    by_nvml = propagated(0.0 if first == "nvml" else 0.2, 95, Source.NVML, propagated=True)
    events = sorted([by_log, by_nvml], key=lambda each: each.at)
    found = verdict(*watched(Source.NVML), *events, sources=BOTH, now=60)
    (evidence,) = found.incidents[0].evidence
    assert (evidence.count, evidence.role) == (1, Role.EXPLAINED)


def test_an_injected_fault_is_expected_and_a_real_one_among_them_is_not() -> None:
    drill = [*told(0, 79, Source.KMSG), propagated(0.1, 79, Source.NVML, simulated=True)]
    assert verdict(*drill, sources=BOTH, now=60).action is Action.NONE
    real = [*drill, xid(30, 79, source=Source.KMSG), xid(30.1, 79, source=Source.NVML)]
    assert verdict(*real, sources=BOTH, now=60).action is Action.REBOOT_NODE


def test_events_of_one_cause_are_one_incident_when_the_driver_says_so() -> None:
    root = propagated(0, 64, Source.NVML, trace=9, primary=True)
    victim = propagated(100, 13, Source.NVML, trace=9, propagated=True, device=PEER)
    assert len(verdict(root, victim).incidents) == 1
    other = propagated(100, 13, Source.NVML, trace=10, device=PEER)
    assert len(verdict(root, other).incidents) == 2


def test_a_gap_is_not_declared_before_the_other_had_its_time() -> None:
    assert verdict(*told(0, 79, Source.KMSG), sources=BOTH, now=1).gaps == {}


def test_events_of_other_gpus_codes_or_times_are_not_paired() -> None:
    apart = [
        *told(0, 79, Source.KMSG),
        *told(0.1, 79, Source.NVML, device=PEER),
        *told(9, 79, Source.NVML),
    ]
    found = verdict(*apart, sources=BOTH, now=60)
    assert found.counts["xid:79"] == 3
    assert sum(each.count for incident in found.incidents for each in incident.evidence) == 3


def test_one_source_by_itself_has_no_gaps() -> None:
    assert verdict(*told(0, 79, Source.KMSG), sources=frozenset({Source.KMSG}), now=60).gaps == {}


def test_a_source_that_knows_only_the_code_gives_way_to_the_full_report() -> None:
    exhausted = "Row Remapper Error: (0x1) - All reserved rows for bank are remapped"
    bare, full = told(0, 64, Source.NVML), [xid(0.3, 64, exhausted, source=Source.KMSG)]
    for events in ([*bare, *full], [*full, xid(0.5, 64, source=Source.NVML)]):
        found = verdict(*events, sources=BOTH, now=60)
        assert found.action is Action.HARDWARE_TICKET
        assert [each.count for each in found.incidents[0].evidence] == [1]
        assert (found.counts["xid:64"], found.gaps) == (1, {})


def test_what_only_the_log_can_tell_is_no_gap_of_nvml() -> None:
    report = switch(0, 20034, severity=Severity.FATAL, link=3)
    assert verdict(report, sources=BOTH, now=60).gaps == {}
