"""The driver's trace events: read as the log is, and as another pair of eyes on the same faults."""

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.health_tracing import FakeTracing, printed

from health import shipped, trace_events, trace_source
from health.actions import Action
from health.events import PciAddress, Severity, Source, SXid, Watching, Xid
from health.kmsg import DEVICE, MOST_DRIFT_US, Tally
from health.ledger import Ledger
from health.trace_events import Lost, TraceRecord
from health.trace_source import TRACING, TraceSource, tracing_of
from health.watch_state import Clock, Intake, KernelRecord, Seen, WatchState

XID = "Xid (PCI:0000:1b:00.0): 79, GPU has fallen off the bus."
SXID = "SXid (PCI:0000:05:00.0): 20034, Fatal, Link 03 LTSSM Fault Up"


def test_an_event_is_an_xid_with_the_kernels_time():
    record = trace_events.record(printed("nvidia_dev_xid", XID, seconds=1234.56789).rstrip())
    assert record == TraceRecord(1_234_567_890, XID)
    read = trace_events.line(record.text)
    assert read.what == Xid(PciAddress(0, 0x1B, 0), 79, "GPU has fallen off the bus.")


def test_a_switchs_event_is_a_report_of_a_switch_that_is_known_by_its_place_alone():
    record = trace_events.record(printed("nvswitch_dev_sxid", SXID).rstrip())
    read = trace_events.line(record.text)
    place = PciAddress(0, 5, 0)
    assert read.what == SXid(place, 20034, None, Severity.FATAL, 3, "LTSSM Fault Up")
    assert read.body == SXID


@pytest.mark.parametrize(
    "task", ["<idle>-0", "kworker/u64:3-17", "a b: c-9", "x-1 (   1234)", "nvidia-smi-1 (-------)"]
)
def test_any_task_may_have_been_running(task):
    assert trace_events.record(printed("nvidia_dev_xid", XID, task=task).rstrip()) is not None


@pytest.mark.parametrize(
    "raw",
    [
        b"# tracer: nop",
        b"",
        printed("sched_switch", "nvidia_dev_xid: " + XID),
        printed("tracing_mark_write", "1.000000: nvidia_dev_xid: " + XID),
        printed("nvidia_dev_xid", "something else"),
        b"nvidia_dev_xid: " + XID.encode(),
        b"\xff\xfe\0",
    ],
)
def test_nothing_else_is_taken_for_an_event(raw):
    assert trace_events.record(raw) is None


def test_an_overrun_of_the_ring_is_told():
    assert trace_events.record(b"CPU:3 [LOST 12 EVENTS]") == Lost(12)
    assert trace_events.record(b"CPU:3 [LOST EVENTS]") == Lost(1)


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda t: printed("nvidia_dev_xid", t)))
def test_any_bytes_are_an_event_or_nothing(raw):
    record = trace_events.record(raw)
    if isinstance(record, TraceRecord):
        read = trace_events.line(record.text)
        assert (read.what is None) == (read.unused is not None)


class Following:
    """A source that is being read."""

    def __init__(self, tracing):
        self.batches = []
        self.source = TraceSource(tracing.path)

    @contextlib.asynccontextmanager
    async def running(self):
        async def follow():
            async for batch in self.source.batches():
                self.batches.append(batch)

        task = asyncio.create_task(follow())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def texts(self):
        return [record.text for batch in self.batches for record in batch.records]

    async def until(self, condition, what):
        try:
            async with asyncio.timeout(30):
                while not condition():  # noqa: ASYNC110 - the pipe's other end has no event
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pytest.fail(f"waited for {what}; there was {self.batches}")


@pytest.fixture
def tracing(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_source, "SETTLE_SECONDS", 0.05)
    tracing = FakeTracing(tmp_path / "tracing")
    yield tracing
    tracing.close()


async def test_events_are_switched_on_read_and_counted(tracing):
    tracing.load_driver()
    async with Following(tracing).running() as following:
        await following.until(lambda: tracing.on, "the events to be on")
        tracing.say(printed("nvidia_dev_xid", XID)[:40])
        tracing.say(printed("nvidia_dev_xid", XID)[40:] + b"CPU:1 [LOST 7 EVENTS]\n")
        tracing.say(b"# what is this\n" + printed("nvswitch_dev_sxid", SXID))
        await following.until(lambda: following.texts == [XID, SXID], "both events")
        await following.until(lambda: sum(b.malformed for b in following.batches) == 1, "the count")
    assert sum(batch.lost for batch in following.batches) == 7
    assert following.batches[0].watches
    assert (tracing.instance / "trace_clock").read_text() == "mono"


