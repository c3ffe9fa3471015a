"""A storm of one line: bounded on disk, not hiding anything else, the same after a restart."""

from hypothesis import given
from hypothesis import strategies as st

from health import storms
from health.events import Event, FallenOff, Hint, Identity, PciAddress, SXid, Xid
from health.storms import KEPT, WINDOW_SECONDS, StormGate

GPU, OTHER = PciAddress(0, 1, 0), PciAddress(0, 2, 0)


def test_of_eight_hundred_thousand_equal_lines_a_thousand_are_kept():
    gate = StormGate()
    event = Event(at=1.0, what=Xid(GPU, 95))
    assert sum(gate.passes(event) for _ in range(800_000)) == KEPT


def test_a_storm_hides_neither_other_codes_nor_other_gpus():
    gate = StormGate()
    for _ in range(KEPT + 1):
        last = gate.passes(Event(at=1.0, what=Xid(GPU, 95)))
    assert not last
    for what in (Xid(GPU, 79), Xid(OTHER, 95), SXid(GPU, 95), FallenOff(GPU), Hint("x", GPU)):
        assert gate.passes(Event(at=1.0, what=what))


def test_a_storm_that_goes_on_is_heard_again_in_each_window():
    gate = StormGate()
    for _ in range(KEPT + 1):
        gate.passes(Event(at=1.0, what=Xid(GPU, 95)))
    assert not gate.passes(Event(at=WINDOW_SECONDS, what=Xid(GPU, 95)))
    assert gate.passes(Event(at=1.0 + WINDOW_SECONDS, what=Xid(GPU, 95)))


def test_what_is_no_fault_report_always_passes():
    gate = StormGate()
    assert all(gate.passes(Event(at=1.0, what=Identity(GPU, "GPU-1"))) for _ in range(KEPT + 5))


@given(st.lists(st.floats(0.0, 2000.0), max_size=60), st.integers(0, 60))
def test_a_gate_made_of_what_was_kept_decides_like_the_first(times, cut):
    original, kept = storms.KEPT, []
    storms.KEPT = 3
    try:
        events = [Event(at=at, what=Xid(GPU, 95)) for at in sorted(times)]
        gate = StormGate()
        decisions = [gate.passes(event) for event in events]
        kept = [e for e, passed in zip(events[:cut], decisions[:cut], strict=True) if passed]
        again = StormGate()
        assert all(again.passes(event) for event in kept)
        assert [again.passes(event) for event in events[cut:]] == decisions[cut:]
    finally:
        storms.KEPT = original
