"""Raw Kueue JSON to values: every field a decision reads, and defaults for what is absent."""

from typing import Any

import pytest

from clusterops.scheduling import parse
from clusterops.scheduling.objects import (
    Condition,
    FlavorResource,
    Preemption,
    Quota,
    SelectorTerm,
    Toleration,
)


def workload(**changes: Any) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "metadata": {"namespace": "ns", "name": "w", "uid": "u"},
        "spec": {
            "queueName": "team",
            "podSets": [{"name": "main", "count": 2, "template": {"spec": {}}}],
        },
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        target = raw
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = value
    return raw


def test_a_cluster_queue_with_everything() -> None:
    queue = parse.cluster_queue(
        {
            "metadata": {"name": "cq", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "cohortName": "co",
                "queueingStrategy": "StrictFIFO",
                "stopPolicy": "Hold",
                "namespaceSelector": {"matchLabels": {"team": "ml"}},
                "admissionChecksStrategy": {"admissionChecks": [{"name": "b"}, {"name": "a"}]},
                "preemption": {
                    "withinClusterQueue": "LowerPriority",
                    "reclaimWithinCohort": "Any",
                    "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 7},
                },
                "resourceGroups": [
                    {
                        "coveredResources": ["cpu", "memory"],
                        "flavors": [
                            {
                                "name": "f",
                                "resources": [
                                    {"name": "cpu", "nominalQuota": "9", "borrowingLimit": "1500m"},
                                    {"name": "memory", "nominalQuota": "1Gi", "lendingLimit": 0},
                                ],
                            }
                        ],
                    }
                ],
            },
        }
    )
    assert queue.cohort == "co"
    assert queue.strategy == "StrictFIFO"
    assert queue.terminating
    assert queue.preemption == Preemption("LowerPriority", "Any", "LowerPriority", 7)
    assert queue.namespace_selector == (SelectorTerm("team", "In", ("ml",)),)
    assert queue.admission_checks == ("a", "b")
    assert queue.quotas == {
        FlavorResource("f", "cpu"): Quota(9000, borrowing_limit=1500),
        FlavorResource("f", "memory"): Quota(2**30, lending_limit=0),
    }


def test_an_empty_cluster_queue_has_kueues_defaults() -> None:
    queue = parse.cluster_queue({"metadata": {"name": "cq"}, "spec": {}})
    assert queue.strategy == "BestEffortFIFO"
    assert queue.preemption == Preemption("Never", "Never", "Never", None)
    assert queue.fungibility.when_can_preempt == "TryNextFlavor"
    assert queue.namespace_selector is None


def test_selectors_nothing_and_everything_differ() -> None:
    assert parse.label_selector(None) is None
    assert parse.label_selector({}) == ()


def test_a_workload_without_status_waits_with_defaults() -> None:
    found = parse.workload(workload())
    assert (found.active, found.priority, found.holds_quota, found.defect) == (True, 0, False, "")
    assert found.pod_sets[0].least == 2


@pytest.mark.parametrize(
    ("text", "boost"),
    [
        ("5", 5),
        ("+5", 5),
        ("-5", -5),
        ("", 0),
        ("5.0", 0),
        (" 5", 0),
        ("2147483648", 0),
        ("-2147483648", -(2**31)),
        ("٥", 0),
        ("9" * 5000, 0),
    ],
)
def test_a_boost_is_a_signed_32_bit_number_or_nothing(text: str, boost: int) -> None:
    annotation = {"kueue.x-k8s.io/priority-boost": text}
    assert parse.workload(workload(metadata__annotations=annotation)).boost == boost


def test_conditions_and_admission_are_read() -> None:
    found = parse.workload(
        workload(
            status={
                "conditions": [
                    {
                        "type": "QuotaReserved",
                        "status": "True",
                        "reason": "QuotaReserved",
                        "message": "m",
                        "lastTransitionTime": "1970-01-01T00:01:40Z",
                    }
                ],
                "admission": {
                    "clusterQueue": "cq",
                    "podSetAssignments": [
                        {
                            "name": "main",
                            "flavors": {"cpu": "f"},
                            "resourceUsage": {"cpu": "3"},
                            "count": 2,
                        }
                    ],
                },
                "requeueState": {"count": 2, "requeueAt": "1970-01-01T00:00:10Z"},
            }
        )
    )
    assert found.conditions["QuotaReserved"] == Condition(True, "QuotaReserved", "m", 100.0)
    assert found.usage() == {FlavorResource("f", "cpu"): 3000}
    assert (found.requeue_at, found.requeue_count) == (10.0, 2)


def test_lowering_a_count_gives_the_difference_back_though_the_admission_stays() -> None:
    raw = workload(
        status={
            "admission": {
                "clusterQueue": "cq",
                "podSetAssignments": [
                    {"name": "main", "flavors": {"g": "f"}, "resourceUsage": {"g": "8"}, "count": 8}
                ],
            }
        }
    )
    raw["spec"]["podSets"][0]["count"] = 6
    assert parse.workload(raw).usage() == {FlavorResource("f", "g"): 6}


def test_pod_requests_sum_containers_and_take_the_larger_of_init_containers() -> None:
    def asks(amount: str, **more: Any) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": amount}}, **more}

    spec = {
        "containers": [asks("1"), {"resources": {"limits": {"cpu": "2", "nvidia.com/gpu": 1}}}],
        "initContainers": [asks("1", restartPolicy="Always"), asks("5")],
        "overhead": {"cpu": "250m"},
    }
    assert parse.pod_requests(spec) == {"cpu": 6250, "nvidia.com/gpu": 1}


def test_requests_that_are_no_quantities_are_a_defect_of_the_workload_only() -> None:
    raw = workload()
    raw["spec"]["podSets"][0]["template"]["spec"] = {
        "containers": [{"resources": {"requests": {"cpu": "lots"}}}]
    }
    found = parse.workload(raw)
    assert "'lots' is no quantity of cpu" in found.defect
    assert found.pod_sets == ()


def test_a_workload_without_pod_sets_is_defective() -> None:
    raw = workload()
    raw["spec"]["podSets"] = []
    assert parse.workload(raw).defect


def test_node_selection_reads_selector_affinity_and_tolerations() -> None:
    term = {"key": "zone", "operator": "NotIn", "values": ["a"]}
    selection = parse.node_selection(
        {
            "nodeSelector": {"gpu": "h200"},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [term]}]
                    }
                }
            },
            "tolerations": [{"key": "spot", "operator": "Exists"}],
        }
    )
    assert selection.labels == {"gpu": "h200"}
    assert selection.terms == ((SelectorTerm("zone", "NotIn", ("a",)),),)
    assert selection.tolerations == (Toleration("spot", "Exists"),)


def test_times_that_are_none_count_as_long_ago() -> None:
    assert parse.seconds(None) == 0.0
    assert parse.seconds("yesterday") == 0.0
    assert parse.seconds("1970-01-01T00:00:01.500000Z") == 1.5
