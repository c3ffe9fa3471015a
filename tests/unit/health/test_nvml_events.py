"""The two tellings of one fault by the newest drivers: one is told, the one that says more."""

from hypothesis import given
from hypothesis import strategies as st

from health.nvml_events import HOLD_SECONDS, OPERATIONAL, WAIT_MS, XID, Pairing
from health.nvml_messages import Happened, Traits

TRAITS = Traits(severity=40, attributes=4)


def plain(at: float, code: int = 79, bus: int = 1) -> Happened:
    return Happened((0, bus, 0), XID, code, at)


def full(at: float, code: int = 79, bus: int = 1) -> Happened:
    return Happened((0, bus, 0), XID, code, at, traits=TRAITS)


def test_the_telling_with_traits_wins_whichever_comes_first():
    pairing = Pairing()
    assert pairing.heard(plain(1.0)) == []
    assert pairing.heard(full(1.1)) == [full(1.1)]
    assert pairing.due(9.0) == []
    assert pairing.heard(full(10.0)) == [full(10.0)]
    assert pairing.heard(plain(10.1)) == []
    assert pairing.due(19.0) == []


def test_what_comes_without_traits_is_told_after_a_moment_and_no_wait_is_longer():
    pairing = Pairing()
    assert pairing.wait_ms(1.0) == WAIT_MS
    pairing.heard(plain(1.0))
    assert pairing.wait_ms(1.1) <= 1000 * HOLD_SECONDS
    assert pairing.due(1.1) == []
    assert pairing.due(1.0 + HOLD_SECONDS) == [plain(1.0)]
    assert pairing.wait_ms(2.0) == WAIT_MS


def test_the_slice_that_only_the_plain_telling_names_is_kept():
    pairing = Pairing()
    pairing.heard(Happened((0, 1, 0), XID, 79, 1.0, 3, 1))
    (told,) = pairing.heard(full(1.1))
    assert (told.gpu_instance, told.compute_instance, told.traits) == (3, 1, TRAITS)


def test_other_gpus_codes_and_kinds_are_other_events():
    pairing = Pairing()
    pairing.heard(plain(1.0))
    for other in (full(1.0, code=13), full(1.0, bus=2)):
        assert pairing.heard(other) == [other]
    without = Happened((0, 1, 0), OPERATIONAL, 17, 1.0, traits=TRAITS)
    assert pairing.heard(without) == [without]
    assert pairing.due(5.0) == [plain(1.0)]


faults = st.tuples(
    st.floats(0, 20), st.sampled_from([13, 79]), st.integers(1, 3), st.sampled_from(["plain", "both"]),
    st.floats(-0.4, 0.4),
)  # fmt: skip


@given(st.lists(faults, max_size=20))
def test_each_fault_is_told_at_least_once_and_as_often_as_it_happened(happened):
    heard = []
    for at, code, bus, forms, apart in happened:
        heard.append(plain(at + 1, code, bus))
        if forms == "both":
            heard.append(full(at + 1 + apart, code, bus))
    pairing, told = Pairing(), []
    for event in sorted(heard, key=lambda each: each.uptime):
        told += pairing.heard(event)
    told += pairing.due(1e9)
    for code in (13, 79):
        for bus in (1, 2, 3):
            mine = [each for each in happened if each[1:3] == (code, bus)]
            both = sum(each[3] == "both" for each in mine)
            events = [e for e in told if (e.content, e.device[1]) == (code, bus)]
            assert sum(e.traits is not None for e in events) == both
            # A telling without traits may be taken for that of a neighbour, and none is told twice.
            assert both <= len(events) <= len(mine)
