"""What a TrainingJob may be: fields, bounds, and the rules that span them."""

import json

import pytest
from pydantic import ValidationError

from clusterops.api import names, training_job
from clusterops.api.training_job import TrainingJob, longest_name
from clusterops.api.validation import problems
from clusterops.core import observed


def fields(job) -> list[str]:
    return [problem.field for problem in problems(TrainingJob, job)]


def messages(job) -> str:
    return "\n".join(map(str, problems(TrainingJob, job)))


def test_a_valid_job_has_no_problem_and_survives_the_wire(job) -> None:
    assert problems(TrainingJob, job) == ()
    assert TrainingJob.from_wire(job).to_wire() == job


def test_defaults_are_those_of_the_contract(job) -> None:
    spec = TrainingJob.from_wire(job).spec
    assert (spec.min_replicas, spec.processes_per_pod, spec.backoff_limit) == (None, 1, 3)
    assert (spec.suspend, spec.stop, spec.checkpoint.grace_period_seconds) == (False, None, 120)
    assert spec.active_deadline_seconds is None
    assert spec.ttl_seconds_after_finished is None


def test_gpus_are_those_of_all_pods(job) -> None:
    assert TrainingJob.from_wire(job).gpus == 8


def test_explicit_nulls_mean_absent(job) -> None:
    for field in ("minReplicas", "stop", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        job["spec"][field] = None
    assert problems(TrainingJob, job) == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("replicas", 0),
        ("replicas", 10_001),
        ("replicas", "2"),
        ("replicas", True),
        ("replicas", 2.0),
        ("minReplicas", 0),
        ("processesPerPod", 0),
        ("backoffLimit", -1),
        ("activeDeadlineSeconds", 0),
        ("ttlSecondsAfterFinished", -1),
        ("suspend", "yes"),
        ("stop", "Later"),
        ("queueName", ""),
        ("queueName", "Research"),
        ("queueName", "research\n"),
        ("priorityClassName", "-high"),
        ("template", []),
        ("checkpoint", "here"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_name(job, field: str, value) -> None:
    job["spec"][field] = value
    assert f"spec.{field}" in fields(job)


@pytest.mark.parametrize("seconds", [0, 86_401, "120", None])
def test_the_grace_period_is_bounded(job, seconds) -> None:
    job["spec"]["checkpoint"]["gracePeriodSeconds"] = seconds
    assert fields(job) == ["spec.checkpoint.gracePeriodSeconds"]


def test_an_unknown_field_is_refused_with_what_was_meant(job) -> None:
    job["spec"]["replica"] = 1
    (problem,) = problems(TrainingJob, job)
    assert str(problem) == 'spec.replica: unknown field (did you mean "replicas"?)'


def test_python_names_are_not_names_of_the_wire(job) -> None:
    job["spec"]["queue_name"] = job["spec"].pop("queueName")
    assert fields(job) == ["spec.queue_name"]


def test_fewer_at_least_than_at_most(job) -> None:
    job["spec"]["minReplicas"] = 3
    assert messages(job) == "spec.minReplicas: must be at most replicas (2), not 3"
    job["spec"]["minReplicas"] = 2
    assert problems(TrainingJob, job) == ()


def test_every_pod_of_the_longest_name_is_a_dns_label(job) -> None:
    for replicas in (1, 10, 11, 10_000):
        longest = longest_name(replicas)
        job["spec"]["replicas"] = replicas
        job["metadata"]["name"] = "a" * longest
        assert problems(TrainingJob, job) == ()
        assert len(names.pod_name("a" * longest, 99_999, replicas - 1)) == 63
        job["metadata"]["name"] = "a" * (longest + 1)
        assert fields(job) == ["metadata.name"]


@pytest.mark.parametrize("name", ["7b", "a.b", "Llm", "", None, "a_b"])
def test_a_name_that_pods_cannot_carry_is_refused(job, name) -> None:
    job["metadata"]["name"] = name
    assert "metadata.name" in fields(job)


def test_a_generated_name_keeps_room_for_what_is_appended(job) -> None:
    del job["metadata"]["name"]
    job["metadata"]["generateName"] = "a" * (longest_name(2) - 5)
    assert problems(TrainingJob, job) == ()
    job["metadata"]["generateName"] += "a"
    assert fields(job) == ["metadata.generateName"]


def test_all_problems_come_at_once(job) -> None:
    job["spec"] |= {"replicas": 0, "minReplicas": 7, "stopp": "Now", "queueName": 5}
    job["spec"]["checkpoint"]["directory"] = "/elsewhere"
    assert sorted(fields(job)) == [
        "spec.checkpoint.directory",
        "spec.minReplicas",
        "spec.queueName",
        "spec.replicas",
        "spec.stopp",
    ]


def test_a_model_built_in_python_obeys_the_same_rules(job) -> None:
    job["spec"]["minReplicas"] = 3
    with pytest.raises(ValidationError) as refusal:
        TrainingJob.from_wire(job)
    assert refusal.value.errors()[0]["loc"] == ("spec", "minReplicas")


@pytest.mark.parametrize("wire", [None, [], "x", 3, {}, {"spec": []}, {"spec": {"template": 1}}])
def test_nonsense_is_refused_without_a_crash(wire) -> None:
    assert problems(TrainingJob, wire)


@pytest.mark.parametrize(
    ("ours", "operators"),
    [
        (training_job.TrainingJobStatus, observed.JobStatus),
        (training_job.TrainingJobSpec, observed.JobSpec),
        (training_job.Checkpoint, observed.Checkpoint),
        (training_job.Attempt, observed.Attempt),
        (training_job.Counts, observed.Counts),
        (training_job.Progress, observed.Progress),
    ],
)
def test_the_operator_reads_and_writes_exactly_the_fields_of_the_kind(ours, operators) -> None:
    """A field that the schema lacks would be pruned, and forgotten over a restart."""
    aliases = {field.alias for field in ours.model_fields.values()}
    assert aliases == set(operators.__struct_encode_fields__)


def test_the_status_the_operator_writes_is_accepted(job) -> None:
    job["status"] = json.loads(
        """{"phase": "Running", "reason": "", "message": "", "observedGeneration": 1, "gpus": 8,
        "conditions": [{"type": "Succeeded", "status": "False", "reason": "Running", "message": "",
        "lastTransitionTime": "2026-11-30T19:00:00Z", "observedGeneration": 1}],
        "progress": {"step": 3100, "totalSteps": 10000, "durableStep": 3050, "stepsPerSecond": 2.1,
        "updatedAt": "2026-11-30T19:00:00.5Z"}, "attempt": 2, "attempts": [{"number": 1,
        "startedAt": "2026-11-30T18:00:00Z", "endedAt": "2026-11-30T18:30:00Z",
        "cause": "Preempted", "message": "by urgent", "nodes": ["n0", "n1"], "firstStep": 0,
        "lastStep": 3000, "durableStep": 3000, "lostSteps": 0, "lostGpuSeconds": 0.0}],
        "counts": {"attempts": 2, "preemptions": 1, "faults": 0, "userErrors": 0, "lostSteps": 0,
        "lostGpuSeconds": 0.0}, "graceDeadline": null}"""
    )
    assert problems(TrainingJob, job) == ()
    job["status"]["attempts"] *= 21
    assert fields(job) == ["status.attempts"]
