"""One event told by several sources counts once; told by one alone it shows a gap."""

from support.health_builders import PEER, switch, verdict, xid

from health.actions import Action
from health.events import Severity, Source

BOTH = frozenset({Source.KMSG, Source.NVML})


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
    found = verdict(*told(0, 79, Source.KMSG), *told(5, 95, Source.NVML), sources=BOTH, now=60)
    assert found.gaps == {"nvml": 1, "kmsg": 1}


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
