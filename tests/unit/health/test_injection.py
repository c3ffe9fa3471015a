"""Injected faults are what a driver would print: the daemon judges them as it judges the real ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from health import classify, injection, kmsg_record, shipped
from health.events import Quantity
from health.verdict.node import judge_node


def verdict(name):
    policy = shipped.policy()
    judge = classify.judge_for(shipped.catalogue(), None, policy)
    return judge_node(
        classify.folded(injection.lines(injection.fault(name), 1, "n"), judge, policy)
    )


@pytest.mark.parametrize(
    ("name", "standing", "root", "drain"),
    [
        ("bus", "RebootNode", "xid:79", "none"),
        ("uncontained", "ResetGpu", "xid:95", "none"),
        ("drain", "ResetGpu", "xid:149", "gpu"),
        ("program", "RestartApp", "xid:31", "none"),
        ("48", "ResetGpu", "xid:48", "none"),
    ],
)
def test_each_fault_leads_where_it_says(name, standing, root, drain):
    found = verdict(name)
    assert found.standing.value == standing
    (incident,) = found.open
    assert (incident.root, incident.drain.value) == (root, drain)
    (gpu,) = found.gpus
    assert str(gpu.device) == "0000:1c:00.0"
    assert gpu.uuid.startswith("GPU-")
    assert gpu.serial


def test_every_fault_is_told_what_it_does_to_the_gpu_in_the_words_of_the_checks():
    known = {quantity.value for quantity in Quantity} | {"missing"}
    for fault in injection.FAULTS.values():
        assert set(fault.gpu) <= known


@pytest.mark.parametrize("name", ["", "79.0", "-1", "boss", "12345", "٣"])
def test_what_is_no_fault_is_refused_with_those_that_are(name):
    with pytest.raises(injection.NoSuchFault, match="bus, uncontained"):
        injection.fault(name)


def test_boards_of_different_places_have_different_serials():
    lines = {
        injection.lines(injection.fault("bus"), gpu, node)[1]
        for gpu in range(8)
        for node in ("a", "b")
    }
    assert len(lines) == 16


@given(st.text(max_size=200), st.integers(0, 10**12), st.integers(0, 10**12))
def test_a_record_is_read_as_it_was_written(text, sequence, microseconds):
    raw = injection.record(sequence, microseconds, text)
    assert raw.endswith(b"\n")
    assert raw.count(b"\n") == 1
    head = kmsg_record.head(raw[:-1])
    assert (head.sequence, head.monotonic_us) == (sequence, microseconds)
    assert kmsg_record.message(raw[:-1]) == text.encode("utf-8", "replace").decode()
