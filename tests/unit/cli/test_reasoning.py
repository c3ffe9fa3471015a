"""The causal sentence about a job."""

from datetime import UTC, datetime

import pytest

from clusterops.cli import reasoning
from clusterops.core import observed, workload
from clusterops.scheduling import parse, snapshot

NOW = datetime(2026, 11, 30, 19, 0, 30, tzinfo=UTC).timestamp()


def job(name: str, gpus: int, status: dict | None = None, **spec) -> dict:
    container = {"name": "t", "command": ["x"], "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {
        "apiVersion": "clusterops.io/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {
            "name": name,
            "namespace": "research",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-11-30T19:00:00Z",
        },
        "spec": {
            "queueName": "research",
            "template": {"spec": {"containers": [container]}},
            **spec,
        },
        "status": status or {},
    }


def raw_workload(of: dict, priority: int, admitted: int = 0) -> dict:
    raw = workload.desired_workload(observed.training_job(of), priority)
    raw["metadata"] |= {
        "uid": f"workload-{of['metadata']['name']}",
        "creationTimestamp": "2026-11-30T19:00:00Z",
    }
    if admitted:
        assignment = {
            "name": "main",
            "flavors": {"nvidia.com/gpu": "gpu"},
            "resourceUsage": {"nvidia.com/gpu": str(admitted)},
            "count": 1,
        }
        raw["status"] = {
            "admission": {"clusterQueue": "research", "podSetAssignments": [assignment]},
            "conditions": [
                {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved",
                 "lastTransitionTime": "2026-11-30T19:00:00Z"},
                {"type": "Admitted", "status": "True", "reason": "Admitted",
                 "lastTransitionTime": "2026-11-30T19:00:00Z"},
            ],
        }  # fmt: skip
    return raw


def view(*workloads: dict, quota: int = 8, preemption: str = "Never") -> snapshot.Snapshot:
    resource = {"name": "nvidia.com/gpu", "nominalQuota": quota}
    queue = {
        "metadata": {"name": "research"},
        "spec": {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": preemption},
            "resourceGroups": [
                {
                    "coveredResources": ["nvidia.com/gpu"],
                    "flavors": [{"name": "gpu", "resources": [resource]}],
                }
            ],
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


def test_a_job_that_waits_names_who_holds_what_it_needs() -> None:
    holder, waiting = job("char-lm", 6), job("llm", 4)
    why = reasoning.waiting(
        waiting, view(raw_workload(holder, 1000, 6), raw_workload(waiting, 1000)), NOW
    )
    assert why.reason == "WaitingForQuota"
    assert why.sentence == (
        "llm has waited 30s: it needs 4 nvidia.com/gpu, 2 of 8 of flavor gpu are free, "
        "place 1 of 1 in the queue; held by char-lm (6, priority 1000)."
    )
    assert any(line.startswith("the queue says: ") for line in why.details)
    assert not any("char-lm" in line for line in why.details), "the sentence names it already"
    assert [(each.name, each.amount) for each in why.holders] == [("char-lm", 6)]
    assert why.position == 0
    assert why.would_help == "with 2 nvidia.com/gpu instead of 4 it would fit now"


def test_what_would_help_names_the_priority_that_the_queue_would_displace_others_for() -> None:
    holder, waiting = job("char-lm", 6), job("llm", 4)
    state = view(
        raw_workload(holder, 1000, 6), raw_workload(waiting, 1000), preemption="LowerPriority"
    )
    assert reasoning.waiting(waiting, state, NOW).would_help == (
        "with 2 nvidia.com/gpu instead of 4 it would fit now; "
        "with a priority above 1000 it would take the place of char-lm"
    )
    full, stuck = job("char-lm", 8), job("llm", 4)
    nothing = view(raw_workload(full, 1000, 8), raw_workload(stuck, 1000))
    assert reasoning.waiting(stuck, nothing, NOW).would_help == ""


def test_a_job_that_has_just_been_queued_and_fits_is_not_said_to_be_behind_others() -> None:
    new = job("new", 4)
    why = reasoning.waiting(new, view(raw_workload(new, 1000)), NOW)
    assert "its turn is next" in why.sentence
    assert "others" not in why.sentence


def test_a_job_that_displaces_others_says_whom() -> None:
    holder, waiting = job("char-lm", 6), job("urgent", 4)
    state = view(
        raw_workload(holder, 1000, 6), raw_workload(waiting, 3000), preemption="LowerPriority"
    )
    why = reasoning.waiting(waiting, state, NOW)
    assert why.reason == "WaitingForPreemption"
    assert "char-lm" in why.sentence


def test_a_job_that_can_never_run_says_the_limit() -> None:
    big = job("big", 9)
    why = reasoning.waiting(big, view(raw_workload(big, 0)), NOW)
    assert why.reason == "NeverFits"
    assert "9" in why.sentence
    assert "8" in why.sentence


def test_a_job_nobody_has_queued_says_what_the_operator_said() -> None:
    missing = job("new", 1, {"phase": "Pending", "reason": "PriorityClassNotFound"})
    why = reasoning.waiting(missing, view(), NOW)
    assert "its priority class does not exist (yet)" in why.sentence
    silent = reasoning.waiting(job("new", 1), view(), NOW)
    assert "is the operator running" in silent.would_help


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {"phase": "Running", "gpus": 8, "attempt": 2, "progress": {"step": 3100, "totalSteps": 10000}},
            "llm runs on 8 GPUs, attempt 2, step 3,100 of 10,000.",
        ),
        (
            {"phase": "Checkpointing", "gpus": 8, "reason": "SavingBeforeRelease",
             "graceDeadline": "2026-11-30T19:02:00Z"},
            "llm is saving before it gives 8 GPUs back at 2026-11-30 19:02:00 UTC at the latest: "
            "it is saving before it gives its GPUs back.",
        ),
        (
            {"phase": "Succeeded", "reason": "Completed", "counts": {"attempts": 1}},
            "llm has succeeded in 1 attempt: all ranks finished.",
        ),
        (
            {"phase": "Failed", "reason": "UserError", "message": "rank 1 exited with 3",
             "counts": {"attempts": 4}},
            "llm has failed after 4 attempts: the job's own process failed: rank 1 exited with 3.",
        ),
    ],
)  # fmt: skip
def test_a_job_with_quota_or_an_end_is_told_from_its_status(status: dict, words: str) -> None:
    assert reasoning.from_status(job("llm", 8, status)).sentence == words