async def test_a_driver_that_comes_later_and_one_that_comes_again_are_found(tracing):
    async with Following(tracing).running() as following:
        await asyncio.sleep(0)
        assert following.batches == []
        tracing.load_driver()
        await following.until(lambda: tracing.on, "the events to be on")
        tracing.load_driver()
        await following.until(lambda: tracing.on, "the events to be on again")
        tracing.say(printed("nvidia_dev_xid", XID))
        await following.until(lambda: following.texts == [XID], "the event")


async def test_what_happened_while_nobody_read_is_read_later(tracing):
    tracing.load_driver()
    async with Following(tracing).running() as first:
        await first.until(lambda: tracing.on, "the events to be on")
    tracing.say(printed("nvidia_dev_xid", XID))
    async with Following(tracing).running() as second:
        await second.until(lambda: second.texts == [XID], "what came meanwhile")


async def test_a_driver_without_the_events_is_nothing_to_complain_about(tracing):
    (tracing.path / "events" / "nvidia").mkdir()
    assert not TraceSource(tracing.path).switch_on()
    assert not TraceSource(tracing.path / "none").switch_on()
    tracing.load_driver()
    (tracing.instance / "trace_pipe").unlink()
    assert not TraceSource(tracing.path).switch_on()


def test_tracing_is_read_beside_the_kernels_own_log_only(tmp_path):
    assert tracing_of(DEVICE, None) == TRACING
    assert tracing_of(tmp_path, None) is None
    assert tracing_of(tmp_path, tmp_path / "t") == tmp_path / "t"


@pytest.fixture
def state(tmp_path):
    ledger = Ledger(tmp_path / "health.db")
    three = frozenset({Source.KMSG, Source.NVML, Source.TRACE})
    yield WatchState(
        ledger, shipped.catalogue(), shipped.policy(), boot_id="b1", clock=Clock(100.0, 1.75e9),
        sources=three,
    )  # fmt: skip
    ledger.close()


def test_log_trace_and_nvml_tell_one_fault_and_it_counts_once(state):
    begin = [
        Seen(Watching(source, watches=True), 100.0, source)
        for source in (Source.TRACE, Source.NVML)
    ]
    by_nvml = Seen(Xid(PciAddress(0, 0x1B, 0), 79), 150.1, Source.NVML)
    record = KernelRecord("b1", 150_000_000, f"NVRM: {XID}", 7)
    state.take(Intake(seen=begin), Clock(100.0, 1.75e9))
    event = KernelRecord("b1", 150_000_100, XID)
    state.take(Intake([record], traced=[event], seen=[by_nvml]), Clock(151.0, 1.75e9))
    found = state.verdict(Clock(200.0, 1.75e9))
    assert (found.counts["xid:79"], found.gaps, found.action) == (1, {}, Action.REBOOT_NODE)
    # The log turned over before anybody read it: the fault is known, and the gap told.
    lost = [KernelRecord("b1", 300_000_000, XID.replace("1b", "1c"))]
    state.take(Intake(traced=lost), Clock(301.0, 1.75e9))
    found = state.verdict(Clock(400.0, 1.75e9))
    assert (found.counts["xid:79"], found.gaps) == (2, {"kmsg": 1, "nvml": 1})


def test_the_logs_clock_is_set_by_a_record_that_was_printed_just_now():
    """A minute off after a month: told by two sources, one fault would look like two."""
    tally = Tally(None)
    tally.add(b"4,1,1000000,-;NVRM: old")
    tally.add(b"4,2,2600000000,-;NVRM: new")
    tally.set_clock(2_681_000_000)
    assert [r.monotonic_us for r in tally.batch().records] == [82_000_000, 2_681_000_000]
    tally.add(b"4,3,2600500000,-;NVRM: next")
    assert tally.batch().records[0].monotonic_us == 2_681_500_000
    tally.set_clock(2_600_500_000 + MOST_DRIFT_US + 1)
    tally.add(b"4,4,2601000000,-;NVRM: and on")
    assert tally.batch().records[0].monotonic_us == 2_682_000_000, "no clock is so far off"
