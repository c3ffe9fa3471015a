"""The verdict as a NodeHealth status: valid whatever the log held, bounded, escaped."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from clusterops.api.node_health import MAX_INCIDENTS, NodeHealth
from health import node_status, shipped
from health.classify import judge_for
from health.events import (
    Counters,
    Event,
    Identity,
    PciAddress,
    Quantity,
    Reading,
    Source,
    Xid,
)
from health.fold.history import History
from health.verdict.node import judge_node

GPU = PciAddress(0, 0x1B, 0)
NOW = 1_750_000_000.0


def status_of(*events: Event, now: float = 100.0):
    history = History(judge_for(shipped.catalogue(), None, shipped.policy()), shipped.policy())
    for event in events:
        history.add(event)
    history.now = max(history.now, now)
    status = node_status.status(
        judge_node(history),
        since=NOW,
        now=NOW + now,
        wall=lambda at: NOW + at,
        conditions=[{"type": "Watching", "status": "True"}],
        generation=3,
    )
    wire = {
        "apiVersion": "clusterops.io/v1alpha1",
        "kind": "NodeHealth",
        "metadata": {"name": "n1"},
        "status": json.loads(json.dumps(status)),
    }
    NodeHealth.from_wire(wire)
    return status


def xid(code, at=1.0, text="", device=GPU):
    return Event(at, Xid(device, code), "b1", Source.KMSG, text=text)


def test_a_quiet_node_is_healthy():
    status = status_of()
    assert status["verdict"] == "Healthy"
    assert status["incidents"] == status["gpus"] == status["evidence"] == []


def test_a_board_is_described_as_a_vendor_asks_and_counters_stand_beside_the_fault():
    board = Identity(GPU, "GPU-7", "165", "96.00.74", "chassis 18, slot 4", "580.65.06")
    counted = [
        Event(at, Counters(GPU, {"pcie_replays": number, "ecc_uncorrected_volatile": 2}), "b1")
        for at, number in ((0.5, 1), (3.0, 9))
    ]
    told = [Event(0.1, board, "b1"), counted[0], xid(79, text="NVRM: Xid 79"), counted[1]]
    (gpu,) = status_of(*told)["gpus"]
    named = {name: gpu[name] for name in ("uuid", "serial", "vbios", "slot", "driver")}
    assert named == {
        "uuid": "GPU-7", "serial": "165", "vbios": "96.00.74", "slot": "chassis 18, slot 4",
        "driver": "580.65.06",
    }  # fmt: skip
    assert gpu["evidence"][-1]["text"] == "counters before the fault and now: pcie_replays 1 -> 9"
    (well,) = status_of(Event(0.1, board, "b1"), *counted)["gpus"]
    assert well["evidence"] == []


def test_a_lost_gpu_has_its_incident_evidence_and_times():
    status = status_of(xid(79, text="NVRM: Xid 79"))
    assert status["verdict"] == "RebootNode"
    (gpu,) = status["gpus"]
    assert gpu["uuid"] == "pci-0000:1b:00.0"
    assert gpu["verdict"] == "RebootNode"
    assert gpu["evidence"][0]["code"] == 79
    assert gpu["evidence"][0]["observedAt"] == "2025-06-15T15:06:41.000Z"
    (incident,) = status["incidents"]
    assert incident["verdict"] == "RebootNode"
    assert incident["gpus"] == [gpu["uuid"]]
    assert "closedAt" not in incident


def test_a_reading_without_a_line_is_evidence_too():
    reading = Event(1.0, Reading(Quantity.REMAP_FAILURE, 1, GPU), "b1", Source.NVML)
    (gpu,) = status_of(reading)["gpus"]
    assert gpu["verdict"] == "HardwareTicket"
    assert gpu["evidence"][0]["source"] == "nvml"


def test_what_concerns_the_whole_node_is_its_own_evidence():
    status = status_of(Event(1.0, Reading(Quantity.DEVICES_MISSING, 1), "b1", Source.NVML))
    assert status["verdict"] == "RebootNode"
    assert "missing" in status["evidence"][0]["text"]


def test_control_characters_of_a_log_line_are_escaped():
    status = status_of(xid(79, text="\x1b[2J\x00 clear \u202e"))
    assert "\\x1b[2J\\x00" in json.dumps(status["gpus"]).replace("\\\\", "\\")
    assert "\x1b" not in str(status)


def test_more_incidents_than_fit_keep_the_open_ones():
    events = [xid(13, at=float(n * 1000)) for n in range(200)]
    events.append(xid(79, at=50.0, device=PciAddress(0, 0x1C, 0)))
    events.sort(key=lambda event: event.at)
    status = status_of(*events, now=200_000.0)
    assert len(status["incidents"]) <= MAX_INCIDENTS
    assert any(each["verdict"] == "RebootNode" for each in status["incidents"])


def test_a_clock_beyond_all_calendars_still_gives_a_timestamp():
    assert node_status.timestamp(-1e30) == "1970-01-01T00:00:00.000Z"
    assert node_status.timestamp(1e30).startswith("9999-12-31")


devices = st.builds(PciAddress, st.integers(0, 2), st.integers(0, 40), st.just(0))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.builds(
            Event,
            at=st.floats(0, 1e5),
            what=st.one_of(
                st.builds(Xid, devices, st.integers(0, 300), st.text(max_size=40)),
                st.builds(
                    Reading, st.sampled_from(Quantity), st.none() | st.integers(-9, 2000), devices
                ),
            ),
            boot=st.sampled_from(["b1", "b2"]),
            text=st.text(max_size=60),
        ),
        max_size=60,
    )
)
def test_any_history_gives_a_status_that_the_api_takes(events):
    status_of(*sorted(events, key=lambda event: event.at), now=1e5)
