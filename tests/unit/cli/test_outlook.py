"""What would become of a job if it were submitted now, and what cannot be known."""

from typing import Any

from clusterops.cli.outlook import Ending, earliest, outlook, seconds_left
from clusterops.core import observed, workload
from clusterops.scheduling import parse, snapshot
from clusterops.scheduling.explain import Shortage

NOW = 1_780_000_000.0
GPU = "nvidia.com/gpu"


def job(name: str, gpus: int, **progress: Any) -> dict:
    container = {"name": "t", "command": ["x"], "resources": {"limits": {GPU: gpus}}}
    return {
        "apiVersion": "clusterops.io/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "research", "uid": f"uid-{name}"},
        "spec": {"queueName": "research", "template": {"spec": {"containers": [container]}}},
        "status": {"progress": progress},
    }


def as_workload(of: dict, priority: int = 0, *, holds: int = 0) -> dict:
    raw = workload.desired_workload(observed.training_job(of), priority)
    raw["metadata"] |= {
        "uid": f"workload-{of['metadata']['name']}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    if holds:
        assignment = {
            "name": "main",
            "flavors": {GPU: "gpu"},
            "resourceUsage": {GPU: str(holds)},
            "count": 1,
        }
        granted = [
            {"type": kind, "status": "True", "reason": kind,
             "lastTransitionTime": "2026-01-01T00:00:00Z"}
            for kind in ("QuotaReserved", "Admitted")
        ]  # fmt: skip
        raw["status"] = {
            "admission": {"clusterQueue": "research", "podSetAssignments": [assignment]},
            "conditions": granted,
        }
    return raw


def view(*workloads: dict, preemption: str = "Never") -> snapshot.Snapshot:
    resource = {"name": GPU, "nominalQuota": 8}
    flavors = [{"name": "gpu", "resources": [resource]}]
    queue = {
        "metadata": {"name": "research"},
        "spec": {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": preemption},
            "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}],
        },
    }
    local = {
        "metadata": {"name": "research", "namespace": "research"},
        "spec": {"clusterQueue": "research"},
    }
    return snapshot.build(
        cluster_queues=[parse.cluster_queue(queue)],
        flavors=[parse.resource_flavor({"metadata": {"name": "gpu"}, "spec": {}})],
        local_queues=[parse.local_queue(local)],
        workloads=[parse.workload(each) for each in workloads],
    )


def asked(gpus: int, priority: int = 0) -> Any:
    return parse.workload(as_workload(job("new", gpus), priority))


def test_a_job_that_fits_is_told_so_and_what_is_not_known() -> None:
    first, *rest = outlook(view(), asked(4), [], NOW)
    assert first == "it would get its quota at once"
    assert rest[-1].startswith("not known: ")


def test_a_job_that_displaces_others_names_them() -> None:
    held = as_workload(job("char-lm", 6), 0, holds=6)
    lines = outlook(view(held, preemption="LowerPriority"), asked(4, 1000), [], NOW)
    assert lines[0] == "it would begin in the place of char-lm, after their last save"


def test_a_job_that_waits_is_told_its_place_and_when_the_holder_says_it_ends() -> None:
    running = job("char-lm", 6, step=400, totalSteps=1000, stepsPerSecond=2.0)
    waiting = as_workload(job("earlier", 8))
    lines = outlook(view(as_workload(running, holds=6), waiting), asked(4), [running], NOW)
    assert "place 2 of 2" in lines[0]
    assert "1 job would be ahead of it" in lines
    assert (
        "not before 5m from now, when char-lm ends by its own report, if the 1 job ahead leave it any"
        in lines
    )


def test_a_holder_that_says_nothing_leaves_no_time_to_tell() -> None:
    running = job("char-lm", 6)
    lines = outlook(view(as_workload(running, holds=6)), asked(4), [running], NOW)
    assert "no time can be told: char-lm has not said how far it is" in lines


def test_the_earliest_time_adds_up_what_is_given_back() -> None:
    short = Shortage("gpu", GPU, 6, 1, 8)
    holders = [Ending("a", 2, 60.0), Ending("b", 3, 600.0), Ending("c", 2, None)]
    assert earliest(short, holders).startswith("not before 10m from now, when b ends")
    assert (
        earliest(short, holders[:1])
        == "no time can be told: 5 more nvidia.com/gpu must become free"
    )


def test_seconds_left_need_a_rate_and_an_end() -> None:
    assert seconds_left(job("a", 1, step=10, totalSteps=110, stepsPerSecond=2.0)) == 50.0
    assert seconds_left(job("a", 1, step=10, totalSteps=110)) is None
    assert seconds_left(job("a", 1, step=10, stepsPerSecond=2.0)) is None
    assert seconds_left(job("a", 1, step=120, totalSteps=110, stepsPerSecond=1.0)) == 0.0


def test_a_holder_that_has_only_begun_to_report_is_not_called_silent() -> None:
    running = job("char-lm", 6, step=0, totalSteps=1000)
    lines = outlook(view(as_workload(running, holds=6)), asked(4), [running], NOW)
    assert "no time can be told: char-lm has not said yet how fast it is" in lines


def test_a_holder_that_is_about_to_end_ends_any_moment() -> None:
    short = Shortage("gpu", GPU, 6, 1, 8)
    assert earliest(short, [Ending("a", 6, 0.0)]) == "any moment, when a ends by its own report"
