"""The daemon's judgement survives kills, full disks, replays and other drivers with the same verdict."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from health import report, shipped, watch_state
from health.actions import Action
from health.events import (
    Ending,
    JobEnded,
    Operational,
    PciAddress,
    Quantity,
    Reading,
    Source,
    Watching,
)
from health.ledger import Ledger, LedgerFull, Position
from health.watch_state import Clock, Intake, KernelRecord, Seen, WatchState

GPU = PciAddress(0, 0x1B, 0)
START = Clock(100.0, 1_750_000_000.0)


def clock(seconds: float) -> Clock:
    return Clock(START.uptime + seconds, START.wall + seconds)


def xid(
    code: int, sequence: int, seconds: float, boot: str = "b1", bus: str = "1b"
) -> KernelRecord:
    text = f"NVRM: Xid (PCI:0000:{bus}:00): {code}, pid=7, name=python, what happened"
    return KernelRecord(boot, int((START.uptime + seconds) * 1e6), text, sequence)


def opened(ledger: Ledger, boot: str = "b1", now: Clock = START, **more) -> WatchState:
    return WatchState(
        ledger, shipped.catalogue(), shipped.policy(), boot_id=boot, clock=now, **more
    )


BOTH = frozenset({Source.KMSG, Source.NVML})


def nvml_watches(seconds: float) -> Seen:
    return Seen(Watching(Source.NVML, watches=True), clock(seconds).uptime, Source.NVML)


def told(state: WatchState, now: Clock):
    verdict = state.verdict(now)
    return verdict.standing, [report.incident(each) for each in verdict.incidents]


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "health.db")
    yield ledger
    ledger.close()


def test_a_restart_at_any_point_changes_no_verdict(ledger):
    story = [xid(13, 1, 1.0), xid(43, 2, 2.0), xid(79, 3, 50.0), xid(45, 4, 51.0)]
    without = opened(ledger)
    for number, record in enumerate(story):
        without.take(Intake([record]), clock(60.0))
        again = opened(ledger, now=clock(60.0))
        assert told(again, clock(60.0)) == told(without, clock(60.0)), number
    assert without.verdict(clock(60.0)).action is Action.REBOOT_NODE


def test_a_fault_printed_before_the_daemon_started_after_a_reboot_is_seen(ledger):
    opened(ledger).take(Intake(positions={"kmsg": Position("b1", 900)}), clock(0.0))
    after = Clock(20.0, START.wall + 300.0)
    state = opened(ledger, "b2", after)
    record = KernelRecord("b2", 5_000_000, xid(79, 0, 0).text, 12)
    state.take(Intake([record], positions={"kmsg": Position("b2", 12)}), after)
    assert state.verdict(after).action is Action.REBOOT_NODE
    assert state.position("kmsg") == Position("b2", 12)


def test_what_was_open_is_still_open_after_a_restart_and_ends_with_a_reboot(ledger):
    opened(ledger).take(Intake([xid(79, 1, 1.0)]), clock(2.0))
    assert opened(ledger, now=clock(9.0)).verdict(clock(9.0)).action is Action.REBOOT_NODE
    rebooted = opened(ledger, "b2", Clock(5.0, START.wall + 200.0))
    assert rebooted.verdict(Clock(6.0, START.wall + 201.0)).open == ()


def test_a_clock_lost_over_a_reboot_puts_no_fault_of_the_old_boot_into_the_new_one(ledger):
    state = opened(ledger)
    state.take(Intake([xid(79, 1, 900)]), clock(900))
    state.verdict(clock(900))
    state = opened(ledger, "b2", Clock(5.0, 0.0))
    verdict = state.verdict(Clock(5.0, 0.0))
    (incident,) = verdict.incidents
    assert verdict.standing == "Healthy"
    assert incident.opened_at < state.boot.at(0.0)
    assert state.wall(incident.opened_at) == clock(900).wall


def test_records_read_again_after_a_lost_connection_count_once(ledger):
    state = opened(ledger)
    for _ in range(3):
        state.take(Intake([xid(79, 1, 1.0)]), clock(2.0))
    assert [each["evidence"][0]["count"] for each in told(state, clock(2.0))[1]] == [1]


def full(monkeypatch, ledger):
    def fail(*_, **__):
        raise LedgerFull("cannot write: database or disk is full; make room")

    for name in ("record", "save_incidents", "save_note", "save_boot"):
        monkeypatch.setattr(ledger, name, fail)


def test_a_full_disk_neither_blinds_the_watch_nor_loses_what_came(ledger, monkeypatch):
    state = opened(ledger)
    with monkeypatch.context() as patch:
        full(patch, ledger)
        state.take(Intake([xid(79, 5, 1.0)], positions={"kmsg": Position("b1", 5)}), clock(2.0))
        # The reader comes back and, as nothing was kept, says the same again.
        assert state.position("kmsg") is None
        state.take(Intake([xid(79, 5, 1.0)], positions={"kmsg": Position("b1", 5)}), clock(3.0))
        standing, incidents = told(state, clock(3.0))
        assert "make room" in state.full
        assert standing.value == "RebootNode"
        assert incidents[0]["evidence"][0]["count"] == 1
        assert [event.sequence for event in ledger.events()] == [-1]
    state.take(Intake(), clock(4.0))
    assert state.full == ""
    assert state.position("kmsg") == Position("b1", 5)
    assert told(opened(ledger, now=clock(5.0)), clock(5.0)) == told(state, clock(5.0))


def test_every_record_that_says_nothing_is_counted_by_its_reason(ledger):
    state = opened(ledger)
    junk = ["NVRM: loading", "NVRM: Xid (PCI:zz): x", "nvidia-nvswitch0: up", "\x1b[31m\x00"]
    records = [KernelRecord("b1", 1, text, number) for number, text in enumerate(junk)]
    records.append(KernelRecord("another boot", 1, "NVRM: x", 9))
    state.take(Intake(records), clock(0.0))
    assert sum(state.counts.values()) == len(records)
    assert state.counts["record_of_unknown_boot"] == 1
    assert state.verdict(clock(1.0)).action is Action.NONE


def test_lost_records_are_kept_and_shown(ledger):
    state = opened(ledger)
    state.take(Intake(counts={"lost": 7}, lost=7), clock(0.0))
    assert state.verdict(clock(1.0)).counts["records_lost"] == 7
    assert opened(ledger, now=clock(1.0)).verdict(clock(1.0)).counts["records_lost"] == 7


def test_one_fault_told_by_log_and_nvml_counts_once(ledger):
    state = opened(ledger, sources=frozenset({Source.KMSG, Source.NVML}))
    nvml = Seen(state_xid(), clock(1.5).uptime, Source.NVML)
    state.take(Intake([xid(79, 1, 1.0)], seen=[nvml]), clock(2.0))
    verdict = state.verdict(clock(30.0))
    assert [sum(e.count for e in each.evidence) for each in verdict.incidents] == [1]
    assert verdict.gaps == {}


def test_a_fault_that_only_one_source_tells_is_a_gap_in_the_watch(ledger):
    state = opened(ledger, sources=BOTH)
    state.take(Intake(seen=[nvml_watches(0.5)]), clock(0.5))
    state.take(Intake([xid(79, 1, 1.0)]), clock(2.0))
    assert state.verdict(clock(30.0)).gaps == {"nvml": 1}


def test_what_happened_between_two_daemons_is_no_gap_of_nvml(ledger):
    """The log still holds it; NVML tells only whoever listens when it happens."""
    state = opened(ledger, sources=BOTH)
    state.take(Intake(seen=[nvml_watches(0.5)]), clock(1.0))
    after = opened(ledger, sources=BOTH, now=clock(100.0))
    after.take(Intake([xid(79, 1, 50.0)]), clock(101.0))
    after.take(Intake(seen=[nvml_watches(102.0)]), clock(102.0))
    assert after.verdict(clock(200.0)).gaps == {}
    after.take(Intake([xid(94, 2, 210.0)]), clock(211.0))
    assert after.verdict(clock(300.0)).gaps == {"nvml": 1}


def test_what_the_driver_says_beside_an_xid_survives_a_restart(ledger):
    state = opened(ledger, sources=BOTH)
    beside = Operational(trace=7, simulated=True)
    heard = Seen(state_xid(), clock(1.0).uptime, Source.NVML, operational=beside)
    state.take(Intake([xid(79, 1, 1.0)], seen=[heard]), clock(2.0))
    again = opened(ledger, sources=BOTH, now=clock(3.0))
    assert again.verdict(clock(3.0)).action is Action.NONE


def state_xid():
    from health.events import Xid

    return Xid(GPU, 79)


def test_channels_of_a_job_that_the_cluster_ended_are_expected(ledger):
    state = opened(ledger)
    end = Seen(JobEnded("research/llm", Ending.EVICTED), clock(2.0).uptime, Source.CLUSTER, 77)
    state.take(Intake([xid(45, 1, 1.0)], seen=[end]), clock(3.0))
    verdict = state.verdict(clock(3.0))
    assert [f.rule for each in verdict.incidents for f in each.findings] == ["end_of_job"]


def test_another_driver_judges_the_whole_history_anew(ledger):
    state = opened(ledger)
    state.take(Intake([xid(79, 1, 1.0)]), clock(2.0))
    before = told(state, clock(3.0))
    state.use_driver("580.95.05")
    assert told(state, clock(3.0)) == before
    assert ledger.note("driver") == "580.95.05"


def test_readings_of_this_boot_are_remembered_for_the_next_daemon(ledger):
    state = opened(ledger)
    reading = Reading(Quantity.REMAP_PENDING, 1, GPU)
    state.take(Intake(seen=[Seen(reading, clock(1.0).uptime, Source.NVML)]), clock(1.0))
    assert opened(ledger, now=clock(2.0)).readings() == {(GPU, Quantity.REMAP_PENDING): 1}
    assert opened(ledger, "b2", Clock(1.0, START.wall + 99.0)).readings() == {}


def test_the_moment_of_the_standing_outlives_restarts_and_steps_of_the_clock(ledger):
    state = opened(ledger)
    state.take(Intake([xid(79, 1, 1.0)]), clock(2.0))
    since = state.since(state.verdict(clock(2.0)), clock(2.0))
    jumped = Clock(clock(50.0).uptime, START.wall - 1e6)
    again = opened(ledger, now=jumped)
    assert again.since(again.verdict(jumped), jumped) == since


def test_a_million_repeats_are_one_incident_and_a_bounded_ledger(ledger):
    state = opened(ledger)
    for begin in range(0, 6000, 1000):
        records = [xid(95, begin + n, 1.0) for n in range(1000)]
        state.take(Intake(records), clock(2.0))
    assert len(list(ledger.events())) == 1 + 1000
    assert state.counts["repeats_not_kept"] == 5000
    assert len(state.verdict(clock(3.0)).incidents) == 1
    assert told(opened(ledger, now=clock(3.0)), clock(3.0)) == told(state, clock(3.0))


codes = st.sampled_from([13, 31, 43, 45, 48, 63, 74, 79, 92, 94, 95, 119, 154, 999])


@settings(max_examples=15, deadline=None)
@given(
    story=st.lists(
        st.tuples(codes, st.sampled_from(["1b", "1c"]), st.integers(1, 400)), max_size=12
    ),
    cuts=st.lists(st.integers(0, 12), max_size=3),
)
def test_any_history_gives_the_same_verdict_however_it_is_cut(tmp_path_factory, story, cuts):
    path = tmp_path_factory.mktemp("state")
    seconds, records = 0.0, []
    for number, (code, bus, gap) in enumerate(story):
        seconds += gap
        records.append(xid(code, number, seconds, bus=bus))
    end = clock(seconds + 1.0)
    whole_ledger, cut_ledger = Ledger(path / "whole.db"), Ledger(path / "cut.db")
    whole = opened(whole_ledger)
    whole.take(Intake(records), end)
    state, begin = opened(cut_ledger), 0
    for cut in [*sorted(cuts), len(records)]:
        state.take(Intake(records[begin:cut]), end)
        state, begin = opened(cut_ledger, now=end), max(begin, cut)
    assert told(state, end) == told(whole, end)
    whole_ledger.close()
    cut_ledger.close()


class Killed(Exception):
    """The process ended here."""


def test_a_kill_between_two_pieces_of_a_burst_neither_loses_nor_doubles(
    ledger, tmp_path, monkeypatch
):
    monkeypatch.setattr(watch_state, "PIECE", 10)
    burst = Intake(
        [xid(94, n, 1.0 + 20 * n, bus=f"{n % 4:02x}") for n in range(35)],
        positions={"kmsg": Position("b1", 34)},
        counts={"read": 35},
    )
    whole = opened(Ledger(tmp_path / "whole.db"))
    whole.take(burst, clock(800.0))
    for killed_at in range(1, 5):
        state, record, calls = opened(ledger), ledger.record, []

        def dying(events, *, record=record, calls=calls, killed_at=killed_at, **more):
            calls.append(len(events))
            if len(calls) == killed_at:
                raise Killed
            return record(events, **more)

        monkeypatch.setattr(ledger, "record", dying)
        with pytest.raises(Killed):
            state.take(burst, clock(800.0))
        monkeypatch.setattr(ledger, "record", record)
        assert ledger.position("kmsg") is None, "what is not kept to its end is read again"
    after = opened(ledger)
    after.take(burst, clock(800.0))
    assert told(after, clock(800.0)) == told(whole, clock(800.0))
    assert ledger.counts() == whole._ledger.counts()
    whole._ledger.close()
