"""Laws of the fold, for any history."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from support.health_builders import GPUS, START, history

from health import shipped
from health.actions import Action
from health.catalogue.rows import Cause
from health.events import (
    ActionTaken,
    Ending,
    Event,
    FallenOff,
    Hint,
    Identity,
    JobEnded,
    Quantity,
    Reading,
    RecordsLost,
    Severity,
    Source,
    SXid,
    SXidDetail,
    Verified,
    Xid,
)
from health.fold.history import MAX_INCIDENTS
from health.verdict.node import judge_node
from health.verdict.topology import Topology

DEVICES = st.sampled_from(GPUS[:3])
XIDS = shipped.catalogue().xids
APPLICATION = sorted(code for code, row in XIDS.items() if row.cause is Cause.APPLICATION)
MESSAGES = st.sampled_from(
    ["", "Ch 8", "on (GPC 1, TPC 2, SM 0): x", "MMU Fault: FAULT_PDE", "caused by previous Xid 31"]
)
APP_FAULTS = st.builds(Xid, DEVICES, st.sampled_from([*APPLICATION, 45]), MESSAGES)
RECOVERIES = st.integers(0, 9).map(
    lambda code: f"GPU recovery action changed from 0x0 (None) to 0x{code:x} (x)"
)
FAULTS = st.one_of(
    APP_FAULTS,
    st.builds(Xid, DEVICES, st.integers(1, 180), MESSAGES),
    st.builds(Xid, DEVICES, st.just(154), RECOVERIES),
    st.builds(SXid, DEVICES, st.sampled_from([20034, 12028, 28002, 99999]), st.integers(0, 3),
              st.one_of(st.none(), st.sampled_from(Severity)), st.integers(0, 17)),
    st.builds(SXidDetail, DEVICES, st.just(20034)),
    st.builds(FallenOff, st.one_of(st.none(), DEVICES)),
    st.builds(Hint, st.just("probe_failed")),
)  # fmt: skip
OTHERS = st.one_of(
    st.builds(Reading, st.sampled_from(Quantity), st.one_of(st.none(), st.integers(-2, 1000)), DEVICES),
    st.builds(JobEnded, st.sampled_from("abc"), st.sampled_from(Ending), st.tuples(DEVICES)),
    st.builds(ActionTaken, st.sampled_from(Action), st.booleans(), st.one_of(st.none(), DEVICES)),
    st.builds(Verified, st.one_of(st.none(), DEVICES)),
    st.builds(RecordsLost, st.integers(-5, 1000)),
    st.builds(Identity, DEVICES, st.sampled_from(["GPU-a", "GPU-b"])),
)  # fmt: skip


ANYTHING = st.one_of(FAULTS, OTHERS)


@st.composite
def histories(draw: st.DrawFn, what: st.SearchStrategy = ANYTHING) -> list[Event]:
    """Events in order; boots follow one another."""
    at, boot, events = START, 0, []
    for thing in draw(st.lists(what, max_size=25)):
        at += draw(st.sampled_from([0.0, 0.01, 1.0, 20.0, 300.0, 20_000.0]))
        boot += draw(st.sampled_from([0, 0, 0, 0, 1]))
        source = draw(st.sampled_from([Source.KMSG, Source.NVML]))
        events.append(Event(at, thing, f"b{boot}", source))
    return events


@given(histories())
@settings(max_examples=40, deadline=None)
def test_a_stored_history_gives_the_very_same_verdict(events: list[Event]) -> None:
    read = [msgspec.json.decode(msgspec.json.encode(each), type=Event) for each in events]
    assert read == events
    assert judge_node(history(*read)) == judge_node(history(*events))


@given(histories())
@settings(max_examples=40, deadline=None)
def test_asking_for_the_verdict_in_between_changes_nothing(events: list[Event]) -> None:
    asked = history()
    for each in events:
        asked.add(each)
        judge_node(asked)
    assert judge_node(asked) == judge_node(history(*events))


@given(
    histories(
        st.one_of(
            APP_FAULTS,
            st.builds(JobEnded, st.just("a"), st.sampled_from(Ending), st.tuples(DEVICES)),
        )
    )
)
@settings(max_examples=40, deadline=None)
def test_one_jobs_own_faults_never_cost_a_reboot_or_a_ticket(events: list[Event]) -> None:
    assert judge_node(history(*events)).action.severity <= Action.RESTART_APP.severity


@given(histories())
@settings(max_examples=40, deadline=None)
def test_after_a_verified_repair_and_time_enough_nothing_is_left(events: list[Event]) -> None:
    end = (events[-1].at if events else START) + 1.0
    mended = history(*events, Event(end, Verified(), events[-1].boot if events else ""))
    mended.advance(end + 10 * 86_400)
    assert judge_node(mended).open == ()


@given(histories(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_every_verdict_can_be_explained(events: list[Event], together: bool) -> None:
    topology = Topology(reset_together=(GPUS,), busy=GPUS[:2]) if together else Topology()
    found = judge_node(history(*events, sources=frozenset({Source.KMSG, Source.NVML})), topology)
    assert len(found.incidents) <= MAX_INCIDENTS
    for incident in found.incidents:
        assert incident.rule
        assert incident.why
        assert incident.way_back
        assert incident.evidence
        assert incident.opened_at <= incident.last_at
        if incident.action is Action.RESET_GPU:
            assert set(incident.to_act_on) <= set(incident.reset_domain)
    gravest = max([each.action.severity for each in found.gpus], default=0)
    assert gravest <= found.action.severity


@given(histories(), st.integers(0, 24))
@settings(max_examples=40, deadline=None)
def test_records_lost_never_make_a_verdict_graver(events: list[Event], place: int) -> None:
    at = events[min(place, len(events) - 1)] if events else None
    extra = [] if at is None else [Event(at.at, RecordsLost(9), at.boot)]
    whole = sorted([*events, *extra], key=lambda each: each.at)
    assert judge_node(history(*whole)).action == judge_node(history(*events)).action
