"""One write on a Workload's status at a time."""

from typing import Any

from clusterops.queueing import transitions
from clusterops.scheduling.objects import Admission, PodSetAssignment

AT: Any = {"generation": 3, "now": 1000.0}
GPU = "nvidia.com/gpu"
ADMISSION = Admission("cq", (PodSetAssignment("main", 2, {GPU: "f"}, {GPU: 8}),))


def conditions(status: Any) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def test_a_condition_keeps_its_time_until_it_turns() -> None:
    first = transitions.with_condition({}, "A", True, "R", "m", generation=1, now=10)
    same = transitions.with_condition(first, "A", True, "R2", "m2", generation=2, now=20)
    turned = transitions.with_condition(same, "A", False, "R3", "m3", generation=2, now=30)
    assert [each["conditions"][0]["lastTransitionTime"] for each in (first, same, turned)] == [
        "1970-01-01T00:00:10Z",
        "1970-01-01T00:00:10Z",
        "1970-01-01T00:00:30Z",
    ]
    assert same["conditions"][0]["observedGeneration"] == 2


def test_nothing_is_changed_in_place() -> None:
    before: dict[str, Any] = {"conditions": [], "admission": {"clusterQueue": "x"}}
    transitions.preempted(before, "InClusterQueue", "m", **AT)
    transitions.waiting(before, "Pending", "m", **AT)
    transitions.reserved(before, ADMISSION, ("check",), **AT)
    assert before == {"conditions": [], "admission": {"clusterQueue": "x"}}


def test_a_reservation_without_checks_is_an_admission() -> None:
    status = transitions.reserved({}, ADMISSION, (), **AT)
    assert conditions(status) == {
        "QuotaReserved": ("True", "QuotaReserved"),
        "Admitted": ("True", "Admitted"),
    }
    assert status["admission"]["podSetAssignments"][0]["resourceUsage"] == {GPU: "8"}


def test_a_reservation_with_checks_waits_for_them() -> None:
    status = transitions.reserved({}, ADMISSION, ("check",), **AT)
    assert "Admitted" not in conditions(status)
    status["admissionChecks"][0]["state"] = "Ready"
    admitted = transitions.synced_admitted(status, **AT)
    assert conditions(admitted)["Admitted"] == ("True", "Admitted")


def test_admission_after_preemption_turns_its_conditions_and_keeps_what_they_said() -> None:
    status = transitions.preempted({}, "InClusterQueue", "for P", **AT)
    after = transitions.reserved(status, ADMISSION, (), **AT)
    assert conditions(after)["Evicted"] == ("False", "QuotaReserved")
    assert transitions.condition(after, "Preempted")["message"] == "Previously: for P"


def test_preemption_keeps_the_reservation_and_counts() -> None:
    status = transitions.reserved({}, ADMISSION, (), **AT)
    once = transitions.preempted(status, "InClusterQueue", "m", **AT)
    twice = transitions.preempted(once, "InClusterQueue", "m", **AT)
    assert "admission" in twice
    assert conditions(twice)["QuotaReserved"][0] == "True"
    assert twice["schedulingStats"]["evictions"] == [
        {"reason": "Preempted", "underlyingCause": "", "count": 2}
    ]


def test_eviction_resets_admission_checks() -> None:
    status = transitions.reserved({}, ADMISSION, ("check",), **AT)
    status["admissionChecks"][0]["state"] = "Ready"
    evicted = transitions.evicted(status, "ClusterQueueStopped", "m", **AT)
    (check,) = evicted["admissionChecks"]
    assert check["state"] == "Pending"
    assert check["message"].endswith("Previously: Ready")


def test_a_deactivation_carries_its_cause_in_the_reason() -> None:
    status = transitions.evicted({}, "Deactivated", "m", cause="RequeuingLimitExceeded", **AT)
    assert conditions(status)["Evicted"][1] == "DeactivatedDueToRequeuingLimitExceeded"
    assert status["schedulingStats"]["evictions"][0]["reason"] == "Deactivated"


def test_waiting_takes_the_reservation_away_and_adds_up_the_time_admitted() -> None:
    status = transitions.reserved({}, ADMISSION, (), generation=1, now=900)
    status["accumulatedPastExecutionTimeSeconds"] = 5
    after = transitions.waiting(status, "Inadmissible", "m", **AT)
    assert "admission" not in after
    assert conditions(after)["Admitted"] == ("False", "NoReservation")
    assert after["accumulatedPastExecutionTimeSeconds"] == 105


def test_back_off_doubles_up_to_its_most() -> None:
    status: Any = {}
    times = []
    for _ in range(8):
        status = transitions.backed_off(status, 60, 3600, 0)
        times.append(status["requeueState"]["requeueAt"])
    assert times[:3] == ["1970-01-01T00:01:00Z", "1970-01-01T00:02:00Z", "1970-01-01T00:04:00Z"]
    assert times[-1] == "1970-01-01T01:00:00Z"
    assert transitions.without_requeue_time(status)["requeueState"] == {"count": 8}


def test_a_long_message_is_cut_to_what_the_api_takes() -> None:
    status = transitions.with_condition({}, "A", True, "R", "m" * 99_999, **AT)
    assert len(status["conditions"][0]["message"]) == 32 * 1024