def test_what_was_lost_is_told_attempt_by_attempt() -> None:
    ended = {
        "number": 1, "endedAt": "2026-11-30T19:00:00Z", "cause": "Preempted",
        "message": "by urgent", "lastStep": 3100, "lostSteps": 50,
    }  # fmt: skip
    status = {"phase": "Running", "attempt": 2, "attempts": [ended, {"number": 2}]}
    why = reasoning.from_status(job("llm", 8, status))
    assert why.details == ("attempt 1: by urgent; stopped at step 3,100, 50 steps lost",)


def test_the_wait_is_counted_from_the_end_of_the_last_attempt() -> None:
    attempts = [
        {"number": 1, "startedAt": "2026-11-30T19:00:05Z", "endedAt": "2026-11-30T19:00:20Z"}
    ]
    again = job("llm", 4, {"phase": "Requeued", "attempts": attempts})
    assert reasoning.waiting(again, view(), NOW).sentence.startswith("llm has waited 10s: ")


def test_a_message_that_ends_with_a_full_stop_gets_no_second_one() -> None:
    status = {"phase": "Starting", "reason": "WaitingForNodes", "gpus": 1, "message": "no room."}
    said = reasoning.from_status(job("llm", 1, status)).sentence
    assert said == (
        "llm has its quota (1 GPU) and its pods are starting: no node has room for its pods: no room."
    )


def test_a_suspended_job_is_told_how_to_go_on() -> None:
    asleep = job("llm", 1, {"phase": "Suspended", "reason": "Suspended"}, suspend=True)
    assert reasoning.from_status(asleep).would_help == (
        "it goes on after: kubectl patch tj -n research llm --type merge "
        """-p '{"spec":{"suspend":false}}'"""
    )


@pytest.mark.parametrize(
    ("phase", "suspend", "waits"),
    [("Pending", False, True), ("Requeued", False, True), ("Running", False, False),
     ("Pending", True, False), ("Suspended", True, False)],
)  # fmt: skip
def test_only_a_job_that_wants_quota_waits_for_it(phase: str, suspend: bool, waits: bool) -> None:
    assert reasoning.waits(job("a", 1, {"phase": phase}, suspend=suspend)) is waits


def test_a_pod_that_no_node_holds_is_told_first_with_what_would_help() -> None:
    starting = job("big", 8, {"phase": "Starting", "reason": "WaitingForNodes", "gpus": 8})
    node = {"metadata": {"name": "n0"}, "status": {"allocatable": {"nvidia.com/gpu": "4"}}}
    why = reasoning.advised(reasoning.from_status(starting), starting, [node], "research")
    assert why.details[0] == (
        "each of its pods asks for 8 nvidia.com/gpu, and the largest node, n0, has 4: "
        "no node can run it"
    )
    assert "fewer GPUs a pod" in why.would_help


def test_a_job_that_saves_nowhere_is_told_so_until_it_has_ended() -> None:
    def details(status: dict, **spec: object) -> tuple[str, ...]:
        of = job("llm", 1, status, **spec)
        return reasoning.advised(reasoning.from_status(of), of, [], "research").details

    running = {"phase": "Running", "gpus": 1, "attempt": 1}
    assert any("it starts over" in line for line in details(running))
    assert details(running, checkpoint={"directory": "/checkpoints/llm"}) == ()
    assert details({"phase": "Succeeded"}) == ()


def test_a_failure_ends_with_the_command_for_the_log_of_the_rank_to_blame() -> None:
    ended = {
        "number": 2, "startedAt": "2026-11-30T19:00:00Z", "endedAt": "2026-11-30T19:00:10Z",
        "cause": "UserError", "message": "rank 3 on n0 exited with code 1",
    }  # fmt: skip
    failed = job("llm", 8, {"phase": "Failed", "attempts": [ended]})
    why = reasoning.from_status(failed)
    here = reasoning.advised(why, failed, [], "research")
    assert here.logs == "clusterops logs llm --rank 3 --attempt 2"
    elsewhere = reasoning.advised(why, failed, [], "default")
    assert elsewhere.logs == "clusterops logs llm -n research --rank 3 --attempt 2"


def test_a_job_that_waits_is_told_when_a_holder_says_it_ends() -> None:
    holder, waiting = job("char-lm", 6), job("llm", 4)
    holder["status"] = {"progress": {"step": 400, "totalSteps": 1000, "stepsPerSecond": 2.0}}
    state = view(raw_workload(holder, 1000, 6), raw_workload(waiting, 1000))
    why = reasoning.waiting(waiting, state, NOW, [holder])
    assert "not before 5m from now, when char-lm ends by its own report" in why.details
    silent = reasoning.waiting(waiting, state, NOW, [job("char-lm", 6)])
    assert not any("from now" in line or "no time" in line for line in silent.details)
